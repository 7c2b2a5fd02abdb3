package proto

import "domicile/fsm"

// Tasks are what a region's group does for a job of the global group (I8). POST
// /_shard/tasks/{job} is spoken between groups alone: it asks for the task of a job, says
// more of it, gives it up, or only asks how it stands. Each of these may be repeated.

// Calls about a task.
const (
	TaskBegin = "begin" // it is to be done; begun before, it answers how it stands
	TaskTell  = "tell"  // Word is so now
	TaskForgo = "forgo" // it is not to be done any more, or undone if it was begun
	TaskLook  = "look"  // nothing is asked but how it stands
)

// TaskCall is the body of POST /_shard/tasks/{job}. Which of its fields are used depends
// on Call and Kind, as fsm.BeginTask, fsm.TellTask and fsm.ForgoTask say.
type TaskCall struct {
	Call string `json:"call"`
	// To is the region that is asked, "" for the global group: another one refuses.
	To fsm.RegionName `json:"to"`
	// ToAuthority is the group that is asked, as it is recorded: another one of the same
	// region's name refuses. "" where that is not known.
	ToAuthority string `json:"to_authority,omitempty"`
	// Whose job it is, and the oldest one of that group's that runs (fsm.Origin).
	Authority string    `json:"authority"`
	History   uint64    `json:"history"`
	Floor     fsm.JobID `json:"floor"`

	Kind   string         `json:"kind,omitempty"` // create, delete, depart or receive
	Tenant fsm.TenantName `json:"tenant,omitempty"`
	ID     fsm.UnitID     `json:"id,omitempty"`

	Region *fsm.RegionName `json:"region,omitempty"`
	Node   *fsm.NodeName   `json:"node,omitempty"`
	Pinned bool            `json:"pinned,omitempty"`
	Schema string          `json:"schema,omitempty"`
	Quota  *Quota          `json:"quota,omitempty"`
	Source *TaskNode       `json:"source,omitempty"` // receive: whom to follow

	Word  string    `json:"word,omitempty"` // tell: release, undo, departed, arrived, source or settled
	Other *TaskNode `json:"other,omitempty"`
}

// TaskNode is a node as another group is told of it.
type TaskNode struct {
	Region fsm.RegionName `json:"region"`
	Node   fsm.NodeName   `json:"node"`
	Addr   string         `json:"addr"`
	// Token is what a follower shows to the node, sealed for the deployment's control
	// servers; "" where nothing follows it.
	Token string `json:"token,omitempty"`
	Epoch uint64 `json:"epoch,omitempty"` // of the branch that the node writes
}

// Task answers how a task stands.
type Task struct {
	Job     fsm.JobID      `json:"job"` // of the global group
	Kind    string         `json:"kind"`
	Tenant  fsm.TenantName `json:"tenant"`
	ID      fsm.UnitID     `json:"id"`
	Done    bool           `json:"done,omitempty"`    // it has ended
	Forgone bool           `json:"forgone,omitempty"` // it is not done, and never will be
	Refusal *TaskRefusal   `json:"refusal,omitempty"` // why it was not done, where it has ended so
	// Step is where the job stands that does it, while it runs, and Problem what is in its
	// way.
	Step    string    `json:"step,omitempty"`
	Problem string    `json:"problem,omitempty"`
	Unit    *TaskUnit `json:"unit,omitempty"` // where the tenant is in the region, if it is there
	// Copy is, of a receive, how far the copying is.
	Copy *TaskCopy `json:"copy,omitempty"`
}

// TaskRefusal is a refusal as it is recorded.
type TaskRefusal struct {
	Code   Code              `json:"code"`
	Text   string            `json:"text"`
	Fields map[string]string `json:"fields,omitempty"`
}

