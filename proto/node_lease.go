package proto

import "domicile/fsm"

// UnitItem is a unit in a list: its name, or an object with its id. It is read
// from either form and written as an object.
type UnitItem struct {
	Unit fsm.UnitName `json:"unit"`
	ID   fsm.UnitID   `json:"id,omitempty"`
	// Epoch is, in a grant, that of the branch that the unit is to be written in: a
	// list from before a promotion, which may come late, does not name what was
	// promoted. 0: the list does not say.
	Epoch uint64 `json:"epoch,omitempty"`
}

// Grant is the body of POST /_admin/lease (spec §2.5, architecture §3.5). The
// list of units is sent whole in Primaries, or as Add and Remove to the list
// named by Base, or not at all: then Epoch names the one that the node holds.
type Grant struct {
	MS        int64       `json:"ms"`
	Epoch     string      `json:"epoch"`
	Primaries *[]UnitItem `json:"primaries,omitempty"`
	Base      string      `json:"base,omitempty"`
	Add       []UnitItem  `json:"add,omitempty"`    // also a unit of the list whose Epoch, Copies or InSync changed
	Remove    []UnitItem  `json:"remove,omitempty"` // by name
	Holder
	Grant   uint64   `json:"grant"`
	Acked   uint64   `json:"acked"`
	Boot    string   `json:"boot,omitempty"`
	Servers []string `json:"servers,omitempty"`
	// Counted is told to a node whose last answer asked for it (AwaitsCounted), and to
	// no other: how many units' writes wait for what it acknowledges as their copy.
	Counted *int `json:"counted,omitempty"`
	// Copies and InSync are given for each unit of Primaries or Add that has
	// any: the addresses of every node that an entry may promote for it, and of
	// those that acknowledge its writes.
	Copies map[fsm.UnitName][]string `json:"copies,omitempty"`
	InSync map[fsm.UnitName][]string `json:"in_sync,omitempty"`
}

// Ack is a node's --ack.
type Ack string

// Values of Ack.
const (
	AckPrimary Ack = "primary"
	AckReplica Ack = "replica"
)

// Granted answers POST /_admin/lease with 200.
type Granted struct {
	Epoch  string `json:"epoch"`
	LeftMS int64  `json:"left_ms"`
	Grant  uint64 `json:"grant"`
	Boot   string `json:"boot"`
	Ack    Ack    `json:"ack,omitempty"`
	CopyReport
	// Missing are units of the list that the node does not hold.
	Missing []fsm.UnitName `json:"missing,omitempty"`
	// Refused tells, by their addresses, why nodes refuse to be followed by this one.
	Refused map[string]string `json:"refused,omitempty"`
	// Stopping says that the node is about to stop, and wants to hand over.
	Stopping bool `json:"stopping,omitempty"`
	// AwaitsCounted says that a node that is about to stop holds copies, and goes on
	// until none of them counts. Nodes before it take no grant with Counted.
	AwaitsCounted bool `json:"awaits_counted,omitempty"`
}

// CopyReport is what a primary says of its units' copies. A copy of a unit of
// the list that is in Lagging lacks acknowledged writes, or does not follow; one
// that is not is in sync. Behind are units of which a copy has what this node
// lacks (architecture §3.7.4).
type CopyReport struct {
	Lagging map[fsm.UnitName][]string `json:"lagging,omitempty"`
	Behind  map[fsm.UnitName][]string `json:"behind,omitempty"`
	// Uncompared are units of the list that this process has not compared with
	// their in-sync copies yet: that a copy of theirs is not in Lagging says
	// nothing.
	Uncompared []fsm.UnitName `json:"uncompared,omitempty"`
	// Damaged are units that this node writes whose files are damaged, or cannot be
	// read.
	Damaged []fsm.UnitName `json:"damaged,omitempty"`
}

// NotGranted answers POST /_admin/lease with 412: the node does not hold the
// list that Epoch named, or is another boot than the grant says.
type NotGranted struct {
	Error string   `json:"error"`
	Code  fsm.Code `json:"code"`
	Epoch string   `json:"epoch"`
	Boot  string   `json:"boot"`
}

// LeaseState answers GET /_admin/lease.
type LeaseState struct {
	Epoch     *string `json:"epoch"`
	Primaries int     `json:"primaries"`
	LeftMS    *int64  `json:"left_ms"`
}

// Promote is the body of POST /_admin/promote. Epoch, a decimal number, is that
// of the entry that flipped the units.
type Promote struct {
	Tenants []UnitItem `json:"tenants"`
	Epoch   string     `json:"epoch,omitempty"`
	Holder
}

// Promoted answers POST /_admin/promote.
type Promoted struct {
	Promoted []PromotedUnit `json:"promoted"`
	Failed   []FailedUnit   `json:"failed"`
}

// PromotedUnit is a unit that is a primary's now, and its position then.
type PromotedUnit struct {
	Tenant   fsm.UnitName `json:"tenant"`
	Position string       `json:"position"`
}

