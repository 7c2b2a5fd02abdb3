package proxy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

const (
	headerMode   = "Domicile-Mode"
	headerPrefer = "Domicile-Prefer"
)

var (
	modeRead      = []byte("read")
	preferReplica = []byte("replica")
)

// each yields the copies of a unit: the place of the node, and the state.
func (u unitRecord) each(yield func(node uint32, state fsm.CopyState) bool) {
	for c := u.copies; len(c) > 0; c = c[copySize:] {
		if !yield(binary.LittleEndian.Uint32(c[1:]), fsm.CopyState(c[0])) {
			return
		}
	}
}

// readCopy gives the copy that a request should be read from (R7, B4), nil where
// that is not asked for or there is none. What a copy does not answer the primary
// does, also where the copy gives no answer (http1.Config.SpareWait): a node that is asked
// as a copy writes nothing (routeCopy), so that nothing is executed twice (R2).
func (h handler) readCopy(r *http1.Request, f found, unit []byte) *http1.Upstream {
	if f.seat == nil {
		return nil // another region's proxies know its copies
	}
	if !bytes.EqualFold(r.Header(headerPrefer), preferReplica) || !bytes.EqualFold(r.Header(headerMode), modeRead) {
		return nil
	}
	u, ok := f.t.unit(unit)
	if !ok {
		return nil
	}
	up := h.nearest(f.t, u)
	if up == nil || !up.ClaimSpare() {
		return nil
	}
	return up
}

// nearest gives a copy of u that can be reached and answers: one of the proxy's zone,
// else of its region, else any; at random among equals. A copy is one that is in sync, or,
// in the region that the proxy was told to be in, a read replica (C8).
func (h handler) nearest(t *table, u unitRecord) (up *http1.Upstream) {
	best, equals := 0, uint32(0)
	for node, state := range u.each {
		s := &t.nodes[node]
		own := string(s.info.Region) == h.cfg.Region
		if state != fsm.CopyInSync && (state != fsm.CopyReader || !own || h.cfg.Region == "") || s.up == nil || !s.up.Up() || s.up.Late() {
			continue
		}
		near := 1
		if own {
			near = 2
			if h.cfg.Zone != "" && string(s.info.Zone) == h.cfg.Zone {
				near = 3
			}
		}
		switch {
		case near > best:
			best, equals, up = near, 1, s.up
		case near == best:
			if equals++; rand.Uint32N(equals) == 0 {
				up = s.up
			}
		}
	}
	return up
}
