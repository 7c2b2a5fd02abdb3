package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// How long a freeze may be asked for, and is where it is not said.
const (
	maxFreeze     = 10 * time.Minute
	defaultFreeze = 10 * time.Second
)

// putUnit is PUT tenants/<unit>. The same call again, its answer lost, is answered as
// the first: the id says that it is the same unit.
func (r *request) putUnit(ctx context.Context, unit string) error {
	var body proto.MakeUnit
	if err := r.object(&body); err != nil {
		return err
	}
	if body.ID == 0 {
		return badRequest("id, the unit's number in the directory, is needed")
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	if _, err := r.s.store.Get(unit); errors.Is(err, store.ErrUnknownUnit) {
		if err := r.hearOne(word{makes: true}, unit, 0); err != nil {
			return err
		}
	}
	rec, err := r.s.store.Create(ctx, unit, uint64(body.ID))
	r.s.fence.records.forget(unit)
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrWrongID) {
		return r.unitExists(unit)
	}
	if err != nil {
		return err
	}
	if rec.State != store.Active {
		return r.unitExists(unit)
	}
	r.s.log.Info("unit created", "unit", unit)
	return r.json(201, map[string]string{"created": unit})
}

func (r *request) unitExists(unit string) error {
	e := httpserve.Errorf(409, codeUnitExists, "this node holds a unit %s already", unit)
	e.Fields = map[string]any{"unit": unit}
	if rec, err := r.s.store.Get(unit); err == nil {
		e.Fields["id"], e.Fields["state"] = rec.ID, string(rec.State)
	}
	return e
}

// wrongID is the answer to a call that is about another unit of the same name.
func (r *request) wrongID(unit string) error {
	e := httpserve.Errorf(409, codeWrongID, "the unit %s that this node holds has another id: the call is about a former one", unit)
	if rec, err := r.s.store.Get(unit); err == nil {
		e.Fields = map[string]any{"unit": unit, "id": rec.ID}
	}
	return e
}

