package fsm

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// A directory that was restored from a backup, or kept by one server of a group
// that lost its majority, may be behind what nodes do: placements, and whole
// tenants, may be missing in it. It is recovered (architecture §3.8.3): from
// Recover until EndRecovery nothing is granted, promoted, created or moved, while
// the leader reads what every node holds and takes the newest branch of each unit
// over.

// historyBits is how many revisions a history has: so many entries, 270 thousand
// million, no group commits between two recoveries.
const historyBits = 38

// MaxHistory is the greatest history: revisions stay below what a seatKey holds.
const MaxHistory = 1<<(47-historyBits) - 1

// FirstRevision is that of a directory as it was recovered into a history. What
// was numbered before (units, epochs, jobs) is below it, also what the recovered
// directory never heard of, so that no number is given twice.
func FirstRevision(history uint64) Revision { return Revision(history) << historyBits }

// SameHistory reports whether two revisions, or the numbers of jobs, are of one history.
func SameHistory(a, b Revision) bool { return a>>historyBits == b>>historyBits }

// RecoveryCause says why a directory had to be recovered; numbers are on the wire.
type RecoveryCause uint8

// Causes of recoveries.
const (
	RecoverMajority RecoveryCause = 1 // the group has lost its majority for good
	RecoverRestored RecoveryCause = 2 // it was restored from a backup
)

func (c RecoveryCause) String() string {
	switch c {
	case RecoverMajority:
		return "majority_lost"
	case RecoverRestored:
		return "restored"
	}
	return "unknown"
}

// Recovery is the directory's last recovery. It is immutable.
type Recovery struct {
	// ID is the revision at which it began; decisions name it.
	ID    Revision
	Cause RecoveryCause
	Began Millis
	// Raised counts how often the history was raised again because a node had
	// heard of a newer one.
	Raised uint32
	// WrittenOff are the names of nodes, and the addresses of nodes that are not
	// recorded, that an operator said to go on without; sorted.
	WrittenOff []string
	// WrittenOffRegions are regions with a directory of their own that an operator said
	// to go on without; sorted. In a region's recovery, GlobalGroup.
	WrittenOffRegions []RegionName
	// Taken is the last tenant that was taken over, or "": they are taken over by
	// name. Settled says that all are.
	Taken   TenantName
	Settled bool
	// Units counts those that were taken over, Moved those of them whose newest
	// branch was on another node than the directory said, and Lost those that no
	// node holds, and tenants that the region which is their home does not tell of;
	// LostUnits names the first of these (LostKept).
	Units, Moved, Lost uint64
	LostUnits          []UnitRef
	// Rehomed counts the tenants that were found in another directory than this one said,
	// or that it did not know.
	Rehomed uint64
	Ended   Millis   // 0 while it runs
	EndedIn Revision // 0 while it runs
}

// LostKept is how many lost units a Recovery names.
const LostKept = 1000

// WithoutRegion reports whether an operator said to go on without a region.
func (r *Recovery) WithoutRegion(region RegionName) bool {
	if r == nil {
		return false
	}
	_, found := slices.BinarySearch(r.WrittenOffRegions, region)
	return found
}

// ForgetRecovery forgets a recovery that the state is from the middle of: what an operator
// said in it (WrittenOff) was not said for the one that begins with a backup.
func (s *State) ForgetRecovery() {
	if s.Recovering() {
		s.recovery = nil
	}
}

// Running reports whether the directory is being recovered.
func (r *Recovery) Running() bool { return r != nil && r.EndedIn == 0 }

// WithoutNode reports whether an operator said to go on without a node, given by
// its name, or by its address where it is not recorded.
func (r *Recovery) Without(node string) bool {
	_, found := slices.BinarySearch(r.WrittenOff, node)
	return found
}

// Recovery gives the last recovery, nil where there was none. It is read-only.
func (s *State) Recovery() *Recovery { return s.recovery }

// Recovering reports whether the directory is being recovered: no grant, no
// promotion, and no change but what leads out of it.
func (s *State) Recovering() bool { return s.recovery.Running() }

