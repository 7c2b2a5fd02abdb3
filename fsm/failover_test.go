package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// TestL6AFailoverByHandWaitsForALease: the node was taken for lost when an operator's
// failover was decided, and is back, and perhaps granted again, when the entry is
// applied. Flipping then would make two writers.
func TestL6AFailoverByHandWaitsForALease(t *testing.T) {
	d := newDir(t)
	d.ok(&fsm.PutMember{Member: fsm.Member{ID: "a", Raft: "a:1", Version: fsm.Version}})
	d.node("n1", "eu")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{AutoFailover: 3000}})
	d.ok(&fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseTaken})
	byHand := &fsm.FailOver{Node: "n1", Cause: fsm.CauseHand, Silent: true}
	d.refused(fsm.CodeStale, byHand, "n1")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.refused(fsm.CodeNoCopy, byHand, "n1") // lost: its lease has run out
	d.ok(&fsm.NodeBack{Node: "n1"})
	d.refused(fsm.CodeStale, byHand, "n1")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{}})
	d.refused(fsm.CodeNoCopy, byHand, "n1") // nobody grants
}
