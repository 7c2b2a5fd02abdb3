package controlplane

import (
	"testing"

	"domicile/fsm"
	"domicile/proto"
)

// TestALostNodeIsNoRecordedNode: that a node is lost reaches followers as a change of
// its record, and watchers as the failover that it is, not as a node that was recorded.
func TestALostNodeIsNoRecordedNode(t *testing.T) {
	state := fsm.New()
	entry := func(cmd fsm.Command) (before *fsm.State, events []fsm.Event) {
		before = state.Snapshot()
		_, events = state.Apply(fsm.Entry{Revision: state.Revision() + 1, Term: 1, At: 1, Cmd: cmd})
		return before, events
	}
	tells := func(before *fsm.State, events []fsm.Event) (names []proto.EventName) {
		for i := range events {
			for _, e := range told(before, state, &events[i]) {
				names = append(names, e.Event)
			}
		}
		return names
	}
	addr, token := "127.0.0.1:1", "t"
	put := &fsm.PutNode{Name: "n1", Addr: &addr, Token: &token}
	if got := tells(entry(put)); len(got) != 1 || got[0] != proto.EventNodeRecorded {
		t.Errorf("a new node: %v", got)
	}
	entry(&fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseTaken})
	before, events := entry(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	if got := tells(before, events); len(events) != 1 || len(got) != 0 {
		t.Errorf("a lost node: %v of %v", got, events)
	}
	other := "127.0.0.1:2"
	if got := tells(entry(&fsm.PutNode{Name: "n1", Addr: &other})); len(got) != 1 || got[0] != proto.EventNodeRecorded {
		t.Errorf("another address of a lost node: %v", got)
	}
}