// TaskUnit is where a region has a tenant.
type TaskUnit struct {
	TaskNode               // its primary; the token only of a depart
	State     string       `json:"state"`
	Promoted  bool         `json:"promoted"`
	Writable  bool         `json:"writable,omitempty"` // create: its node was granted it
	Pinned    bool         `json:"pinned,omitempty"`
	Quota     *Quota       `json:"quota,omitempty"`
	ReplicaOn fsm.NodeName `json:"replica_on,omitempty"`
	// Unreplicated says why it has no copy in sync.
	Unreplicated string `json:"unreplicated,omitempty"`
}

// TaskCopy is how far a receive's nodes are with what they follow.
type TaskCopy struct {
	Source TaskNode `json:"source"` // that they were told to follow; without its token
	Bytes  uint64   `json:"bytes"`  // that the node has
	Total  uint64   `json:"total"`  // of the tenant, as its source tells
	// Ready: the node, and the copies to be, lack only what is under way.
	Ready   bool   `json:"ready"`
	Trouble string `json:"trouble,omitempty"` // why it does not go on
	// Silent: the node that is to be the primary does not answer.
	Silent bool `json:"silent,omitempty"`
}

// CensusCall is the body of POST /_shard/tasks/census, spoken between groups alone: while
// the global directory is being recovered its leader asks each region which tenants it
// has. Any group asks another about tenants of which both know (Only). The group that is asked
// takes nothing of an older history of the global directory any more.
type CensusCall struct {
	To        fsm.RegionName   `json:"to"` // "": the global group, of Only alone
	Authority string           `json:"authority"`
	History   uint64           `json:"history"`
	After     fsm.TenantName   `json:"after,omitempty"` // tenants that come after it are asked for
	Only      []fsm.TenantName `json:"only,omitempty"`  // these are asked for; none: all
}

// Census answers: a page of the tenants of the group that is asked, by name.
type Census struct {
	History uint64         `json:"history"` // of that group's own directory
	Tenants []CensusTenant `json:"tenants"`
	More    bool           `json:"more,omitempty"` // others come after the last of these
}

// CensusTenant is how a region has a tenant, as fsm.Claim says.
type CensusTenant struct {
	Tenant fsm.TenantName `json:"tenant"`
	ID     fsm.UnitID     `json:"id"`
	How    string         `json:"how"` // own, sent, receiving or departed
	Epoch  uint64         `json:"epoch"`
	Job    fsm.JobID      `json:"job,omitempty"`
	Other  fsm.RegionName `json:"other,omitempty"`
	// Promoted: a node has it to write; of own alone.
	Promoted bool `json:"promoted,omitempty"`
}

// OrphanedTenant is one about which a region's directory and the global one do not agree.
type OrphanedTenant struct {
	Tenant fsm.TenantName  `json:"tenant"`
	ID     fsm.UnitID      `json:"id,omitempty"`   // of its unit in the region; 0: it is not there
	Kind   string          `json:"kind"`           // see the constants
	Home   *fsm.RegionName `json:"home,omitempty"` // where the global directory has the name
}

// Kinds of orphaned tenants.
const (
	OrphanUnknown   = "unknown"   // the region has it, the global directory not: its name is being registered
	OrphanElsewhere = "elsewhere" // the region has it, and the global directory has the name elsewhere
	OrphanMissing   = "missing"   // the global directory has it in the region, and it is not there
	// OrphanDeparted: a move of before a recovery has left something of it here, and the global
	// directory does not have it any more: nobody says that it is written elsewhere.
	OrphanDeparted = "departed"
)

// EventTenantOrphaned says that an OrphanedTenant was found: Problem is its kind, or
// OrphanYielded, where it lives elsewhere, is written there, and was given up here.
const EventTenantOrphaned EventName = "tenant_orphaned"

// OrphanYielded is told at EventTenantOrphaned.
const OrphanYielded = "yielded"

// Shown is t as it is told to people: without any token.
func (t *Task) Shown() *Task {
	if t.Unit == nil {
		return t
	}
	shown, unit := *t, *t.Unit
	unit.Token = ""
	shown.Unit = &unit
	return &shown
}
