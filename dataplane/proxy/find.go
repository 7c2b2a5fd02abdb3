package proxy

import (
	"bytes"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// found is what a proxy's two tables say of a unit; the zero value: neither knows it.
type found struct {
	t    *table  // that says so, or that knows at least its tenant
	seat *seat   // of the node that holds it
	home *region // that keeps it in a directory of its own
	// between says that its home is the proxy's own region, whose directory does not
	// place it: it has left its former home, or is about to leave this one (3.9.2).
	between bool
}

// find looks a unit up in the proxy's own table and, where that does not have its tenant,
// in the copy of the global one (G7). It takes no lock and allocates nothing.
func (p *Proxy) find(unit, tenant []byte) found {
	own := p.dir.table()
	if own == nil {
		return found{}
	}
	if s := own.seat(unit); s != nil {
		return found{t: own, seat: s}
	}
	return p.findAbroad(own, unit, tenant)
}

func (p *Proxy) findAbroad(own *table, unit, tenant []byte) found {
	t := own
	if own.own != "" {
		if own.tenants.get(tenant) != nil {
			return found{t: own} // it has buckets, of which unit names none that is placed
		}
		if t = p.global.table(); t == nil {
			return found{}
		}
		if s := t.seat(unit); s != nil {
			return found{t: t, seat: s}
		}
	}
	h := t.home(tenant)
	switch {
	case h != nil && own.own != "" && h.name == own.own:
		return found{t: t, between: true}
	case h != nil:
		return found{t: t, home: h.region}
	case t.tenants.get(tenant) != nil || len(unit) != len(tenant) && t.seat(tenant) != nil:
		return found{t: t}
	case len(unit) != len(tenant) && own.seat(tenant) != nil:
		return found{t: own}
	}
	return found{}
}

// answers tells whether anybody is known who answers for the unit.
func (f found) answers() bool { return f.seat != nil || f.home != nil }

// is tells whether up is where f leads to: the node, or one of the region's routers.
func (f found) is(up *http1.Upstream) bool {
	if f.home != nil {
		return up.Region() == string(f.home.name)
	}
	return f.seat != nil && f.seat.up == up
}

// tenantOf gives the tenant of a unit's name.
func tenantOf(unit []byte) []byte {
	tenant, _, _ := bytes.Cut(unit, dot) // no tenant's name holds one
	return tenant
}

// spot looks up where the tables place a unit.
func (p *Proxy) spot(unit []byte) spot {
	f := p.find(unit, tenantOf(unit))
	switch {
	case f.home != nil:
		return spot{placed: true, home: f.home}
	case f.between:
		return spot{placed: true, between: true}
	case f.seat == nil:
		return spot{}
	}
	u, ok := f.t.unit(unit)
	if !ok {
		return spot{}
	}
	s := spot{placed: true, up: f.t.nodes[u.node].up, epoch: u.epoch, promoting: u.promoting, mayMove: u.state == fsm.UnitMoving || u.promoting}
	leased := !f.t.nodes[u.node].info.Unleased
	for _, state := range u.each {
		s.mayMove = s.mayMove || leased && state == fsm.CopyInSync
	}
	return s
}
