package node

import (
	"errors"
	"net/url"

	"domicile/dataplane/node/replica"
	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/proto"
)

// units is GET units: what the node holds, or of the units named by ?unit=, more than
// once where there are several. A unit that cannot be read is listed with the reason; it
// does not hide the others. No unit is opened for it.
func (r *request) units() error {
	if err := r.hearReader(); err != nil {
		return err
	}
	records, err := r.wanted()
	if err != nil {
		return err
	}
	aside, err := r.s.store.AsideFiles()
	if err != nil {
		return err
	}
	list := make([]proto.HeldUnit, 0, len(records))
	for i := range records {
		u, ok := r.heldUnit(&records[i])
		if !ok {
			continue
		}
		for _, f := range aside[records[i].Name] {
			u.Aside = append(u.Aside, f.Path)
		}
		list = append(list, u)
	}
	return r.json(200, list)
}

// wanted gives the records of the units that are asked for.
func (r *request) wanted() ([]store.Record, error) {
	if !r.ctx.QueryArgs().Has("unit") {
		return r.s.store.List("", 0)
	}
	var records []store.Record
	for _, name := range r.ctx.QueryArgs().PeekMulti("unit") {
		if _, _, ok := fsm.UnitName(name).Split(); !ok {
			return nil, badRequest("unit: %q is not a unit's name", name)
		}
		rec, err := r.s.store.Get(string(name))
		if errors.Is(err, store.ErrUnknownUnit) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

func (r *request) heldUnit(rec *store.Record) (u proto.HeldUnit, ok bool) {
	u = proto.HeldUnit{Unit: fsm.UnitName(rec.Name), ID: fsm.UnitID(rec.ID), State: string(rec.State), Role: roleOf(rec), From: rec.From}
	if (rec.State == store.Active || rec.State == store.Pinned) && (r.s.store.Frozen(rec.Name) || r.s.replica.Targets(rec.Name)) {
		u.State = string(store.Sending) // it is on its way to another node
	}
	if rec.State.IsCopy() {
		u.Kind = proto.CopyKind(rec.Kind())
	}
	if to := parsePlacement(rec.Destination); to != nil {
		u.Destination = &proto.Placement{Node: fsm.NodeName(to.Node), Addr: to.Addr}
	}
	if mark, err := r.s.store.Mark(r.s.base, rec.Name); errors.Is(err, store.ErrUnknownUnit) {
		return u, false
	} else if err != nil {
		u.Error = err.Error()
	} else {
		u.Position = mark.Position.String()
	}
	bytes, err := r.s.store.Bytes(rec.Name)
	if u.Bytes = bytes; err != nil && u.Error == "" {
		u.Error = err.Error()
	}
	if damage := r.s.store.Damage(rec.Name); damage != nil {
		u.Damaged, u.Error = true, damage.Error()
	}
	st := r.s.replica.Status(rec.Name)
	if u.Problem = st.Error; u.Error == "" {
		u.Error = st.Error
	}
	u.Follows = st.State == replica.StateFollowing
	if st.Image != nil {
		u.Image = &proto.ImageProgress{Bytes: st.Image.Bytes, Total: st.Image.Total}
	}
	if st.Lost != nil {
		u.Lost = &proto.PositionRange{From: st.Lost.From.String(), To: st.Lost.To.String()}
	}
	return u, true
}

// isAddress tells whether a text is a node's address as package replica dials it.
func isAddress(addr string) bool {
	u, err := url.Parse(addr)
	return err == nil && len(addr) < 512 && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.Path == "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}
