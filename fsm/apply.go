package fsm

import "strings"

// MinVersion is the command version from which servers know cmd. A leader
// proposes it only when the directory's Level has reached it, so that no
// server meets an entry that it cannot read.
func MinVersion(cmd Command) uint32 {
	switch c := cmd.(type) {
	case *SetNodeLease, *NodeBack, *SettleLease, *FailOver, *BeginHandover, *EndRelease,
		*ConfirmPromotion, *AddCopies, *ChangeCopies, *DropCopies, *AdoptUnit:
		return levelCopies
	case *BeginMove, *CancelMove, *BeginRebalance, *SetDrain, *SetReader, *PlaceReaders:
		return levelMoves
	case *BindGlobal, *BeginTask, *TellTask, *ForgoTask, *SettleTask, *YieldTenant, *BeginRelocation,
		*BeginGive, *GiveRegion, *StageRegion, *ArriveRegion, *CloseIntake:
		return levelRegions
	case *ForgoNode:
		if c.Region != "" {
			return levelRegions
		}
		return levelCopies
	case *TakeOver:
		if len(c.Homes) > 0 || len(c.Elsewhere) > 0 || c.Anew {
			return levelRegions
		}
		return levelCopies
	case *EndRecovery:
		if len(c.Regions) > 0 {
			return levelRegions
		}
		return levelCopies
	case *NoteJob:
		if c.From != "" || c.To != "" {
			return levelRegions
		}
	case *DeleteNode:
		if c.Force {
			return levelCopies
		}
	case *Bootstrap:
		return levelOf(&c.Settings)
	case *SetSettings:
		return levelOf(&c.Settings)
	}
	return 1
}

// levelOf gives the command version from which servers know what settings hold.
func levelOf(s *Settings) uint32 {
	switch {
	case s.MovesPerNode != 0:
		return levelMoves
	case s.LongestLease != 0:
		return levelCopies
	}
	return 1
}

// change is one entry on its way into a state. Its methods first decide
// whether to refuse, then write: a refusal leaves the state as it was.
type change struct {
	*State
	at     Revision
	events []Event
}

// Apply takes the next committed entry and answers it. A refused entry counts
// as applied (the revision grows, and a key remembers the refusal) and changes
// nothing else. The events say all that followers have to know; none means
// that nothing of theirs changed.
//
// Apply is called by one goroutine. It keeps e.Cmd's strings, nothing else of
// it.
func (s *State) Apply(e Entry) (Result, []Event) {
	if s.readOnly {
		panic("fsm: Apply on a snapshot")
	}
	if e.Revision <= s.revision {
		return Result{Refusal: refuse(CodeStale, "the entry is not newer than the directory")}, nil
	}
	s.revision = e.Revision
	s.now = max(s.now, e.At)
	if e.Key != "" {
		if r, known := s.replay(&e); known {
			return r, nil
		}
	}
	c := change{State: s, at: e.Revision}
	r := c.run(&e)
	if c.recountAt != "" {
		c.recountSome()
	}
	if e.Key != "" {
		s.remember(&e, r)
	}
	return r, c.events
}

func (c *change) run(e *Entry) Result {
	if e.Decided != 0 && e.Decided != e.Term {
		return refused(refuse(CodeStale, "this was decided in an earlier term; the present leader decides again"))
	}
	if len(e.Key) > MaxKey || len(e.Fingerprint) > MaxKey {
		return refused(refuse(CodeBadRequest, "the Idempotency-Key is too long; use at most 256 bytes"))
	}
	if c.Recovering() && !c.allowed(e.Cmd) {
		return refused(recovering())
	}
	if r := c.shut(e.Cmd); r != nil {
		return refused(r)
	}
	switch cmd := e.Cmd.(type) {
	case *Bootstrap:
		return refused(c.bootstrap(cmd))
	case *SetSettings:
		return refused(c.setSettings(cmd))
	case *PutMember:
		return refused(c.putMember(cmd))
	case *DeleteMember:
		return refused(c.deleteMember(cmd))
	case *PutNode:
		return c.putNode(cmd)
	case *DeleteNode:
		return refused(c.deleteNode(cmd))
	case *RecordUsage:
		c.recordUsage(cmd)
		return Result{}
	case *CreateTenant:
		return c.createTenant(cmd, e.Key)
	case *DeleteTenant:
		return c.deleteTenant(cmd)
	case *AdvanceJob:
		return refused(c.advanceJob(cmd))
	case *NoteJob:
		return refused(c.noteJob(cmd))
	case *SetPin:
		return c.setPin(cmd)
	case *PutRegion:
		return c.putRegion(cmd)
	case *DeleteRegion:
		return refused(c.deleteRegion(cmd))
	}
	return c.runCopies(e)
}

