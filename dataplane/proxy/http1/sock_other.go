//go:build !linux

package http1

import "time"

// initRaw leaves the closures out: every call goes through net.Conn, idle
// connections keep a buffer, and pooled connections are not looked at before use.
func (s *sock) initRaw() {}

func (s *sock) boundUnacked(time.Duration) {}
