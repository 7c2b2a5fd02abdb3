package loops

import (
	"cmp"

	"domicile/fsm"
)

// Times of moves between directories.
const (
	// LookAtRegionEvery is how often a region is asked how its part of a move stands.
	LookAtRegionEvery fsm.Millis = 1000
	// TargetWithin is how soon the region that a tenant goes to has to answer once its
	// source has given it up: else it stays where it was, if the source's region answers.
	TargetWithin fsm.Millis = 2000
	// UnwilledFor is for how long a region that says "not now" is asked again before a
	// move is undone.
	UnwilledFor fsm.Millis = 30_000
	// AnswerWithin bounds how long a region may keep an answer back that is to tell of
	// what it was asked for.
	AnswerWithin fsm.Millis = 5000
)

// betweenMemory is what a leader of the global group knows of a relocation in its own term.
type betweenMemory struct {
	told    Between
	sent    fsm.Millis // when the source's region first told that it gave the tenant up; 0: it has not
	got     uint64     // bytes at the last progress, which was at gotAt
	gotAt   fsm.Millis
	asked   bool // the source's region was told to release the tenant, in this try
	heard   bool // and has heard it
	settled bool // it knows that the tenant is promoted in the other
	noted   bool // Pause and Bytes are on their way into the job
}

// Between is what the two regions of a relocation told of it.
type Between struct {
	From, To fsm.NodeName // "" where the region has not told
	Copy     TaskCopy     // how far the copying is, or was
	Arrived  TaskUnit     // the tenant in its new home, once it can be written there
	// Waits says for what the region waits that the tenant goes to, before it begins; "" where
	// it does not.
	Waits string
}

// Between tells of a relocation what this leader knows.
func (m *Memory) Between(id fsm.JobID) Between {
	k, ok := m.moves[id]
	if !ok {
		return Between{}
	}
	return k.between.told
}

// relocation is a JobRelocate and what is known of its tasks.
type relocation struct {
	*planner
	j          *fsm.Job
	k          *moveMemory
	from, home *taskMemory
}

// relocate plans the next step of a tenant's move from one directory to another
// (architecture §3.9.2). Its steps are those of every move; what is done on nodes is done
// by the groups of the two regions, as their tasks.
func (p *planner) relocate(j *fsm.Job) {
	r := &relocation{p, j, p.m.move(j.ID), p.m.task(TaskCall{j.ID, j.From}), p.m.task(TaskCall{j.ID, j.Home})}
	r.look()
	switch j.Step {
	case fsm.StepCopy:
		r.copy()
	case fsm.StepRelease:
		r.release()
	case fsm.StepPromote:
		r.promote()
	case fsm.StepClean:
		r.clean()
	case fsm.StepUndo:
		r.undo()
	}
}

func (r *relocation) askFrom(cmd fsm.Command, wait fsm.Millis) bool {
	return r.ask(TaskCall{r.j.ID, r.j.From}, cmd, wait)
}

func (r *relocation) askHome(cmd fsm.Command, wait fsm.Millis) {
	r.ask(TaskCall{r.j.ID, r.j.Home}, cmd, wait)
}

func (r *relocation) tell(w fsm.TaskWord, other *fsm.Foreign) *fsm.TellTask {
	return &fsm.TellTask{Job: r.j.ID, Word: w, Other: other}
}

// look notes what the regions told for those who ask.
func (r *relocation) look() {
	told := &r.k.between.told
	if u := r.from.state.Unit; u != nil && (told.From == "" || r.j.Step == fsm.StepCopy) {
		told.From = u.Node
	}
	if u := r.home.state.Unit; u != nil {
		told.To = u.Node
		if r.home.state.Over && r.home.state.Refusal == nil {
			told.Arrived = *u
		}
	}
	if c := r.home.state.Copy; c != nil {
		told.Copy = *c
	}
	told.Waits = ""
	if !r.home.known && r.home.refused(fsm.CodeBusy) {
		told.Waits = r.home.refusal().Text
	}
}

// giveUp undoes the move, as long as the tenant is its source's.
func (r *relocation) giveUp(why *fsm.Refusal) {
	r.advance(r.j, &fsm.AdvanceJob{ID: r.j.ID, From: r.j.Step, To: fsm.StepUndo, Refusal: why})
}

