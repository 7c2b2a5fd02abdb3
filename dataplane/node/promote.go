package node

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// lockAll locks units for a call that is about many, in one order for all calls.
func (l *unitLocks) lockAll(units []string) (unlock func()) {
	sorted := slices.Clone(units)
	slices.Sort(sorted)
	unlocks := make([]func(), 0, len(sorted))
	for _, u := range slices.Compact(sorted) {
		unlocks = append(unlocks, l.lock(u))
	}
	return func() {
		for _, u := range unlocks {
			u()
		}
	}
}

// holdOrByHand is hold for calls that an operator may make by hand, naming no holder,
// while the node holds no lease (spec §2.5).
func (r *request) holdOrByHand(body proto.Holder) error {
	_, named, err := r.holderOf(body)
	if err == nil && !named && (r.s.fence.lease == nil || !r.s.fence.lease.Current()) {
		r.by, r.byHand = r.s.store.Holder(), true
		return nil
	}
	return r.hold(body)
}

// promoteUnits is POST promote: the units of a list become primaries here.
func (r *request) promoteUnits() error {
	var body proto.Promote
	if err := r.objectUpTo(maxListBody, &body); err != nil {
		return err
	}
	names, err := namesOfItems(body.Tenants)
	if err != nil {
		return err
	}
	epoch, err := parseEpoch(body.Epoch)
	if err != nil {
		return err
	}
	defer r.s.changes.lockAll(names)()
	if err := r.holdOrByHand(body.Holder); err != nil {
		return err
	}
	ids := make([]store.UnitID, len(body.Tenants))
	for i, u := range body.Tenants {
		ids[i] = store.UnitID{Name: string(u.Unit), ID: uint64(u.ID)}
	}
	refused, err := r.hear(word{epoch: func(string) uint64 { return epoch }}, ids...)
	if err != nil {
		return err
	}
	answer := proto.Promoted{Promoted: []proto.PromotedUnit{}, Failed: []proto.FailedUnit{}}
	for i, p := range r.promote(r.s.context(r.began), epoch, ids, refused) {
		name := body.Tenants[i].Unit
		if p.err != nil {
			answer.Failed = append(answer.Failed, failedUnit(string(name), p.err))
			continue
		}
		answer.Promoted = append(answer.Promoted, proto.PromotedUnit{Tenant: name, Position: p.at.String()})
	}
	return r.json(200, answer)
}

// promoteUnit is POST tenants/<unit>/promote {"epoch"?,"id"?}.
func (r *request) promoteUnit(ctx context.Context, unit string) error {
	var body struct {
		Epoch string     `json:"epoch"`
		ID    fsm.UnitID `json:"id"`
		proto.Holder
	}
	if err := r.object(&body); err != nil {
		return err
	}
	epoch, err := parseEpoch(body.Epoch)
	if err != nil {
		return err
	}
	defer r.s.changes.lock(unit)()
	if err := r.holdOrByHand(body.Holder); err != nil {
		return err
	}
	id := store.UnitID{Name: unit, ID: uint64(body.ID)}
	refused, err := r.hear(word{epoch: func(string) uint64 { return epoch }}, id)
	if err != nil {
		return err
	}
	p := r.promote(ctx, epoch, []store.UnitID{id}, refused)[0]
	if p.err != nil {
		return p.err
	}
	r.position(p.at)
	return r.json(200, map[string]string{"promoted": unit, "position": p.at.String()})
}

func parseEpoch(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil || epoch == 0 || strconv.FormatUint(epoch, 10) != text {
		return 0, badRequest("epoch is a decimal number from 1, in a text: that of the entry that flipped the units")
	}
	return epoch, nil
}

func namesOfItems(items []proto.UnitItem) ([]string, error) {
	names := make([]string, len(items))
	for i, u := range items {
		if _, _, ok := u.Unit.Split(); !ok {
			return nil, badRequest("%q is not a unit's name", u.Unit)
		}
		names[i] = string(u.Unit)
	}
	return distinctNames(names)
}

func distinctNames(names []string) ([]string, error) {
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		if seen[n] {
			return nil, badRequest("the unit %s is named twice", n)
		}
		seen[n] = true
	}
	return names, nil
}

// failedUnit says in a list why a unit was not done.
func failedUnit(unit string, err error) proto.FailedUnit {
	e := failure(err)
	f := proto.FailedUnit{Tenant: fsm.UnitName(unit), Why: e.Text, Code: e.Code}
	if e.Code == codeInternal && e.Cause != nil {
		f.Why = e.Cause.Error() // an operator's, not a client's, to read
	}
	if left, ok := e.Fields["left_ms"].(int64); ok {
		f.LeftMS = left
	}
	return f
}

// promotion is what came of one unit.
type promotion struct {
	at  store.Position
	err error
}

