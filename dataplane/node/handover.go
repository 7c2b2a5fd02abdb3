package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// handovers is how many units are given up at once.
const handovers = 64

// handOver is POST handover: freeze, wait for the destination, release, for each unit
// of a list, for one job (architecture §3.6.1 and .2). Asked again for the job it
// answers what it has released.
func (r *request) handOver() error {
	var body proto.Handover
	if err := r.objectUpTo(maxListBody, &body); err != nil {
		return err
	}
	names, err := checkHandover(body.Job, body.Units)
	if err != nil {
		return err
	}
	if body.MS < 1 || body.MS > maxFreeze.Milliseconds() {
		return badRequest("ms is 1 to %d", maxFreeze.Milliseconds())
	}
	limit := time.Duration(body.MS) * time.Millisecond
	ctx, cancel := context.WithTimeout(r.s.base, limit)
	defer cancel()
	defer r.s.changes.lockAll(names)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	refused, err := r.hear(word{job: body.Job}, handedOver(body.Units)...)
	if err != nil {
		return err
	}
	answer := proto.HandedOver{Released: []proto.PromotedUnit{}, Failed: []proto.FailedUnit{}}
	r.s.each(body.Units, func(u *proto.HandoverUnit) (store.Position, error) {
		if err := refused[string(u.Unit)]; err != nil {
			return store.Position{}, err
		}
		p, err := r.s.handOverOne(ctx, &body, limit, u)
		if errors.Is(err, store.ErrDamaged) {
			return r.s.giveUpDamaged(ctx, &body, u, err)
		}
		return p, err
	}, func(u *proto.HandoverUnit, p store.Position, err error) {
		if err != nil {
			answer.Failed = append(answer.Failed, failedUnit(string(u.Unit), err))
			return
		}
		answer.Released = append(answer.Released, proto.PromotedUnit{Tenant: u.Unit, Position: p.String()})
	})
	r.s.log.Info("units handed over", "job", body.Job, "released", len(answer.Released), "failed", len(answer.Failed))
	return r.json(200, answer)
}

func handedOver(units []proto.HandoverUnit) []store.UnitID {
	ids := make([]store.UnitID, len(units))
	for i, u := range units {
		ids[i] = store.UnitID{Name: string(u.Unit), ID: uint64(u.ID)}
	}
	return ids
}

func checkHandover(job string, units []proto.HandoverUnit) ([]string, error) {
	if job == "" || len(job) > 128 {
		return nil, badRequest("job, the number of the work, is needed")
	}
	items := make([]proto.UnitItem, len(units))
	for i, u := range units {
		items[i] = proto.UnitItem{Unit: u.Unit}
		if to := (placement{string(u.Node), u.Addr}); !to.valid() {
			return nil, badRequest("unit %s: node and addr, where it goes, are needed", u.Unit)
		}
	}
	return namesOfItems(items)
}

// each does the units of a list, some at once, and tells of them one after another.
func (s *Server) each(units []proto.HandoverUnit, do func(*proto.HandoverUnit) (store.Position, error), done func(*proto.HandoverUnit, store.Position, error)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	turns := make(chan struct{}, handovers)
	for i := range units {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			p, err := do(&units[i])
			mu.Lock()
			defer mu.Unlock()
			done(&units[i], p, err)
		})
	}
	wg.Wait()
}

func (s *Server) point(label, unit string) {
	if s.cfg.Point != nil {
		_ = s.cfg.Point(label, unit) // nothing that fails comes after it
	}
}

// knowsAll refuses to give up a unit of which this node may have lost what its copies
// had acknowledged: to have what this node has is not enough for a destination then.
func (s *Server) knowsAll(rec *store.Record) error {
	if s.fence.lease == nil || s.fence.records.compared(rec.Name, s.fence.compared) {
		return nil
	}
	return httpserve.Errorf(503, codeUnreplicated, "unit %s is not given up: this node has started and has not compared it with its copies yet, which may have more than its destination; try again", rec.Name)
}

