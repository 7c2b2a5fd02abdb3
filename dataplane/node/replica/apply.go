package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"domicile/dataplane/node/store"
)

// What is queued for a unit is applied as one transaction, up to these.
const (
	mergeEntries = 512
	mergeBytes   = 4 << 20
)

func isNeedsImage(err error) bool { return errors.Is(err, store.ErrNeedsImage) }

// work does what is in the unit's inbox; run by a worker of the pool.
func (f *following) work(ctx context.Context) {
	f.mu.Lock()
	f.queued, f.busy = false, !f.ended
	busy := f.busy
	f.mu.Unlock()
	if !busy {
		return
	}
	for turns := 0; turns < 16; turns++ { // then it is another unit's turn
		todo := f.takeTodo()
		if len(todo) == 0 {
			break
		}
		switch e := todo[0]; {
		case e.kind == eventAsk:
			f.ask(ctx)
		case e.kind == eventImage:
			f.takeImage(e) // rests when it has ended
			return
		case e.frame.kind == frameStart:
			f.start(ctx, e.frame)
		default:
			f.apply(ctx, todo)
		}
	}
	f.rest()
}

// takeTodo takes the next event, or as many entries as may be merged.
func (f *following) takeTodo() (todo []event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	n, size := 0, 0
	for n < len(f.inbox) && n < mergeEntries {
		e := f.inbox[n]
		entry := e.kind == eventFrame && e.frame.kind == frameEntry
		if size += len(e.frame.payload); n > 0 && (!entry || size > mergeBytes) {
			break
		}
		n++
		if !entry {
			break
		}
	}
	todo = slices.Clone(f.inbox[:n])
	if f.inbox = f.inbox[n:]; len(f.inbox) == 0 {
		f.inbox = nil
	}
	return todo
}

