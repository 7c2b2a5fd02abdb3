package proxy

import (
	"net/http"
	"slices"
	"sync/atomic"

	"domicile/dataplane/proxy/http1"
)

// ring is servers of which each can answer: the control servers, or the routers of a
// region. The one that answered last is asked first. Its list does not change.
type ring struct {
	ups    []*http1.Upstream
	broken []atomic.Uint64 // requests that had failed on each one's connections when that was looked at last

	first atomic.Int32 // place of the one that answered last
}

func newRing(ups []*http1.Upstream) *ring {
	return &ring{ups: ups, broken: make([]atomic.Uint64, len(ups))}
}

// nth gives the server to send a request to: the n-th to be tried, from 0 on; nil when
// all were.
func (r *ring) nth(n int) *http1.Upstream {
	if n >= len(r.ups) {
		return nil
	}
	if n == 0 {
		r.passOver()
	}
	return r.ups[(int(r.first.Load())+n)%len(r.ups)]
}

// passOver has another server be the first where that one is silent, or takes connections and
// breaks them, as what stands before a server that is gone does. Each is looked at: behind one
// that is silent may be one that breaks them.
func (r *ring) passOver() {
	for range r.ups {
		i := int(r.first.Load())
		now := r.ups[i].Stats().Errors.Load()
		if r.broken[i].Swap(now) == now && !r.ups[i].Lost() {
			return
		}
		r.note(i, http.StatusServiceUnavailable)
	}
}

// reachable gives the first server, in the order of nth, that is not known to be down or
// silent; else the first that a connect may find to be back, and nil without any.
func (r *ring) reachable() (down *http1.Upstream) {
	for n := range r.ups {
		switch up := r.nth(n); {
		case up.Lost():
		case up.Up():
			return up
		case down == nil:
			down = up
		}
	}
	return down
}

// after gives the next server behind up that is not known to be down or silent, nil
// without one.
func (r *ring) after(up *http1.Upstream) *http1.Upstream {
	i := r.index(up)
	for n := range r.ups {
		if next := r.ups[(i+1+n)%len(r.ups)]; next != up && next.Up() && !next.Lost() {
			return next
		}
	}
	return nil
}

// doubt has it found out, of all of them at once, whether they answer.
func (r *ring) doubt() {
	for _, up := range r.ups {
		up.Doubt()
	}
}

// index gives the place of an upstream among the servers, -1 for another one.
func (r *ring) index(up *http1.Upstream) int { return slices.Index(r.ups, up) }

// note notes which server answered. One that says 503 knows no leader, or has no
// directory: the next request begins with the next one.
func (r *ring) note(i, status int) {
	if status == http.StatusServiceUnavailable {
		i = (i + 1) % len(r.ups)
	}
	if r.first.Load() != int32(i) {
		r.first.Store(int32(i))
	}
}
