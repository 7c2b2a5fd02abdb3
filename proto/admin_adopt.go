package proto

import "domicile/fsm"

// RegionHandOver tells how a region is given from one directory to another: it answers
// POST and GET /_shard/regions/{region}/adopt and …/return (G2).
type RegionHandOver struct {
	ID        fsm.JobID      `json:"id"`
	Region    fsm.RegionName `json:"region"`
	Direction string         `json:"direction"` // adopt: to the region's own directory; return: to the global one
	// Step is telling (the other group is told what there is), arriving (the region is given,
	// and not taken over yet), nodes (each node is told), undoing or done.
	Step    string     `json:"step"`
	Nodes   int        `json:"nodes"` // that are given, or were
	Problem string     `json:"problem,omitempty"`
	Started fsm.Millis `json:"started"`
	// Outcome is done or undone; Code and Error say why it was undone.
	Outcome string   `json:"outcome,omitempty"`
	Code    fsm.Code `json:"code,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Directions of a RegionHandOver.
const (
	HandOverAdopt  = "adopt"
	HandOverReturn = "return"
)

// IntakeCall is the body of POST /_shard/intakes/{job}, which is spoken between groups
// alone: a group gives a region to another.
type IntakeCall struct {
	// To is the region whose group is asked, "" for the global group: another one refuses.
	To fsm.RegionName `json:"to"`
	// ToAuthority is the group that is asked, as TaskCall.ToAuthority is.
	ToAuthority string `json:"to_authority,omitempty"`
	// Entry is an encoded fsm.StageRegion, fsm.ArriveRegion or fsm.CloseIntake, sealed; ""
	// only asks.
	Entry string `json:"entry,omitempty"`
}

// Intake answers an IntakeCall: what is known of the giver's hand-over.
type Intake struct {
	Known   bool   `json:"known"`
	Try     uint64 `json:"try,omitempty"`
	Part    uint64 `json:"part,omitempty"`
	Digest  string `json:"digest,omitempty"` // in hexadecimal
	Arrived bool   `json:"arrived,omitempty"`
	Over    bool   `json:"over,omitempty"`
	// NotReady says why what was told of cannot be taken over as it is.
	NotReady *IntakeRefusal `json:"not_ready,omitempty"`
	// Nodes are those that came with the region and are still recorded.
	Nodes []fsm.NodeName `json:"nodes,omitempty"`
	// Gives is what the group that is asked is giving away itself, or has given.
	Gives *IntakeGives `json:"gives,omitempty"`
	// Holder is the taker's leader, whose calls to nodes have numbers from Call on.
	Holder Holder `json:"holder"`
	Call   uint64 `json:"call"`
}

// IntakeGives names a region that is being given away, and the job.
type IntakeGives struct {
	Region fsm.RegionName `json:"region"`
	Job    fsm.JobID      `json:"job"`
}

// IntakeRefusal is a refusal of an fsm command.
type IntakeRefusal struct {
	Code   fsm.Code          `json:"code"`
	Text   string            `json:"text"`
	Fields map[string]string `json:"fields,omitempty"`
}
