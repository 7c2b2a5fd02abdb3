package node

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// What a leader says of a unit may arrive late, twice or out of order. A newer
// leader's word is known by its term (holder.go); within a term by the numbers that
// the leader gives to its calls, and for senders that number none by what the calls
// are about: the epoch of a branch, the job. The node keeps the newest of each on
// disk and refuses what is older, with no effect (I5, architecture §3.6.5).

// word is what a call says of its units, beside its number.
type word struct {
	epoch   func(unit string) uint64 // of the branch to be followed or begun; nil, or 0: none is named
	job     string                   // gives the units up
	thaws   string                   // job that is undone
	makes   bool                     // makes a unit that is not held
	again   bool                     // and would make again one that was removed
	removes bool                     // removes it: what is kept of it goes too (request.removes)
}

// callNumber is the number that the leader gave to the call, 0 where it has none.
func (r *request) callNumber() (uint64, error) {
	text := string(r.ctx.Request.Header.Peek(proto.HeaderCall))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, badRequest("%s: a number from 1 is wanted", proto.HeaderCall)
	}
	return n, nil
}

// hear takes in what a call says of units, durably, before anything is done about
// it. Those of which the node was told something newer are refused, each with what is
// known of it. The caller has locked the units, and hold has admitted the call. Units
// that are not held, or have another id, are for the caller to refuse.
func (r *request) hear(w word, ids ...store.UnitID) (refused map[string]error, err error) {
	number, err := r.callNumber()
	if err != nil {
		return nil, err
	}
	absent, err := r.s.store.ToldAbsent(r.by)
	if err != nil {
		return nil, err
	}
	var units []string
	late := make(map[string]error)
	held := make(map[string]store.Record)
	epochs := make(map[string]uint64)
	for _, id := range ids {
		rec, err := r.s.store.Get(id.Name)
		switch {
		case errors.Is(err, store.ErrUnknownUnit) && w.again && number != 0 && number < absent.Call:
			late[id.Name] = staleCall(id.Name, nil, absent.Call)
			continue
		case errors.Is(err, store.ErrUnknownUnit) && w.makes:
		case err != nil, id.ID != 0 && rec.ID != id.ID:
			continue
		default:
			held[id.Name] = rec
		}
		units = append(units, id.Name)
		if w.epoch != nil {
			epochs[id.Name] = w.epoch(id.Name)
		}
	}
	refused, err = r.s.store.Tell(r.by, units, func(unit string, t *store.Told) error {
		var rec *store.Record
		if have, ok := held[unit]; ok {
			rec = &have
		}
		return w.heard(unit, rec, number, epochs[unit], t)
	})
	for unit, why := range late {
		refused[unit] = why
	}
	return refused, err
}

// heard is what a unit was told, with this call; or why it is refused.
func (w *word) heard(unit string, rec *store.Record, number, epoch uint64, t *store.Told) error {
	switch {
	case number != 0 && number < t.Call:
		return staleCall(unit, rec, t.Call)
	case epoch != 0 && epoch < t.Epoch:
		e := httpserve.Errorf(409, codeEpochPassed, "unit %s was told here of the branch of epoch %d: what was sent for epoch %d is late", unit, t.Epoch, epoch)
		e.Fields = fields(rec, map[string]any{"unit": unit, "epoch": t.Epoch})
		return e
	case w.job != "" && t.Thawed != "" && !newerJob(w.job, t.Thawed):
		e := httpserve.Errorf(409, codeJobConflict, "unit %s: job %s was undone here: it is not frozen or given up for job %s any more", unit, t.Thawed, w.job)
		e.Fields = fields(rec, map[string]any{"unit": unit, "thawed": t.Thawed})
		return e
	}
	if w.removes {
		return nil
	}
	t.Call, t.Epoch = max(t.Call, number), max(t.Epoch, epoch)
	if w.thaws != "" && (t.Thawed == "" || newerJob(w.thaws, t.Thawed)) {
		t.Thawed = w.thaws
	}
	return nil
}

// hearOne is hear for a call about one unit.
func (r *request) hearOne(w word, unit string, id uint64) error {
	refused, err := r.hear(w, store.UnitID{Name: unit, ID: id})
	if err != nil {
		return err
	}
	return refused[unit]
}

// removes notes that a unit is removed, or not held, by a call: a call to follow that
// was sent before it makes no unit any more. It is kept for all such units together:
// one that is refused for another's sake is sent again under a new number. Creating
// has no such second try; what a late one leaves is found by its job (fsm.StepUndo).
func (r *request) removes() error {
	number, err := r.callNumber()
	if err != nil || number == 0 {
		return err
	}
	return r.s.store.TellAbsent(r.by, number)
}

// newerJob reports whether a job came after another. Jobs of the directory are
// numbers in their order; of others it is only known whether they are the same.
func newerJob(job, than string) bool {
	a, err1 := strconv.ParseUint(job, 10, 64)
	b, err2 := strconv.ParseUint(than, 10, 64)
	if err1 != nil || err2 != nil {
		return job != than
	}
	return a > b
}

// staleCall refuses a call that was overtaken by a later one of its leader.
func staleCall(unit string, rec *store.Record, newest uint64) error {
	what := "this node was told since that it does not hold such a unit"
	if rec != nil {
		what = fmt.Sprintf("it is %s here, of id %d", rec.State, rec.ID)
	}
	e := httpserve.Errorf(409, proto.CodeStaleCall, "unit %s: a call that was sent later was taken already, number %d; %s", unit, newest, what)
	e.Fields = fields(rec, map[string]any{"unit": unit, "call": newest})
	return e
}

// fields adds what the node holds to the fields of an answer.
func fields(rec *store.Record, f map[string]any) map[string]any {
	if rec != nil {
		f["id"], f["state"] = rec.ID, string(rec.State)
	}
	return f
}