func (s *Server) handOverOne(ctx context.Context, call *proto.Handover, limit time.Duration, to *proto.HandoverUnit) (p store.Position, err error) {
	name, job, forced := string(to.Unit), call.Job, call.Forced
	rec, err := s.store.Get(name)
	if err != nil {
		return p, err
	}
	if to.ID != 0 && rec.ID != uint64(to.ID) {
		return p, httpserve.Errorf(409, codeWrongID, "the unit %s that this node holds has another id, %d", name, rec.ID)
	}
	u, release, err := s.store.Acquire(ctx, name)
	if err != nil {
		return p, err
	}
	defer release()
	if rec.State == store.Sent && rec.Job == job {
		return u.Mark().Position, nil
	}
	if rec.State == store.Sent {
		return p, jobConflict(&rec, "it was given up already, by another job")
	}
	if err := mayHandOver(&rec); err != nil {
		return p, err
	}
	if call.Unproven {
		if err := s.knowsAll(&rec); err != nil {
			return p, err
		}
	}
	defer func() {
		if err != nil && !errors.Is(err, errRecordUnknown) {
			u.Thaw() // at once: the deadline is for a node or a leader that stands still
		}
	}()
	if p, err = u.Freeze(ctx, limit); err != nil {
		return p, err
	}
	s.streams.EndUnit(streamKey(&rec)) // those whose transactions the freeze has ended
	s.point("handover.frozen", name)
	forced = forced && s.store.Damage(name) != nil // as giveUpDamaged
	patience, cancel := ctx, func() {}
	if forced {
		patience, cancel = context.WithTimeout(ctx, limit/4)
	}
	defer cancel()
	if err := s.replica.WaitHeld(patience, name, to.Addr, p); err != nil && !forced {
		return p, &httpserve.Error{Status: 503, Code: codeUnreplicated, Cause: err,
			Text: fmt.Sprintf("unit %s is written here again: its destination %s did not have its last position %s in time", name, to.Node, p)}
	}
	s.point("handover.held", name)
	if _, err = s.giveUp(ctx, u, job, p, &placement{string(to.Node), to.Addr}); err != nil {
		return p, err
	}
	s.point("handover.given", name)
	s.streams.EndUnit(streamKey(&rec))
	s.replica.Ended([]string{name})
	return p, nil
}

// giveUpDamaged gives up a unit whose file cannot be opened: nobody writes it here, and
// its destination has what was acknowledged, as far as this process knows of any; what
// an earlier one has acknowledged a copy in sync has, under --ack replica, and is given
// to no other. Forced: an operator's word that the destination is to be taken as it is.
func (s *Server) giveUpDamaged(ctx context.Context, call *proto.Handover, to *proto.HandoverUnit, damage error) (store.Position, error) {
	name, job, forced := string(to.Unit), call.Job, call.Forced
	at, _ := s.replica.Acknowledged(name)
	rec, err := s.store.Get(name)
	if err != nil || rec.State == store.Sent && rec.Job == job { // asked again
		return at, err
	}
	if call.Unproven {
		if err := s.knowsAll(&rec); err != nil {
			return at, err
		}
		if at.IsZero() {
			return at, &httpserve.Error{Status: 503, Code: codeUnreplicated, Cause: damage,
				Text: fmt.Sprintf("unit %s is damaged here, and up to where it was acknowledged is not known: it is given only to a copy in sync", name)}
		}
	}
	if !forced && !at.IsZero() {
		if err := s.replica.WaitHeld(ctx, name, to.Addr, at); err != nil {
			return at, &httpserve.Error{Status: 503, Code: codeUnreplicated, Cause: err,
				Text: fmt.Sprintf("unit %s is damaged here, and its destination %s did not have what was acknowledged, %s, in time; force takes it as it is", name, to.Node, at)}
		}
	}
	_, err = s.store.GiveUpDamaged(ctx, name, func(rec *store.Record) error {
		if rec.State == store.Sent {
			return jobConflict(rec, "it was given up already, by another job")
		}
		if err := mayHandOver(rec); err != nil {
			return err
		}
		rec.State, rec.Job, rec.Destination = store.Sent, job, string(to.Node)+" "+to.Addr
		return nil
	})
	s.fence.records.forget(name)
	if err != nil {
		return at, err
	}
	s.streams.EndUnit(streamKey(&rec))
	s.watchers.end(name, misdirected(&rec, string(to.Node)+" "+to.Addr, "it was given to another node; connect again"))
	s.replica.Ended([]string{name})
	s.log.Warn("unit given up unread: its file is damaged", "unit", name, "job", job, "node", string(to.Node), "acknowledged", at.String(), "forced", forced, "err", damage)
	return at, nil
}