func (c *change) runCopies(e *Entry) Result {
	switch cmd := e.Cmd.(type) {
	case *SetNodeLease:
		return refused(c.setNodeLease(cmd))
	case *NodeBack:
		return refused(c.nodeBack(cmd))
	case *SettleLease:
		return refused(c.settleLease(cmd))
	case *FailOver:
		return c.failOver(cmd)
	case *BeginHandover:
		return c.beginHandover(cmd)
	case *EndRelease:
		return c.endRelease(cmd)
	case *ConfirmPromotion:
		return refused(c.confirmPromotion(cmd))
	case *AddCopies:
		return c.addCopies(cmd)
	case *ChangeCopies:
		c.changeCopies(cmd)
		return Result{}
	case *DropCopies:
		c.dropCopies(cmd)
		return Result{}
	}
	if r, ok := c.runMoves(e.Cmd); ok {
		return r
	}
	if r, ok := c.runTasks(e.Cmd); ok {
		return r
	}
	if r, ok := c.runAdopt(e.Cmd); ok {
		return r
	}
	if r, ok := c.runRecovery(e.Cmd); ok {
		return r
	}
	return refused(refuse(CodeBadRequest, "the entry holds no command"))
}

func (c *change) runMoves(cmd Command) (Result, bool) {
	switch cmd := cmd.(type) {
	case *BeginMove:
		return c.beginMove(cmd), true
	case *CancelMove:
		return refused(c.cancelMove(cmd)), true
	case *BeginRebalance:
		return c.beginRebalance(cmd), true
	case *SetDrain:
		return c.setDrain(cmd), true
	case *SetReader:
		return c.setReader(cmd), true
	case *PlaceReaders:
		c.placeReaders(cmd)
		return Result{}, true
	}
	return Result{}, false
}

func (c *change) runTasks(cmd Command) (Result, bool) {
	switch cmd := cmd.(type) {
	case *BindGlobal:
		return refused(c.bindGlobal(cmd)), true
	case *BeginTask:
		return c.beginTask(cmd), true
	case *TellTask:
		return c.tellTask(cmd), true
	case *ForgoTask:
		return c.forgoTask(cmd), true
	case *SettleTask:
		return refused(c.settleTask(cmd)), true
	case *YieldTenant:
		return refused(c.yieldTenant(cmd)), true
	case *BeginRelocation:
		return c.beginRelocation(cmd), true
	}
	return Result{}, false
}

// refused makes a result of a refusal, or the empty result of nil.
func refused(r *Refusal) Result { return Result{Refusal: r} }

// refuse makes a refusal; fields are names and values in turn.
func refuse(code Code, text string, fields ...string) *Refusal {
	r := &Refusal{Code: code, Text: text}
	if len(fields) > 0 {
		r.Fields = make(map[string]string, len(fields)/2)
		for i := 0; i < len(fields); i += 2 {
			r.Fields[fields[i]] = fields[i+1]
		}
	}
	return r
}

// badName refuses a text that is no name.
func badName(what, name string) *Refusal {
	if len(name) > 2*MaxName {
		name = strings.ToValidUTF8(name[:2*MaxName], "") + "…"
	}
	return refuse(CodeBadRequest, "the "+what+"'s name \""+name+
		"\" is not a name: use 1 to 64 of a-z, 0-9, _ and -", what, name)
}
