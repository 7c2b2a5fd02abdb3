package proxy

import (
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// headerBehind goes with the answer to a change that this proxy's table does
// not show yet, and tells the revision that it stands at.
const headerBehind = "Domicile-Behind"

// revisions gives those of the proxy's two tables.
func (p *Proxy) revisions() (at revisions) {
	if t := p.dir.table(); t != nil {
		at.own = t.position.Revision
	}
	if t := p.global.table(); t != nil {
		at.global = t.position.Revision
	}
	return at
}

// await waits until ok holds, which may change with either table, for no longer than
// limit and until gone is closed, and tells whether it holds.
func (p *Proxy) await(gone <-chan struct{}, limit time.Duration, ok func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		own, global := p.dir.next(), p.global.next()
		if ok() {
			return true
		}
		select {
		case <-own:
		case <-global:
		case <-timer.C:
			return false
		case <-gone:
			return false
		}
	}
}

// awaitFound waits for a tenant that the control plane has: where the proxy has one
// directory no longer than until that is as new as what was said.
func (p *Proxy) awaitFound(gone <-chan struct{}, limit time.Duration, at place, k known) {
	var name [maxUnit]byte
	unit := at.unit(name[:0])
	p.await(gone, limit, func() bool {
		f := p.find(unit, at.tenant)
		return f.answers() || f.between || p.has(k)
	})
}

// has tells whether the table that an answer tells of is as new as that; for the global
// one's copy this says nothing of the tenant's own directory.
func (p *Proxy) has(k known) bool {
	t := p.dir.table()
	return t != nil && t.own == "" && t.position.Revision >= k.revision
}

// copyOf gives the proxy's copy of a group's directory, nil without one.
func (p *Proxy) copyOf(authority string) *directory {
	for _, d := range []*directory{p.dir, p.global} {
		if t := d.table(); t != nil && authority == t.position.Authority {
			return d
		}
	}
	return nil
}

// settle holds the answer to a change until the tables show it: that of the directory
// that was changed, and of another one that was, too.
func (h handler) settle(r *http1.Request, a *http1.Answer) {
	limit := time.Now().Add(awaitChange)
	if rev, err := strconv.ParseUint(string(a.Header(proto.HeaderRevision)), 10, 64); err == nil {
		d := h.dir
		if name, ok := proto.ParseDirectoryName(string(a.Header(proto.HeaderDirectory))); ok {
			d = h.copyOf(name.Authority)
		}
		h.settleBy(r, a, d, fsm.Revision(rev), limit)
	}
	if also, ok := proto.ParseAlso(string(a.Header(proto.HeaderAlso))); ok {
		h.settleBy(r, a, h.copyOf(also.Authority), also.Revision, limit)
	}
}

// settleBy waits until limit for a directory, nil for one that the proxy has no copy of.
func (h handler) settleBy(r *http1.Request, a *http1.Answer, d *directory, rev fsm.Revision, limit time.Time) {
	if d == nil || d.await(r.Gone(), time.Until(limit), reached(rev)) || a.Lines != nil {
		return
	}
	var have fsm.Revision
	if t := d.table(); t != nil {
		have = t.position.Revision
	}
	a.Lines = strconv.AppendUint([]byte(headerBehind+": "), uint64(have), 10)
	a.Lines = append(a.Lines, '\r', '\n')
}