func (r *relocation) giveUpFor(code fsm.Code, text string) {
	r.giveUp(&fsm.Refusal{Code: code, Text: text, Fields: map[string]string{"tenant": string(r.j.Tenant)}})
}

// stuck gives the move up where a region does not answer, says no, or says not now for
// too long; and reports whether it did.
func (r *relocation) stuck() bool {
	if r.partOver() {
		return true
	}
	for i, t := range []*taskMemory{r.from, r.home} {
		region := []fsm.RegionName{r.j.From, r.j.Home}[i]
		no := t.refusal()
		switch {
		case t.silent != 0 && r.now >= t.silent+UnreachedFor:
			r.giveUp(&fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "region " + string(region) + " does not answer; the tenant stays where it was: try again when the region is reached",
				Fields: map[string]string{"tenant": string(r.j.Tenant), "region": string(region)}})
		case no == nil || t.last.Outcome == Silent:
			continue
		case t.last.Outcome == Refused && no.Code != fsm.CodeStale, t.unwilled != 0 && r.now >= t.unwilled+UnwilledFor:
			r.giveUp(no)
		default:
			continue
		}
		return true
	}
	return false
}

// copy has the two regions begin, and waits until the target lacks nothing but what is
// under way.
func (r *relocation) copy() {
	j := r.j
	if r.stuck() {
		return
	}
	if !r.from.known {
		r.askFrom(&fsm.BeginTask{Job: j.ID, Kind: fsm.TaskDepart, Tenant: j.Tenant, ID: j.Unit}, 0)
		return
	}
	if b := &r.k.between.told; b.From != "" && b.To != "" && (b.From != j.Source || b.To != j.Node) {
		r.advance(j, &fsm.NoteJob{ID: j.ID, From: b.From, To: b.To}) // for people, also once other leaders have forgotten it
	}
	unit, c := r.from.state.Unit, r.home.state.Copy
	follow := unit != nil && unit.Promoted && unit.Epoch != 0 && unit.Node != ""
	switch {
	case !r.home.known && follow:
		r.askHome(r.receive(unit), 0)
	case r.home.known && r.copied(unit):
		return
	case r.home.known && follow && c != nil && !r.follows(unit) && !r.home.running:
		source := unit.Foreign
		r.askHome(r.tell(fsm.TaskSource, &source), 0)
	case r.home.known && c != nil && c.Ready:
		r.poll(r.home, j.Home, 0)
	case r.home.known:
		r.poll(r.home, j.Home, LookAtRegionEvery)
	}
	r.poll(r.from, j.From, 0)
}

// follows reports whether the target was told to follow the source as it is now.
func (r *relocation) follows(unit *TaskUnit) bool {
	c := r.home.state.Copy
	return c != nil && c.Source.Addr == unit.Addr && c.Source.Epoch == unit.Epoch
}

// receive is what the region is asked that the tenant goes to.
func (r *relocation) receive(unit *TaskUnit) *fsm.BeginTask {
	j, source := r.j, unit.Foreign
	cmd := &fsm.BeginTask{Job: j.ID, Kind: fsm.TaskReceive, Tenant: j.Tenant, ID: j.Unit, Region: &j.Home,
		Pinned: unit.Pinned, Quota: unit.Quota, Source: &source}
	if j.Node != "" {
		cmd.Node = &j.Node
	}
	return cmd
}

// poll asks a region how its part stands, which may keep the answer back for a while until
// that has changed.
func (r *relocation) poll(t *taskMemory, region fsm.RegionName, wait fsm.Millis) {
	every := LookAtRegionEvery
	if wait > 0 {
		every /= 10
	}
	if at := t.begun + every; r.now < at {
		r.wakeAt(at)
		return
	}
	r.ask(TaskCall{r.j.ID, region}, nil, wait)
}