// ask tells the source where the unit stands.
func (f *following) ask(ctx context.Context) {
	f.mu.Lock()
	number := f.number
	f.number = 0
	f.stopTimer()
	f.mu.Unlock()
	f.l.leave(number, true)
	mark, err := f.l.r.store.Mark(ctx, f.unit)
	if err != nil && !isNeedsImage(err) && !errors.Is(err, store.ErrDamaged) {
		f.failed(fmt.Errorf("its position cannot be read: %w", err), false)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := follow{id: f.id, epoch: f.epoch, mark: mark, image: f.fresh || err != nil, kind: f.kind, beside: true, name: f.unit}
	if f.ended {
		return
	}
	f.asked = m.kind
	if f.number = f.l.ask(f, m); f.number != 0 && f.state != StateAhead {
		f.state = StateAsking
	}
}

// current reports whether a frame is of what was asked last.
func (f *following) current(number uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.ended && f.number == number
}

// start does what the source says of how the unit goes on.
func (f *following) start(ctx context.Context, fr frame) {
	if !f.current(fr.unit) {
		return
	}
	m, err := decodeStart(fr.payload)
	if err == nil {
		err = f.heard()
	}
	if err == nil {
		switch m.kind {
		case startOn:
			err = f.goOn(ctx, fr.unit, m)
		case startAhead:
			f.setState(StateAhead, "this node has commits that its source, at "+m.at.Position.String()+", lacks", m.at.Position.Epoch)
		default:
			err = f.giveUpBranch(ctx, m)
		}
	}
	if err != nil {
		f.l.leave(fr.unit, true)
		f.failed(err, errors.Is(err, store.ErrForked))
	}
}

// heard notes that the source answers to what was asked last: it knows of which kind
// the copy is.
func (f *following) heard() error {
	f.mu.Lock()
	told := f.asked == f.kind && f.kind != store.CopyReader // become changes the record before f.kind
	f.mu.Unlock()
	if !told {
		return nil // the kind has changed meanwhile, and is asked for anew
	}
	return f.l.r.store.Heard(f.unit)
}

func (f *following) setState(state, why string, epoch uint64) {
	f.mu.Lock()
	if why != "" && why != f.why {
		f.l.r.log.Warn("unit is not followed", "unit", f.unit, "node", f.l.from, "err", why)
	}
	f.state, f.why, f.epoch = state, why, max(f.epoch, epoch)
	f.mu.Unlock()
}

// goOn takes over the source's lineage, where there is news in it.
func (f *following) goOn(ctx context.Context, number uint32, m start) error {
	st := f.l.r.store
	mine, err := st.Lineage(f.unit)
	if err != nil {
		return err
	}
	mark, err := st.Mark(ctx, f.unit)
	if err != nil {
		return err
	}
	f.lineage = m.lineage
	if theirs := begun(m.lineage, mark.Position.Seq); !slices.Equal(mine, theirs) {
		if mark, err = st.Adopt(ctx, f.unit, theirs); err != nil {
			return err
		}
		f.l.say(frameAck, number, appendPosition(nil, mark.Position))
	}
	f.setState(StateFollowing, "", m.at.Position.Epoch)
	f.mu.Lock()
	f.fresh = false
	f.mu.Unlock()
	return nil
}

// begun gives the branches that a history has begun by commit number seq.
func begun(l store.Lineage, seq uint64) store.Lineage {
	for len(l) > 0 && l[len(l)-1].From > seq {
		l = l[:len(l)-1]
	}
	return l
}

// apply puts entries into the unit, and acknowledges them.
func (f *following) apply(ctx context.Context, todo []event) {
	number, size := todo[0].frame.unit, 0
	entries := make([]store.Entry, 0, len(todo))
	kept := make([]*entry, 0, len(todo))
	var err error
	for _, e := range todo {
		size += len(e.frame.payload)
		var d store.Entry
		if d, err = decodeEntry(e.frame.payload); err != nil {
			break
		}
		entries = append(entries, d)
		kept = append(kept, &entry{pos: d.Position, chain: d.Chain, previous: d.Prev, payload: e.frame.payload})
	}
	defer f.l.gave(size)
	if !f.current(number) {
		return
	}
	var mark store.Mark
	if err == nil {
		mark, err = f.l.r.store.Apply(ctx, f.unit, entries)
	}
	if l := begun(f.lineage, mark.Position.Seq); err == nil && len(l) > 0 && l[len(l)-1].Epoch > mark.Position.Epoch {
		mark, err = f.l.r.store.Adopt(ctx, f.unit, l) // a branch begins here, and has no commit yet
	}
	if err != nil {
		f.l.leave(number, true)
		f.failed(fmt.Errorf("an entry cannot be applied: %w", err), needsFresh(err))
		return
	}
	f.l.say(frameAck, number, appendPosition(nil, mark.Position))
	f.l.r.feed(f.unit).applied(kept)
	f.mu.Lock()
	f.tries = 0
	f.epoch = max(f.epoch, mark.Position.Epoch)
	f.mu.Unlock()
}

// needsFresh reports whether after that error of an entry nothing but an image helps.
func needsFresh(err error) bool {
	return slices.ContainsFunc([]error{store.ErrGap, store.ErrForked, store.ErrBadEntry, store.ErrNeedsImage, store.ErrDamaged, errFrame},
		func(target error) bool { return errors.Is(err, target) })
}

// giveUpBranch prepares for an image: what this node has beyond the point that
// its history shares with the source's is kept aside first.
func (f *following) giveUpBranch(ctx context.Context, m start) error {
	f.setState(StateImage, "", m.at.Position.Epoch)
	st := f.l.r.store
	mark, err := st.Mark(ctx, f.unit)
	if errors.Is(err, store.ErrDamaged) {
		return f.keepDamaged(ctx)
	}
	if err != nil || mark.Position.IsZero() {
		return nil // nothing, or nothing that a position can be told of
	}
	mine, err := st.Lineage(f.unit)
	if err != nil || len(mine) == 0 {
		return nil
	}
	shared, ok := fork(m.lineage, m.at.Position.Seq, mine, mark.Position.Seq)
	if m.kind == startOther {
		shared = store.Position{Epoch: mark.Position.Epoch}
		shared.Seq, _, ok = branchOf(mine, mark.Position.Seq, shared.Epoch)
	}
	if ok && shared.Seq >= mark.Position.Seq || mark.Position.Seq == 0 {
		return nil // all of it is the source's too
	}
	if old := f.l.r.Status(f.unit).Lost; old != nil && old.To == mark.Position && old.chain == mark.Chain {
		return nil // it was kept at an earlier try
	}
	path, kept, err := st.SetAside(ctx, f.unit)
	if errors.Is(err, store.ErrDamaged) {
		return f.keepDamaged(ctx)
	}
	if isNeedsImage(err) {
		f.l.r.log.Error("a branch that is given up cannot be kept aside", "unit", f.unit, "position", mark.Position, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("what it has beyond %s is not the source's, and cannot be kept aside: %w", shared, err)
	}
	if err := f.l.r.lost.put(f.unit, Lost{From: shared, To: kept.Position, Aside: path, chain: kept.Chain}); err != nil {
		return fmt.Errorf("what is lost cannot be recorded: %w", err)
	}
	f.l.r.log.Warn("a branch was given up; its file is kept", "unit", f.unit, "after", shared, "position", kept.Position, "file", path)
	return nil
}

// keepDamaged keeps the unit's damaged files aside as they are, before an image takes
// their place: what they held beyond the source's history nobody can tell.
func (f *following) keepDamaged(ctx context.Context) error {
	if _, _, err := f.l.r.store.KeepDamaged(ctx, f.unit); err != nil {
		return fmt.Errorf("its damaged file cannot be kept aside: %w", err)
	}
	return nil
}