// Recover makes s, which no group keeps at present, the directory of a group of
// one server, in a newer history, and begins its recovery. It is no command: it
// is done to the snapshot from which that server starts, so that there is no
// state of the new history that is not being recovered. It fails, and changes
// nothing, for a history that is not newer than s's.
func (s *State) Recover(cause RecoveryCause, history uint64, self Member, now Millis) error {
	switch {
	case s.scope.Cluster == "":
		return fmt.Errorf("the directory is empty: it was never begun")
	case history <= s.scope.History || history > MaxHistory:
		return fmt.Errorf("the history is %d; a newer one is wanted, up to %d, not %d", s.scope.History, uint64(MaxHistory), history)
	case FirstRevision(history) <= s.revision:
		return fmt.Errorf("the directory is at revision %d, which is beyond those of history %d", s.revision, history-1)
	case self.Version < s.level:
		return fmt.Errorf("the directory is of command version %d, and this server knows %d: start a newer one", s.level, self.Version)
	}
	s.endHomedJobs(now)
	s.revision = FirstRevision(history)
	s.now = max(s.now, now)
	s.scope.History = history
	c := change{State: s, at: s.revision}
	for _, m := range slices.Collect(s.Members()) {
		c.members.Delete(m.ID)
	}
	c.members.Set(self.ID, &self)
	c.raiseLevel()
	s.settings.LongestLease = max(s.settings.LongestLease, s.settings.AutoFailover)
	next := &Recovery{ID: s.revision, Cause: cause, Began: s.now}
	if before := s.recovery; before.Running() {
		next.Raised, next.WrittenOff, next.Began, next.Cause = before.Raised+1, before.WrittenOff, before.Began, before.Cause
		next.WrittenOffRegions = before.WrittenOffRegions
	}
	s.recovery = next
	c.forgetStaged()
	for _, j := range slices.Collect(c.RunningJobs()) {
		if j.Kind == JobHandover && j.Step == StepRelease {
			c.leaveHandover(j.Source)
		} else if (j.Kind == JobMove || j.Kind == JobDepart) && j.Step == StepRelease {
			c.leaveRelease(j)
		}
	}
	return nil
}

// allowed reports whether a command may be applied while the directory is being
// recovered: those that lead out of it, and what nodes have no part in. All others
// decide on what nodes do, which is not known yet.
func (c *change) allowed(cmd Command) bool {
	switch cmd := cmd.(type) {
	case *Bootstrap, *SetSettings, *PutMember, *DeleteMember, *PutNode, *RecordUsage, *NoteJob, *PutRegion,
		*BindGlobal, *ForgoNode, *TakeOver, *EndRecovery, *ArriveRegion, *CloseIntake:
		return true
	case *StageRegion: // what was given before the recovery; nothing is given meanwhile
		return cmd.Given
	case *GiveRegion: // what was given before the recovery
		return cmd.Arrived
	}
	return false
}

func recovering() *Refusal {
	return refuse(CodeRecovering, "the directory is being recovered: nothing is created, moved or failed over before every node was read or "+
		"written off; GET /_shard/recovery tells what is waited for")
}

// ForgoNode is an operator's word that the recovery goes on without a node that
// cannot be read: what it alone holds of a unit's newest branch is given up. Node
// is its name, or its address where it is not recorded. Recording it again
// (PutNode) takes the word back. Or it goes on without Region, which keeps its own
// directory: tenants that are recorded as its keep their names.
type ForgoNode struct {
	Recovery Revision
	Node     string
	Region   RegionName // "": Node is meant
}

// TakenUnit is where a unit's newest branch was found: on Node, or nowhere where
// that is "". Others are the other nodes that hold something of the unit. Epoch is that
// branch's, 0 where it is not known: the unit may have come from another directory since.
type TakenUnit struct {
	UnitRef
	Node   NodeName
	Others []NodeName
	Epoch  uint64
}