// thawUnits is POST thaw: what a job froze or gave up is this node's again.
func (r *request) thawUnits() error {
	var body proto.Thaw
	if err := r.objectUpTo(maxListBody, &body); err != nil {
		return err
	}
	names, err := checkThaw(body.Job, body.Units)
	if err != nil {
		return err
	}
	defer r.s.changes.lockAll(names)()
	if err := r.holdOrByHand(body.Holder); err != nil {
		return err
	}
	refused, err := r.hear(word{thaws: body.Job}, handedOver(body.Units)...)
	if err != nil {
		return err
	}
	ctx := r.s.context(r.began)
	answer := proto.Thawed{Thawed: []fsm.UnitName{}, Failed: []proto.FailedUnit{}}
	for _, u := range body.Units {
		err := refused[string(u.Unit)]
		if err == nil {
			err = r.s.thawOne(ctx, string(u.Unit), uint64(u.ID), body.Job)
		}
		if err != nil {
			answer.Failed = append(answer.Failed, failedUnit(string(u.Unit), err))
			continue
		}
		answer.Thawed = append(answer.Thawed, u.Unit)
	}
	return r.json(200, answer)
}

func checkThaw(job string, units []proto.HandoverUnit) ([]string, error) {
	if job == "" || len(job) > 128 {
		return nil, badRequest("job, the number of the work, is needed")
	}
	items := make([]proto.UnitItem, len(units))
	for i, u := range units {
		items[i] = proto.UnitItem{Unit: u.Unit}
	}
	return namesOfItems(items)
}

// thawOne ends a freeze, and undoes the release that the job has made. The caller has
// locked the unit.
func (s *Server) thawOne(ctx context.Context, unit string, id uint64, job string) error {
	rec, err := s.store.Get(unit)
	if err != nil {
		return err
	}
	if id != 0 && rec.ID != id {
		return httpserve.Errorf(409, codeWrongID, "the unit %s that this node holds has another id, %d", unit, rec.ID)
	}
	was := false
	_, err = s.store.Update(ctx, unit, func(rec *store.Record) error {
		if rec.State != store.Sent {
			return nil
		}
		if job == "" || job != rec.Job {
			return jobConflict(rec, "it was given up by another job than the one that would take it back")
		}
		rec.State, rec.Job, rec.Destination, was = store.Active, "", "", true
		return nil
	})
	s.fence.records.forget(unit)
	if err != nil {
		return err
	}
	// Nobody has written it meanwhile: what this process released it still has. What
	// another one released, before a restart, is compared with its copies first.
	if by, here := s.gaveUp.LoadAndDelete(unit); was && here && by == job {
		s.replica.Promoted([]string{unit})
	}
	u, release, err := s.store.Acquire(ctx, unit)
	if errors.Is(err, store.ErrDamaged) {
		return nil // one that cannot be opened is not frozen either
	}
	if err != nil {
		return err
	}
	defer release()
	if u.Thaw() || was {
		s.log.Info("unit thawed", "unit", unit)
	}
	return nil
}
