package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// TestI10ARegionRecoveredFromAMoveTakesTheNewestBranch: it was recovered from before a
// tenant that it receives had arrived, or from before the move of one that it had given up
// was undone. The tenant failed over to n2 since, and was written there; its home is here.
func TestI10ARegionRecoveredFromAMoveTakesTheNewestBranch(t *testing.T) {
	d, _ := regional(t)
	o := fsm.Origin{Authority: "g1/global", History: 1, Floor: 1}
	d.ok(&fsm.BeginTask{Origin: o, Job: 11, Kind: fsm.TaskReceive, Tenant: "x", ID: 9, Region: ptr(fsm.RegionName("us")), Node: ptr(fsm.NodeName("n1")),
		Source: &fsm.Foreign{Region: "tr", Node: "t1", Addr: "http://10.0.0.1:1", Token: "t", Epoch: 5}})
	id := d.recover()
	x := fsm.TakenUnit{UnitRef: fsm.UnitRef{Unit: "x", ID: 9}, Node: "n2", Others: []fsm.NodeName{"n1"}, Epoch: 1<<50 | 99}
	nowhere := x
	nowhere.Node, nowhere.Others = "", nil
	d.refused(fsm.CodeBadRequest, &fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{nowhere}})
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{x}})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2")})
	if p, _ := d.Placed("x"); p.Node != "n2" || p.State != fsm.UnitActive || p.Epoch <= x.Epoch || p.Promoted() {
		t.Errorf("x is %v on %s, epoch %x; the newest branch is n2's", p.State, p.Node, p.Epoch)
	}
	if task, ok := d.Task(11); !ok || !task.Done || task.Refusal != nil {
		t.Errorf("it has arrived, and the task is %+v", task)
	}
}