// FailedUnit says why a unit was not promoted, followed or released. Code
// "promised" comes with the time left of the promise.
type FailedUnit struct {
	Tenant fsm.UnitName `json:"tenant"`
	Why    string       `json:"why"`
	Code   fsm.Code     `json:"code,omitempty"`
	LeftMS int64        `json:"left_ms,omitempty"`
}

// CodePromised: the node has promised the unit's primary not to be promoted.
const CodePromised fsm.Code = "promised"

// FollowUnits is the body of POST /_admin/follow: the node follows From for each
// of the units, and makes those that are not there. From and As are addresses
// as the directory records them: of the primary, and of the node itself.
type FollowUnits struct {
	Units []FollowUnit `json:"units"`
	From  string       `json:"from"`
	As    string       `json:"as"`
	Token string       `json:"token,omitempty"` // shown to From
	Holder
}

// FollowUnit is a unit to be followed, with the epoch of the branch that its
// primary writes.
type FollowUnit struct {
	Unit  fsm.UnitName `json:"unit"`
	ID    fsm.UnitID   `json:"id"`
	Epoch uint64       `json:"epoch"`
	Kind  CopyKind     `json:"kind,omitempty"`
}

// CopyKind is what a copy is for. Left out: it may be promoted. Following again with
// another kind makes the copy one of that kind; it keeps what it has.
type CopyKind string

// Kinds of copies.
const (
	// CopyTarget is where a move goes: its state is "receiving", nothing of it is
	// read or written before it is promoted.
	CopyTarget CopyKind = "target"
	// CopyReader is read, and never promoted (C8): its source needs no promise of it.
	CopyReader CopyKind = "reader"
)

// FollowingUnits answers POST /_admin/follow: each unit is in one of the lists.
type FollowingUnits struct {
	Following []fsm.UnitName `json:"following"`
	Failed    []FailedUnit   `json:"failed"`
}

// Handover is the body of POST /_admin/handover: for each unit the node stops
// writes, waits until the destination has the final position on disk, and gives
// the unit up for good, for this job (architecture §3.6). What is not done
// within MS thaws and fails.
type Handover struct {
	Job   string         `json:"job"`
	MS    int64          `json:"ms"`
	Units []HandoverUnit `json:"units"`
	// Forced says that a destination need not have what was acknowledged of a unit
	// whose file cannot be opened: an operator asked for it (L6).
	Forced bool `json:"forced,omitempty"`
	// Unproven says that a destination is not known to have all that was acknowledged,
	// as a copy in sync is: a unit is given up only where this node itself has all of it
	// (architecture §3.7.4), and knows up to where.
	Unproven bool `json:"unproven,omitempty"`
	Holder
}

// HandoverUnit is a unit to be given up, and to whom.
type HandoverUnit struct {
	Unit fsm.UnitName `json:"unit"`
	ID   fsm.UnitID   `json:"id"`
	Node fsm.NodeName `json:"node"`
	Addr string       `json:"addr"`
}

// HandedOver answers POST /_admin/handover. A repeat for the same job answers
// the units that the job has released already as released.
type HandedOver struct {
	Released []PromotedUnit `json:"released"`
	Failed   []FailedUnit   `json:"failed"`
}

// Thaw is the body of POST /_admin/thaw: the units that the job froze or
// released are this node's again.
type Thaw struct {
	Job   string         `json:"job"`
	Units []HandoverUnit `json:"units"`
	Holder
}

// Thawed answers POST /_admin/thaw: each unit is in one of the lists. One that is
// the node's already is in the first.
type Thawed struct {
	Thawed []fsm.UnitName `json:"thawed"`
	Failed []FailedUnit   `json:"failed"`
}

// HeldUnit is a line of GET /_admin/units.
type HeldUnit struct {
	Unit        fsm.UnitName `json:"unit"`
	ID          fsm.UnitID   `json:"id"`
	State       string       `json:"state"`
	Role        string       `json:"role"` // primary or replica
	Position    string       `json:"position"`
	Bytes       int64        `json:"bytes"`
	From        string       `json:"from,omitempty"`
	Kind        CopyKind     `json:"kind,omitempty"` // of a copy
	Destination *Placement   `json:"destination,omitempty"`
	Aside       []string     `json:"aside,omitempty"`
	// Lost is what this node had acknowledged alone on a branch that was given
	// up, as the last return to the present branch found it.
	Lost *PositionRange `json:"lost,omitempty"`
	// Follows says of a copy that it gets each commit as it is made: it lacks nothing but
	// what is under way.
	Follows bool           `json:"follows,omitempty"`
	Image   *ImageProgress `json:"image,omitempty"`   // an image that is coming in
	Problem string         `json:"problem,omitempty"` // why a copy does not follow
	Error   string         `json:"error,omitempty"`   // its files cannot be read
	Damaged bool           `json:"damaged,omitempty"` // they are known to be damaged
}

// ImageProgress is how far an image is that a copy takes.
type ImageProgress struct {
	Bytes int64 `json:"bytes"`
	Total int64 `json:"bytes_total"`
}

// Placement is a node and its address.
type Placement struct {
	Node fsm.NodeName `json:"node"`
	Addr string       `json:"addr"`
}

// PositionRange is what lies after From, up to To.
type PositionRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}