// copied goes on where the target is ready, or cannot be, and reports whether it did.
func (r *relocation) copied(unit *TaskUnit) bool {
	b, c := &r.k.between, r.home.state.Copy
	switch r.from.state.Step {
	case fsm.StepRelease, fsm.StepSent: // a former try's, or leader's, release came late
		r.step(r.j, fsm.StepRelease)
		return true
	case fsm.StepThaw:
		return false
	}
	if c == nil || r.home.state.Step != fsm.StepCopy {
		return false
	}
	if has := max(c.Bytes, 1); has != b.got {
		b.got, b.gotAt = has, r.now
	}
	r.k.bytes = max(c.Total, c.Bytes)
	switch {
	case c.Trouble == "":
		r.k.troubled = 0
	case r.k.troubled == 0:
		r.k.troubled = r.now
	case r.now >= r.k.troubled+MoveSilence:
		r.giveUpFor(fsm.CodeMoveUndone, "region "+string(r.j.Home)+" cannot take the tenant: "+c.Trouble)
		return true
	}
	switch {
	case !c.Ready && r.now >= b.gotAt+MoveStalled:
		r.giveUpFor(fsm.CodeMoveUndone, "region "+string(r.j.Home)+" takes the tenant, and has got nothing for minutes")
	case c.Ready && c.Trouble == "" && unit != nil && unit.State == fsm.UnitActive && unit.Promoted && r.follows(unit) && !r.from.running:
		r.step(r.j, fsm.StepRelease)
	default:
		return false
	}
	return true
}

// release has the source give the tenant up to the target, asks the target's region once
// more, and has the home change.
func (r *relocation) release() {
	b, to := &r.k.between, r.home.state.Unit
	switch {
	case r.partOver():
	case b.sent != 0:
		r.given()
	case !r.home.known && r.home.last.Outcome == Refused:
		r.giveUp(r.home.last.Refusal)
	case !r.home.known || to == nil: // another leader began it
		if !r.sourceAlone(r.home.silent) {
			r.askHome(nil, 0)
		}
	case r.from.running:
	case r.told(fsm.TaskRelease):
		r.releasing()
	case b.asked && r.from.refused(fsm.CodeStale):
		r.notGiven(r.from.last.Refusal.Text)
	case b.asked && r.from.last.Outcome == Refused:
		r.giveUp(r.from.last.Refusal)
	case b.asked && r.from.unwilled != 0 && r.now >= r.from.unwilled+UnwilledFor:
		r.notGiven(r.from.last.Refusal.Text)
	default:
		give := r.tell(fsm.TaskRelease, &fsm.Foreign{Region: r.j.Home, Node: to.Node, Addr: to.Addr})
		if r.askFrom(give, AnswerWithin) && !b.asked {
			b.asked, r.k.frozen = true, r.now
		}
	}
}

// told reports whether the source's region has taken a word in this try, and notes when
// it does.
func (r *relocation) told(w fsm.TaskWord) bool {
	b := &r.k.between
	if cmd, ok := r.from.asked.Cmd.(*fsm.TellTask); ok && cmd.Word == w && b.asked && r.from.last.Outcome == Done && !r.from.running {
		b.heard = true
	}
	return b.heard
}

// releasing waits for what became of the release that the source's region was told of.
func (r *relocation) releasing() {
	switch r.from.state.Step {
	case fsm.StepSent:
		r.k.between.sent = r.now
		r.given()
	case fsm.StepRelease, fsm.StepThaw:
		r.askFrom(nil, AnswerWithin)
	default:
		r.notGiven(r.from.state.Problem)
	}
}

// partOver gives the move up where a region has given its part up, and reports whether it
// did.
func (r *relocation) partOver() bool {
	for i, t := range []*taskMemory{r.from, r.home} {
		if t.known && t.state.Over {
			region := []fsm.RegionName{r.j.From, r.j.Home}[i]
			r.giveUp(cmp.Or(t.state.Refusal, &fsm.Refusal{Code: fsm.CodeMoveUndone, Text: "region " + string(region) + " has given its part of the move up"}))
			return true
		}
	}
	return false
}

// sourceAlone gives the move up where the target's region has not answered for a while,
// and the source's does, and reports whether it did; until then it asks that one.
func (r *relocation) sourceAlone(since fsm.Millis) bool {
	switch at := since + TargetWithin; {
	case since == 0:
	case r.now < at:
		r.wakeAt(at)
	case r.from.known && r.from.heard >= at && r.from.last.Outcome == Done:
		r.giveUp(&fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "region " + string(r.j.Home) + " does not answer any more; the tenant stays where it was: try again when the region is reached",
			Fields: map[string]string{"tenant": string(r.j.Tenant), "region": string(r.j.Home)}})
		return true
	default:
		r.askFrom(nil, 0)
	}
	return false
}