// promote makes units primaries here at an epoch, each or with the reason why not,
// which is given for those that are refused; the caller has locked them. Epoch 0, by
// hand, is the next one of each unit. One durable write does it for all of them.
func (r *request) promote(ctx context.Context, epoch uint64, ids []store.UnitID, refused map[string]error) []promotion {
	s := r.s
	all := make([]promotion, len(ids))
	byEpoch := map[uint64][]int{} // one, but by hand
	for i, id := range ids {
		if all[i].err = refused[id.Name]; all[i].err != nil {
			continue
		}
		rec, err := s.store.Get(id.Name)
		at := epoch
		switch {
		case err != nil:
		case id.ID != 0 && rec.ID != id.ID:
			err = httpserve.Errorf(409, codeWrongID, "the unit %s that this node holds has another id, %d", id.Name, rec.ID)
		case rec.State == store.Active && epoch == 0:
			err = httpserve.Errorf(409, codeWrongState, "unit %s is the primary here already", id.Name)
		case rec.State == store.Active && rec.Epoch == epoch: // asked again
		case rec.State.IsCopy() && rec.Reader:
			err = httpserve.Errorf(409, codeWrongState, "unit %s is a read replica here, which is never promoted", id.Name)
		default:
			if at == 0 {
				at = rec.Epoch + 1
			}
			err = s.mayPromote(&rec)
		}
		if all[i].err = err; err == nil {
			byEpoch[at] = append(byEpoch[at], i)
		}
	}
	if len(ids) > 0 {
		s.point("promote.asked", ids[0].Name)
		defer s.point("promote.done", ids[0].Name)
	}
	for at, list := range byEpoch {
		r.promoteAt(ctx, at, ids, list, all)
	}
	return all
}

// mayPromote asks whether a promise forbids it, and has nothing promised any more.
func (s *Server) mayPromote(rec *store.Record) error {
	left := s.promises.Promoting(rec.Name, rec.State.IsCopy())
	if left <= 0 {
		return nil
	}
	e := httpserve.Errorf(503, proto.CodePromised, "this node has promised the primary of unit %s not to be promoted for another %d ms; ask again then", rec.Name, left.Milliseconds()+1)
	e.Fields = map[string]any{"left_ms": left.Milliseconds() + 1}
	e.RetryAfter = int((left + time.Second - 1) / time.Second)
	return e
}

func (r *request) promoteAt(ctx context.Context, epoch uint64, ids []store.UnitID, list []int, all []promotion) {
	s := r.s
	var units []store.UnitID
	fresh := make(map[string]bool, len(list))
	for _, i := range list {
		s.replica.Unfollow(ids[i].Name)
		units = append(units, ids[i])
		rec, err := s.store.Get(ids[i].Name) // one that is not there any more is refused below
		fresh[ids[i].Name] = err == nil && (rec.State != store.Active || rec.Epoch != epoch)
	}
	defer s.stayCopies(ids, list, all)
	if s.fence.lease != nil { // before they can be written
		named := epoch
		if r.byHand {
			named = 0 // the directory does not know of that branch
		}
		s.fence.lease.Promoted(slices.DeleteFunc(slices.Collect(maps.Keys(fresh)), func(u string) bool { return !fresh[u] }), named)
	}
	var news []string
	for j, err := range s.store.Promote(ctx, epoch, units) {
		name := units[j].Name
		s.fence.records.forget(name)
		p := &all[list[j]]
		if p.err = err; err != nil {
			s.log.Warn("unit was not promoted", "unit", name, "err", err)
			continue
		}
		mark, err := s.store.Mark(ctx, name)
		p.at, p.err = mark.Position, err
		s.promises.Forget(name)
		if fresh[name] {
			news = append(news, name)
		}
	}
	if len(news) == 0 {
		return
	}
	s.replica.Promoted(news)
	s.log.Info("units promoted", "units", len(news), "epoch", epoch)
}

// stayCopies has those that were not promoted follow on, and promise as before.
func (s *Server) stayCopies(ids []store.UnitID, list []int, all []promotion) {
	var copies []store.Record
	for _, i := range list {
		if all[i].err == nil {
			continue
		}
		if rec, err := s.store.Get(ids[i].Name); err == nil && rec.State.IsCopy() {
			s.promises.Followed(rec.Name)
			copies = append(copies, rec)
		}
	}
	if len(copies) == 0 {
		return
	}
	if err := s.replica.ResumeUnits(copies); err != nil {
		s.log.Error("copies that were not promoted do not follow until they are told to again", "units", len(copies), "err", err)
	}
}