// deleteUnit is DELETE tenants/<unit>.
func (r *request) deleteUnit(ctx context.Context, unit string) error {
	id, err := r.unitIDHeader()
	if err != nil {
		return err
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(proto.Holder{}); err != nil {
		return err
	}
	rec, err := r.s.store.Get(unit)
	wrong := err == nil && id != 0 && id != rec.ID
	if wrong || errors.Is(err, store.ErrUnknownUnit) {
		if err := r.removes(); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case wrong:
		return r.wrongID(unit)
	}
	if err := r.hearOne(word{removes: true}, unit, id); err != nil {
		return err
	}
	copied := string(r.ctx.Request.Header.Peek(proto.HeaderRemoval)) == proto.RemovalCopy
	if copied && rec.State == store.Active && r.s.fence.lease != nil && r.s.fence.lease.MayWrite(unit, rec.ID) == nil {
		return httpserve.Errorf(409, codeWrongState, "unit %s is written here under a lease that names it: it is no copy to be removed", unit)
	}
	if copied {
		if err := r.s.unused(ctx, unit); err != nil {
			return err
		}
	}
	r.s.streams.EndUnit(streamKey(&rec))
	if copied {
		text := string(r.ctx.Request.Header.Peek(proto.HeaderLives))
		if err := r.s.keepAside(ctx, &rec, text, r.ctx.Response.Header.Set); err != nil {
			return err
		}
	}
	if err := r.removes(); err != nil {
		return err
	}
	r.s.replica.Unfollow(unit)
	remove := r.s.store.Delete
	if copied {
		remove = r.s.store.Leave
	}
	err = remove(ctx, unit, rec.ID)
	r.s.fence.records.forget(unit)
	if err != nil {
		return err
	}
	r.s.replica.Ended([]string{unit})
	r.s.promises.Forget(unit)
	// One that was begun between the two lines above holds nothing any more.
	r.s.streams.EndUnit(streamKey(&rec))
	r.s.log.Info("unit deleted", "unit", unit)
	r.ctx.Response.SetStatusCode(204)
	return nil
}

// removalPatience is how long a removal waits for what is read of the unit.
const removalPatience = time.Second

// unused waits until nothing is read of a unit that is to be removed though it lives on:
// nobody's answer is cut for that (M9). Whoever asks is to ask again otherwise.
func (s *Server) unused(ctx context.Context, unit string) error {
	patience, cancel := context.WithTimeout(ctx, removalPatience)
	defer cancel()
	if err := s.store.AwaitUnused(patience, unit); err != nil {
		return httpserve.Errorf(503, codeInUse, "unit %s is being read here still: it is not removed yet; ask again", unit)
	}
	return nil
}

// keepAside keeps what the node holds of a unit that was its own to write, that it
// does not follow, and that is removed because it lives on elsewhere: what only this
// node has must not go unseen (L7). Where the unit's history at its
// primary, as the text says that it lives on there, goes through all that this node has,
// nothing is kept. Of one that is damaged the files are kept as they are, also if it was
// released.
func (s *Server) keepAside(ctx context.Context, rec *store.Record, text string, header func(name, value string)) error {
	switch rec.State {
	case store.Following, store.Receiving, store.Garbage:
		return nil
	case store.Active, store.Pinned, store.Sending, store.Sent:
	}
	if path, damaged, err := s.store.KeepDamaged(ctx, rec.Name); err != nil || damaged {
		if path != "" {
			header(proto.HeaderAside, filepath.Base(path))
		}
		return err
	}
	p, perr := s.store.Position(ctx, rec.Name)
	if perr == nil && p.Seq == 0 {
		return nil
	}
	if rec.State == store.Sent {
		// The node that it was given to had all of it, but may have been lost before it
		// was promoted: then the unit lives on in another copy.
		if text == "" || perr != nil {
			return nil
		}
		if had, err := lives(text, p); had || err != nil {
			return err
		}
	}
	u, release, err := s.store.Acquire(ctx, rec.Name)
	if err != nil {
		return err
	}
	defer release()
	if _, err := u.Freeze(ctx, maxFreeze); err != nil { // nothing is written behind what is kept
		return err
	}
	had, err := lives(text, u.Position())
	if had || err != nil {
		if err != nil {
			u.Thaw()
		}
		return err
	}
	path, m, err := s.store.SetAside(ctx, rec.Name)
	if err != nil {
		u.Thaw()
		return err
	}
	s.log.Warn("unit removed, its branch is kept aside", "unit", rec.Name, "position", m.Position.String(), "file", path)
	header(proto.HeaderAside, filepath.Base(path))
	return nil
}

// freeze is POST freeze {"ms"}.
func (r *request) freeze(ctx context.Context, unit string) error {
	var body struct {
		MS *int64 `json:"ms"`
		proto.Holder
	}
	if err := r.object(&body); err != nil {
		return err
	}
	d := defaultFreeze
	if body.MS != nil {
		if *body.MS < 1 || *body.MS > maxFreeze.Milliseconds() {
			return badRequest("ms is 1 to %d", maxFreeze.Milliseconds())
		}
		d = time.Duration(*body.MS) * time.Millisecond
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	if err := r.hearOne(word{}, unit, 0); err != nil {
		return err
	}
	u, release, err := r.s.store.Acquire(ctx, unit)
	if err != nil {
		return err
	}
	defer release()
	rec := u.Record()
	if err := mayHandOver(&rec); err != nil {
		return err
	}
	p, err := u.Freeze(ctx, d)
	if err != nil {
		return err
	}
	r.s.streams.EndUnit(streamKey(&rec)) // those whose transactions the freeze has ended
	r.s.log.Info("unit frozen", "unit", unit, "position", p.String(), "ms", d.Milliseconds())
	return r.json(200, map[string]any{"frozen": true, "position": p.String()})
}

// mayHandOver lets only a unit that is written here be frozen or given up.
func mayHandOver(rec *store.Record) error {
	switch rec.State {
	case store.Active, store.Pinned, store.Sending:
		return nil
	case store.Following, store.Sent, store.Receiving, store.Garbage:
	}
	e := httpserve.Errorf(409, codeWrongState, "unit %s is %s here: it is not written, so it cannot be handed over", rec.Name, rec.State)
	e.Fields = map[string]any{"state": string(rec.State)}
	return e
}

// thaw is POST thaw {"job"?}: ends a freeze, and undoes the release that the job has
// made. Without a holder it is an operator's by hand, taken while no lease is held.
func (r *request) thaw(ctx context.Context, unit string) error {
	var body struct {
		Job string `json:"job"`
		proto.Holder
	}
	if err := r.object(&body); err != nil {
		return err
	}
	defer r.s.changes.lock(unit)()
	if err := r.holdOrByHand(body.Holder); err != nil {
		return err
	}
	if err := r.hearOne(word{thaws: body.Job}, unit, 0); err != nil {
		return err
	}
	if err := r.s.thawOne(ctx, unit, 0, body.Job); err != nil {
		return err
	}
	return r.json(200, map[string]bool{"frozen": false})
}

func jobConflict(rec *store.Record, why string) error {
	e := httpserve.Errorf(409, codeJobConflict, "unit %s: %s", rec.Name, why)
	e.Fields = map[string]any{"state": string(rec.State)}
	if rec.Job != "" {
		e.Fields["job"] = rec.Job
	}
	return e
}

// placement is where a unit went.
type placement struct {
	Node string `json:"node"`
	Addr string `json:"addr"`
}

// parsePlacement reads what is kept in a record: "<node> <addr>".
func parsePlacement(text string) *placement {
	node, addr, ok := strings.Cut(text, " ")
	if !ok {
		return nil
	}
	return &placement{node, addr}
}

func (p *placement) valid() bool {
	return validName([]byte(p.Node)) && p.Addr != "" && len(p.Addr) < 512 && !strings.ContainsAny(p.Addr, " \t\r\n")
}

// release is POST release {"job","position","destination"}: a frozen unit is given up
// for good. From the moment it is recorded nothing but the directory makes this node
// write it again (clause 2 of giving a unit up).
func (r *request) release(ctx context.Context, unit string) error {
	var body struct {
		Job         string    `json:"job"`
		Position    string    `json:"position"`
		Destination placement `json:"destination"`
		proto.Holder
	}
	if err := r.object(&body); err != nil {
		return err
	}
	p, err := store.ParsePosition(body.Position)
	if err != nil || body.Job == "" || len(body.Job) > 128 || !body.Destination.valid() {
		return badRequest(`release needs "job" (a text), "position" (<epoch>:<seq>) and "destination" {"node","addr"}`)
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	if err := r.hearOne(word{job: body.Job}, unit, 0); err != nil {
		return err
	}
	u, free, err := r.s.store.Acquire(ctx, unit)
	if err != nil {
		return err
	}
	defer free()
	rec, err := r.s.giveUp(ctx, u, body.Job, p, &body.Destination)
	if err != nil {
		return err
	}
	r.s.streams.EndUnit(streamKey(&rec))
	r.s.replica.Ended([]string{unit})
	r.s.log.Info("unit released", "unit", unit, "position", p.String(), "job", body.Job, "node", body.Destination.Node)
	return r.json(200, map[string]any{"released": true, "position": u.Position().String()})
}

// giveUp records that the unit was given up. The freeze is made to outlast the
// recording: thawing in between would let a write in behind the final position.
func (s *Server) giveUp(ctx context.Context, u *store.Unit, job string, p store.Position, to *placement) (store.Record, error) {
	rec := u.Record()
	if rec.State == store.Sent {
		if rec.Job == job && u.Position() == p {
			return rec, nil
		}
		return rec, jobConflict(&rec, "it was given up already, by another job or at another position")
	}
	if err := mayHandOver(&rec); err != nil {
		return rec, err
	}
	left, final := u.Frozen()
	switch {
	case left <= 0:
		return rec, jobConflict(&rec, "it has thawed: freeze it again")
	case final != p:
		return rec, jobConflict(&rec, "it stands at "+final.String())
	}
	again, err := u.Freeze(ctx, maxFreeze)
	if err != nil {
		return rec, err
	}
	if err := u.AwaitCalls(ctx); err != nil {
		u.Thaw()
		return rec, err
	}
	if again != p {
		u.Thaw() // it had thawed just before, and was written
		return rec, jobConflict(&rec, "it stands at "+again.String())
	}
	updated, err := s.store.Update(ctx, u.Name(), func(rec *store.Record) error {
		rec.State, rec.Job, rec.Destination = store.Sent, job, to.Node+" "+to.Addr
		return nil
	})
	s.fence.records.forget(u.Name())
	if err != nil {
		// So it stays frozen; asking again tells.
		return rec, fmt.Errorf("%w: %w", errRecordUnknown, err)
	}
	s.gaveUp.Store(u.Name(), job)
	s.watchers.end(u.Name(), misdirected(&updated, updated.Destination, "it was given to another node; connect again"))
	return updated, nil
}

// errRecordUnknown: a record was being written when the disk failed.
var errRecordUnknown = errors.New("whether it was recorded that the unit was given up is not known")

// unitPosition is GET position.
func (r *request) unitPosition(ctx context.Context, unit string) error {
	p, err := r.s.store.Position(ctx, unit)
	if err != nil {
		return err
	}
	rec, err := r.s.store.Get(unit)
	if err != nil {
		return err
	}
	lineage, err := r.s.store.Lineage(unit)
	if err != nil {
		return err
	}
	r.position(p)
	answer := proto.UnitPosition{Position: p.String(), ID: fsm.UnitID(rec.ID), Branches: []proto.Branch{}}
	for _, b := range lineage {
		answer.Branches = append(answer.Branches, proto.Branch(b))
	}
	return r.json(200, answer)
}

// lives reports whether the history of a unit at its primary, as HeaderLives tells of it,
// goes through p: whoever holds the unit at p holds nothing that the primary lacks, as
// two branches share no epoch (architecture §3.7.5).
func lives(text string, p store.Position) (bool, error) {
	var at []store.Position
	for _, word := range proto.ParseLives(text) {
		q, err := store.ParsePosition(word)
		if err != nil {
			return false, badRequest("%s is <position> <epoch>:<from>…: %v", proto.HeaderLives, err)
		}
		at = append(at, q)
	}
	if len(at) < 2 {
		return false, nil
	}
	var lineage store.Lineage
	for _, b := range at[1:] {
		lineage = append(lineage, store.Branch{Epoch: b.Epoch, From: b.Seq})
	}
	return p.Seq <= at[0].Seq && lineage.Has(p), nil
}