// notGiven has a move go on whose source did not give the tenant up, some times.
func (r *relocation) notGiven(why string) {
	if why == "" {
		why = "it is written there on"
	}
	if r.k.tries+1 >= ReleaseTries {
		r.giveUpFor(fsm.CodeMoveUndone, "region "+string(r.j.From)+" did not give the tenant up: "+why)
		return
	}
	r.k.tries++
	r.k.frozen, r.k.between.asked, r.k.between.heard = 0, false, false
	r.step(r.j, fsm.StepCopy)
}

// given asks the target's region once more, now that nobody writes the tenant: it goes
// there if that answers, and stays if only the source's does.
func (r *relocation) given() {
	since := r.k.between.sent
	switch {
	case r.home.heard >= since && r.home.state.Step == fsm.StepCopy && r.home.last.Outcome == Done && r.home.state.Copy != nil && !r.home.state.Copy.Silent:
		r.step(r.j, fsm.StepPromote)
	case !r.sourceAlone(since):
		r.askHome(nil, 0)
	}
}

// promote tells both regions whose the tenant is now: it only goes forward from here.
func (r *relocation) promote() {
	if r.from.state.Step != fsm.StepRemove && !r.isOver(r.from) {
		r.askFrom(r.tell(fsm.TaskDeparted, nil), 0)
	}
	if !r.isOver(r.home) {
		r.askHome(r.tell(fsm.TaskArrived, nil), AnswerWithin)
		r.noteTrouble(r.home)
		return
	}
	r.step(r.j, fsm.StepClean)
}

// clean has what the source's region holds go, and ends the move.
func (r *relocation) clean() {
	j, k := r.j, r.k
	if k.pause == 0 && k.frozen != 0 {
		k.pause = max(r.now-k.frozen, 1)
	}
	if j.Pause == 0 && j.Bytes == 0 && (k.pause != 0 || k.bytes != 0) && !k.between.noted {
		k.between.noted = true
		r.advance(j, &fsm.NoteJob{ID: j.ID, Pause: k.pause, Bytes: k.bytes})
		return
	}
	last, _ := r.from.asked.Cmd.(*fsm.TellTask)
	told := last != nil && last.Word == fsm.TaskSettled && !r.from.running
	switch {
	case r.isOver(r.from):
		r.step(j, fsm.StepDone)
	case k.between.settled || told && r.from.last.Outcome == Done:
		k.between.settled = true
		r.poll(r.from, j.From, 0)
	case told && r.from.refused(fsm.CodeStale): // what the former leader told did not arrive
		r.askFrom(r.tell(fsm.TaskDeparted, nil), 0)
	default:
		r.askFrom(r.tell(fsm.TaskSettled, nil), 0)
		r.noteTrouble(r.from)
	}
}

// undo has the source take the tenant back, and the target drop what it has of it, and
// ends the move once both have.
func (r *relocation) undo() {
	fromOver, homeOver := r.isOver(r.from), r.isOver(r.home)
	if fromOver && homeOver {
		r.step(r.j, fsm.StepDone)
		return
	}
	id := fsm.ForgoTask{Job: r.j.ID, Tenant: r.j.Tenant, ID: r.j.Unit}
	if !fromOver {
		if r.from.refused(fsm.CodeTaskUnknown) {
			id.Kind = fsm.TaskDepart
			cmd := id
			r.askFrom(&cmd, 0)
		} else {
			r.askFrom(r.tell(fsm.TaskUndo, nil), AnswerWithin)
		}
		r.noteTrouble(r.from)
	}
	if !homeOver {
		id.Kind = fsm.TaskReceive
		r.askHome(&id, AnswerWithin)
		r.noteTrouble(r.home)
	}
}

// isOver reports whether nothing will change any more about a task.
func (r *relocation) isOver(t *taskMemory) bool {
	return t.known && t.state.Over || !t.running && t.refused(fsm.CodeTaskOver)
}

// noteTrouble records what keeps a region's part from its end, when that is news.
func (r *relocation) noteTrouble(t *taskMemory) {
	if no := t.refusal(); no != nil && no.Text != r.j.Problem && t.failures > 1 {
		r.advance(r.j, &fsm.NoteJob{ID: r.j.ID, Problem: no.Text})
	}
}