// followUnits is POST follow: the units of a list follow another node here.
func (r *request) followUnits() error {
	var body proto.FollowUnits
	if err := r.objectUpTo(maxListBody, &body); err != nil {
		return err
	}
	items := make([]proto.UnitItem, len(body.Units))
	for i, u := range body.Units {
		items[i] = proto.UnitItem{Unit: u.Unit, ID: u.ID}
	}
	names, err := namesOfItems(items)
	if err != nil {
		return err
	}
	source, err := r.source(body.From, body.As, body.Token)
	if err != nil {
		return err
	}
	defer r.s.changes.lockAll(names)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	ids, epochs := make([]store.UnitID, len(body.Units)), make(map[string]uint64, len(body.Units))
	for i, u := range body.Units {
		if err := checkCopyKind(u.Kind); err != nil {
			return err
		}
		ids[i], epochs[string(u.Unit)] = store.UnitID{Name: string(u.Unit), ID: uint64(u.ID)}, u.Epoch
	}
	refused, err := r.hear(word{epoch: func(unit string) uint64 { return epochs[unit] }, makes: true, again: true}, ids...)
	if err != nil {
		return err
	}
	answer := proto.FollowingUnits{Following: []fsm.UnitName{}, Failed: []proto.FailedUnit{}}
	if err := r.s.kept.keepSource(source); err != nil {
		return err
	}
	for _, u := range body.Units {
		if err := refused[string(u.Unit)]; err != nil {
			answer.Failed = append(answer.Failed, failedUnit(string(u.Unit), err))
			continue
		}
		if err := r.s.followOne(r.s.context(r.began), string(u.Unit), uint64(u.ID), u.Epoch, store.CopyKind(u.Kind), source); err != nil {
			answer.Failed = append(answer.Failed, failedUnit(string(u.Unit), err))
			continue
		}
		answer.Following = append(answer.Following, u.Unit)
	}
	return r.json(200, answer)
}

// checkCopyKind refuses a kind of copy that there is not.
func checkCopyKind(k proto.CopyKind) error {
	switch store.CopyKind(k) {
	case store.CopyOrdinary, store.CopyTarget, store.CopyReader:
		return nil
	}
	return badRequest(`kind is "target", "reader" or left out, for a copy that may be promoted; there is no %q`, k)
}

// followUnit is POST tenants/<unit>/follow {"from","token"?,"as"?,"id"?,"epoch"?,"kind"?}.
func (r *request) followUnit(ctx context.Context, unit string) error {
	var body struct {
		From  string     `json:"from"`
		Token string     `json:"token"`
		As    string     `json:"as"`
		ID    fsm.UnitID `json:"id"`
		Epoch uint64     `json:"epoch"`

		Kind proto.CopyKind `json:"kind"`
		proto.Holder
	}
	if err := r.object(&body); err != nil {
		return err
	}
	if err := checkCopyKind(body.Kind); err != nil {
		return err
	}
	source, err := r.source(body.From, body.As, body.Token)
	if err != nil {
		return err
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	if err := r.hearOne(word{epoch: func(string) uint64 { return body.Epoch }, makes: true, again: true}, unit, uint64(body.ID)); err != nil {
		return err
	}
	if err := r.s.kept.keepSource(source); err != nil {
		return err
	}
	if err := r.s.followOne(ctx, unit, uint64(body.ID), body.Epoch, store.CopyKind(body.Kind), source); err != nil {
		return err
	}
	return r.json(200, map[string]string{"following": unit, "from": source.from})
}

// source is whom units are to follow, and what is shown there.
type source struct{ from, as, token string }

func (r *request) source(from, as, token string) (source, error) {
	s := source{from, as, token}
	if s.as == "" {
		if s.as = r.s.kept.address(); s.as == "" {
			s.as = "http://" + r.s.Addr().String()
		}
	}
	if s.token == "" {
		s.token = r.s.cfg.ReplicationToken
	}
	for _, addr := range []string{s.from, s.as} {
		if !isAddress(addr) {
			return s, badRequest("from and as are addresses, http://host:port or https://host:port; %q is none", addr)
		}
	}
	if s.from == s.as {
		return s, badRequest("a node does not follow itself")
	}
	return s, nil
}

// followOne makes a unit a copy here, points it at another source, or makes the copy
// one of another kind.
func (s *Server) followOne(ctx context.Context, unit string, id, epoch uint64, kind store.CopyKind, from source) error {
	rec, err := s.store.Get(unit)
	switch {
	case errors.Is(err, store.ErrUnknownUnit):
	case err != nil:
		return err
	case id != 0 && rec.ID != id:
		return httpserve.Errorf(409, codeWrongID, "the unit %s that this node holds has another id, %d", unit, rec.ID)
	case !rec.State.IsCopy() && epoch != 0 && epoch <= rec.Epoch:
		// Sent before the entry that made it a primary here: its branch would be
		// given up for the one that it came from.
		return httpserve.Errorf(409, codeWrongState, "unit %s was promoted here at epoch %d: it does not follow a branch of epoch %d, which is older; the call is late", unit, rec.Epoch, epoch)
	case rec.State == store.Active && s.fence.lease != nil && s.fence.lease.MayWrite(unit, rec.ID) == nil:
		return httpserve.Errorf(409, codeWrongState, "unit %s is written here under a lease that names it: it cannot follow", unit)
	}
	if err == nil && (!rec.State.IsCopy() || kind == store.CopyTarget) {
		s.streams.EndUnit(streamKey(&rec)) // it is not read here any more
	}
	s.promises.Followed(unit)
	err = s.replica.Follow(ctx, unit, id, epoch, kind, from.from, from.as, from.token)
	s.fence.records.forget(unit)
	if err != nil {
		return err
	}
	s.log.Info("unit follows", "unit", unit, "from", from.from, "kind", cmp.Or(string(kind), "copy"))
	return nil
}