// TakeOver takes over the units of the tenants behind After, up to and with Upto,
// or all that are left for "": each unit that is not being removed is named in
// Units. A unit found flips to its node, in an epoch that is this entry's revision, and
// is promoted there before it is granted; one that was found nowhere stays where
// it was, and is not written before that node has it again. Proposed by the leader
// once it has read every node.
//
// Elsewhere are those of the tenants, of a region's directory alone, that live in another
// region by the global directory: they have moved away since, and somebody else writes
// them. The directory forgets them, their units are in none of Units, and what nodes hold
// of them stays there for an operator to see.
type TakeOver struct {
	Recovery    Revision
	After, Upto TenantName
	Units       []TakenUnit
	Elsewhere   []TenantName // sorted
	// Homes are, of the global directory alone, where tenants live by the word of the
	// regions that keep their own directories; sorted by tenant. One with a home is in it,
	// unless that region was written off and no other has the tenant.
	Homes []TakenHome
	// Anew, alone, has all be taken over from the start: a region was recovered itself since it
	// was read.
	Anew bool
}

// TakenHome is where a tenant was found: in region Home, under ID, in Epoch, which is 0 where
// that region was written off, so that nobody tells of it; or on this directory's own node
// Node, which it does not know (Others and Epoch as in TakenUnit); or, where both are "",
// nowhere: it was deleted since.
type TakenHome struct {
	Tenant TenantName
	ID     UnitID
	Home   RegionName
	Node   NodeName
	Others []NodeName
	Epoch  uint64
}

// NodeRef names a node, so that what was read of a former one of its name does not
// count for it.
type NodeRef struct {
	Node NodeName
	ID   NodeID
}

// EndRecovery ends the recovery: refused unless every unit was taken over, and
// every recorded node is in Nodes, which were read, or was written off; so of the
// recorded regions and Regions.
type EndRecovery struct {
	Recovery Revision
	Nodes    []NodeRef
	Regions  []RegionName
}

// AdoptUnit takes a unit into the directory that a node holds and no entry knows
// of, after a recovery: as the tenant of its name, which must be free. Proposed for
// an operator, after the nodes were asked. Others and Epoch as in TakenUnit.
type AdoptUnit struct {
	UnitRef
	Node   NodeName
	Others []NodeName
	Epoch  uint64
}

func (*ForgoNode) command()   {}
func (*TakeOver) command()    {}
func (*EndRecovery) command() {}
func (*AdoptUnit) command()   {}

func (c *change) runRecovery(cmd Command) (Result, bool) {
	switch cmd := cmd.(type) {
	case *ForgoNode:
		return refused(c.forgoNode(cmd)), true
	case *TakeOver:
		return refused(c.takeOver(cmd)), true
	case *EndRecovery:
		return refused(c.endRecovery(cmd)), true
	case *AdoptUnit:
		return c.adoptUnit(cmd), true
	}
	return Result{}, false
}

// runs refuses what was decided in another recovery than the one that runs.
func (c *change) runs(id Revision) *Refusal {
	if !c.Recovering() || c.recovery.ID != id {
		return refuse(CodeStale, "that was decided in a recovery of the directory that does not run any more")
	}
	return nil
}

func (c *change) forgoNode(cmd *ForgoNode) *Refusal {
	if r := c.runs(cmd.Recovery); r != nil {
		return r
	}
	if cmd.Region != "" {
		return c.forgoRegion(cmd.Region)
	}
	e, known := c.nodes.Get(NodeName(cmd.Node))
	switch {
	case c.recovery.Without(cmd.Node):
		return nil
	case !known && !validAddr(cmd.Node):
		return unknownNode(NodeName(clip(cmd.Node)))
	}
	next := c.fromTheStart()
	next.WrittenOff = append(slices.Clone(next.WrittenOff), cmd.Node)
	slices.Sort(next.WrittenOff)
	c.recovery = next
	if known {
		c.lose(e.node.Name, true)
	}
	return nil
}

