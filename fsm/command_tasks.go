package fsm

// Commands of two levels of directories: names and homes in the global directory, and a
// region's part of the global group's jobs.

// Origin says whose job a task is of, and which of that group's jobs may still run. A
// region takes tasks of one global group, and never of an older history of it.
type Origin struct {
	Authority string
	History   uint64
	// Floor is the oldest job that runs there: tasks of older ones are over (I8).
	Floor JobID
}

// BindGlobal records the global group that a region's group belongs to, for good; only
// its history may rise. Proposed by the leader when it first hears of that directory.
type BindGlobal struct {
	Authority string
	History   uint64
}

// Foreign is a node that another directory holds: what is followed, or followed by,
// while a unit goes from one directory to another.
type Foreign struct {
	Region RegionName
	Node   NodeName
	Addr   string
	// Token is what a follower shows to the node; "" where nothing follows it.
	Token string
	Epoch uint64 // of the branch that the node writes; 0 where nothing follows it
}

// BeginTask begins this group's part of a job of the global group. Begun again it
// answers what became of it. What it cannot do it records as refused, so that a late
// repeat is not done: the answer is Result.Task. Refused itself, with nothing recorded,
// are tasks that are over or were forgone, and what may be asked again (CodeBusy).
//
//	TaskCreate   creates the tenant, as CreateTenant does.
//	TaskDelete   deletes it; done at once where there is none of that id.
//	TaskDepart   has the unit stay as it is until TellTask says more.
//	TaskReceive  places the unit, and the copies to be, as UnitReceiving; they follow
//	             Source, which holds it, until TellTask says more.
type BeginTask struct {
	Origin
	Job    JobID
	Kind   TaskKind
	Tenant TenantName
	ID     UnitID // of the tenant's unit: the entry of the global directory that took the name
	// TaskCreate, TaskReceive: as CreateTenant.
	Region *RegionName
	Node   *NodeName
	Pinned bool
	Schema string
	Silent []NodeName
	// TaskReceive: what goes along, and whom to follow.
	Quota  *Quota
	Source *Foreign
}

// TaskWord is what TellTask tells; numbers are on the wire.
type TaskWord uint8

// Words of TellTask.
const (
	// TaskRelease has the source of a departing unit give it up to Other.
	TaskRelease TaskWord = 1
	// TaskUndo says that the unit stays: its source takes it back (architecture §3.9.2).
	TaskUndo TaskWord = 2
	// TaskDeparted says that the global directory has the unit elsewhere now: what is here goes.
	TaskDeparted TaskWord = 3
	// TaskArrived says that the global directory has the unit here now: it is promoted.
	TaskArrived TaskWord = 4
	// TaskSource says that Other holds the unit that is received: it was failed over.
	TaskSource TaskWord = 5
	// TaskSettled says, after TaskDeparted, that the unit is promoted where it lives now:
	// the grace begins after which what is here goes (architecture §3.6.6).
	TaskSettled TaskWord = 6
)

// TellTask takes a task on. What it says may be said again. Refused where the task does
// not stand where that can be told. It answers Result.Task.
type TellTask struct {
	Origin
	Job   JobID
	Word  TaskWord
	Other *Foreign
}

// ForgoTask says that a task is not to be done here. One that was not begun is recorded
// as forgone, so that a late BeginTask is refused; a create or receive that is not done
// yet is undone. It answers Result.Task: only when that is Forgone or Done is it certain.
type ForgoTask struct {
	Origin
	Job    JobID
	Kind   TaskKind
	Tenant TenantName
	ID     UnitID
}

// SettleTask settles a task that has outlived its job (State.Outlived): that ended in a
// recovery of the global directory, or this directory was recovered from before it did.
// Here says that the global directory has the tenant in this region, as it is in the
// newest history that was heard of, History: it stays, or has arrived. Otherwise it has
// left, or did not come; told again of one that has left, that it is promoted where it lives
// now, as its group has answered: the grace begins (TaskSettled). Proposed by the leader of a
// region's group; the last, in the global directory, by its leader.
type SettleTask struct {
	Job     JobID
	History uint64
	Here    bool
}

// YieldTenant gives a tenant up that a region's directory has as its own, at Epoch, although
// it lives elsewhere by the global directory of History, the newest that was heard of: where
// the region was written off in a recovery of that, or its own directory was recovered. It is
// proposed once the group that has it there has answered, since it was seen here at that epoch,
// that it has it as its own and promoted: so it is written there (I1), and not lost with this.
type YieldTenant struct {
	UnitRef
	Epoch   uint64
	History uint64
}

// BeginRelocation begins a JobRelocate: a move of a tenant from one directory to another
// (M1, architecture §3.9.2). Proposed to the global group, once both sides were asked. It
// answers Result.Job.
type BeginRelocation struct {
	Tenant TenantName
	Region RegionName
	To     *NodeName
}

func (*BindGlobal) command()      {}
func (*BeginTask) command()       {}
func (*TellTask) command()        {}
func (*ForgoTask) command()       {}
func (*SettleTask) command()      {}
func (*YieldTenant) command()     {}
func (*BeginRelocation) command() {}
