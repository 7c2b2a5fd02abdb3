package store

// trim gives back what an idle unit can do without: readers beyond the first,
// compiled statements, and pages that SQLite keeps in memory. It leaves a unit
// alone that someone uses.
func (u *Unit) trim() {
	u.mu.Lock()
	if u.trimmed || u.gone != nil || len(u.active) > 0 {
		u.mu.Unlock()
		return
	}
	u.trimmed = true
	u.mu.Unlock()

	select {
	case u.writer <- struct{}{}:
		if u.w != nil {
			u.w.slim()
		}
		if u.copy.inj != nil {
			u.copy.inj.r.releaseMemory()
		}
		<-u.writer
	default:
		return
	}
	for n := 0; u.tryReaderSlot(); n++ {
		u.mu.Lock()
		var c *Conn
		if i := len(u.idle) - 1; i >= 0 && u.gone == nil {
			c, u.idle = u.idle[i], u.idle[:i]
		}
		last := len(u.idle) == 0
		u.mu.Unlock()
		switch {
		case c == nil:
			<-u.readers
			return
		case last:
			c.slim()
			u.mu.Lock()
			u.idle = append(u.idle, c)
			u.mu.Unlock()
			<-u.readers
			return
		}
		c.close(false)
		<-u.readers
	}
}

// slim frees the statements and pages that a connection keeps for speed.
func (c *Conn) slim() {
	c.dropCache()
	c.raw.releaseMemory()
}
