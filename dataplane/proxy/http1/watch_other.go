//go:build !linux

package http1

// hangups watches nothing on this platform: a client that went away is
// noticed when its answer is written.
type hangups struct{}

func newHangups() (*hangups, error)      { return &hangups{}, nil }
func (h *hangups) add(*sock, int32) bool { return false }
func (h *hangups) gone(func(id int32))   {}
func (h *hangups) close()                {}