// fromTheStart is the recovery with nothing taken over: what was, was without
// knowing of a node, or with one that is no more.
func (c *change) fromTheStart() *Recovery {
	was := c.recovery
	return &Recovery{ID: was.ID, Cause: was.Cause, Began: was.Began, Raised: was.Raised, WrittenOff: was.WrittenOff, WrittenOffRegions: was.WrittenOffRegions}
}

// GlobalGroup stands for the global group where regions are named: no region is called so.
const GlobalGroup RegionName = "global"

// forgoRegion has a recovery of the global directory go on without a region, or one of a
// region's without what the global directory says by now.
func (c *change) forgoRegion(r RegionName) *Refusal {
	if _, known := c.regions.Get(r); !known && (c.scope.Region == "" || r != GlobalGroup) {
		return refuse(CodeRegionUnknown, "region "+clip(string(r))+" is not recorded as one that keeps its own directory", "region", clip(string(r)))
	}
	if c.recovery.WithoutRegion(r) {
		return nil
	}
	next := c.fromTheStart()
	next.WrittenOffRegions = append(slices.Clone(next.WrittenOffRegions), r)
	slices.Sort(next.WrittenOffRegions)
	c.recovery = next
	return nil
}

// RegionsToRead yields the regions that a recovery of the global directory reads: all that
// are recorded, also one whose nodes this directory has, as it may be from before it was
// handed over.
func (s *State) RegionsToRead() iter.Seq[*Region] {
	if s.scope.Region != "" || s.level < levelRegions {
		return func(func(*Region) bool) {}
	}
	return s.Regions()
}

// readRegionAgain has a region that was recorded, or recorded anew, be read before the
// recovery ends; and what was taken over with one that was forgotten be taken over again.
func (c *change) readRegionAgain(r RegionName) {
	if !c.Recovering() {
		return
	}
	next := c.fromTheStart()
	next.WrittenOffRegions = slices.DeleteFunc(slices.Clone(next.WrittenOffRegions), func(w RegionName) bool { return w == r })
	c.recovery = next
}

// readAgain has a node that was recorded, or recorded anew, be read before the
// recovery ends.
func (c *change) readAgain(n NodeName) {
	if !c.Recovering() {
		return
	}
	next := c.fromTheStart()
	next.WrittenOff = slices.DeleteFunc(slices.Clone(next.WrittenOff), func(s string) bool { return s == string(n) })
	c.recovery = next
}

func (c *change) endRecovery(cmd *EndRecovery) *Refusal {
	if r := c.runs(cmd.Recovery); r != nil {
		return r
	}
	if !c.recovery.Settled {
		return refuse(CodeStale, "not every unit was taken over yet")
	}
	for n := range c.Nodes() {
		if !c.recovery.Without(string(n.Name)) && !slices.Contains(cmd.Nodes, NodeRef{n.Name, n.ID}) {
			return refuse(CodeStale, "node "+string(n.Name)+" was not read yet", "node", string(n.Name))
		}
	}
	for r := range c.RegionsToRead() {
		if !c.recovery.WithoutRegion(r.Name) && !slices.Contains(cmd.Regions, r.Name) {
			return refuse(CodeStale, "region "+string(r.Name)+" was not read yet", "region", string(r.Name))
		}
	}
	next := *c.recovery
	next.Ended, next.EndedIn = max(c.now, 1), c.at
	c.recovery = &next
	return nil
}

func checkRecovery(s *State) error {
	r := s.recovery
	if r == nil {
		return nil
	}
	sorted := slices.IsSortedFunc(r.WrittenOff, cmp.Compare[string]) && slices.IsSorted(r.WrittenOffRegions)
	return must(r.ID == FirstRevision(s.scope.History) && r.ID <= s.revision && r.EndedIn <= s.revision && sorted &&
		(r.EndedIn == 0) == (r.Ended == 0) && (r.EndedIn == 0 || r.Settled) && s.level >= levelCopies,
		"recovery %d of history %d, ended in %d", r.ID, s.scope.History, r.EndedIn)
}
