package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// origin is how the global group of a region's tests names itself.
func origin(floor fsm.JobID) fsm.Origin {
	return fsm.Origin{Authority: "c1/global", History: 1, Floor: floor}
}

// TestG2ACloseOfOneHandOverLeavesWhatAnotherOneStaged: two regions come back at once; the
// one that is told to wait closes its own hand-over, and nothing of the other's.
func TestG2ACloseOfOneHandOverLeavesWhatAnotherOneStaged(t *testing.T) {
	global, us := handing(t)
	handed(t, global, us, "us")
	job := us.ok(&fsm.BeginGive{Region: "us"}).Job
	for _, p := range us.parts(job, "us", 1) {
		global.ok(p)
	}
	eu := fsm.Giver{Authority: "d2/eu", History: 1, Job: 7}
	global.ok(&fsm.CloseIntake{Giver: eu})
	sum := us.Digest("us")
	us.ok(&fsm.GiveRegion{ID: job, Digest: sum})
	global.ok(&fsm.ArriveRegion{Giver: us.giver(job), Digest: sum})
	if p, ok := global.Placed("a"); !ok || p.Node != "n1" {
		t.Errorf("the region has arrived as %s", global.shown())
	}
}

// TestG2NoOtherNodeTakesTheNameOrAddressOfOneThatIsHandedOver: the taker has said that it
// can take the region, and what was given could be nobody's.
func TestG2NoOtherNodeTakesTheNameOrAddressOfOneThatIsHandedOver(t *testing.T) {
	global, us := handing(t)
	handed(t, global, us, "us")
	job := us.ok(&fsm.BeginGive{Region: "us"}).Job
	for _, p := range us.parts(job, "us", 1) {
		global.ok(p)
	}
	if why := global.MayArrive("us"); why != nil {
		t.Fatal(why)
	}
	n1, _ := us.Node("n1")
	eu := ptr(fsm.RegionName("eu"))
	global.refused(fsm.CodeHandingOver, &fsm.PutNode{Name: "n1", Addr: ptr("10.9.9.9:1"), Token: ptr("t"), Region: eu}, "us")
	global.refused(fsm.CodeHandingOver, &fsm.PutNode{Name: "e2", Addr: ptr("http://" + n1.Addr), Token: ptr("t"), Region: eu}, "us")
	global.refused(fsm.CodeHandingOver, &fsm.PutNode{Name: "e1", Addr: &n1.Addr}, "us")
	global.ok(&fsm.PutNode{Name: "e2", Addr: ptr("10.9.9.9:1"), Token: ptr("t"), Region: eu})
	sum := us.Digest("us")
	us.ok(&fsm.GiveRegion{ID: job, Digest: sum})
	global.ok(&fsm.ArriveRegion{Giver: us.giver(job), Digest: sum})
}

// TestG5ACreateThatARecoveryFindsDoneEndsItsTask: else its name stays reserved for ever.
func TestG5ACreateThatARecoveryFindsDoneEndsItsTask(t *testing.T) {
	us := region(t, "us")
	for _, n := range []fsm.NodeName{"n1", "n2"} {
		us.ok(&fsm.PutNode{Name: n, Addr: ptr("10.0.0." + string(n[1:]) + ":8081"), Token: ptr("t")})
		us.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	begun := us.ok(&fsm.BeginTask{Origin: origin(1), Job: 40, Kind: fsm.TaskCreate, Tenant: "x", ID: 40, Node: ptr(fsm.NodeName("n1"))})
	if begun.Task == nil || begun.Task.Local == 0 {
		t.Fatalf("%+v", begun)
	}
	id := us.recover()
	us.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(fsm.UnitRef{Unit: "x", ID: 40}, "n2")}})
	us.ok(&fsm.EndRecovery{Recovery: id, Nodes: us.nodeRefs("n1", "n2")})
	if task, _ := us.Task(40); !task.Done || task.Refusal != nil {
		t.Errorf("the task is %+v", task)
	}
}

// TestI8OneTaskThatDoesNotEndKeepsNoOthers: those of jobs that have ended are forgotten.
func TestI8OneTaskThatDoesNotEndKeepsNoOthers(t *testing.T) {
	us := region(t, "us")
	us.ok(&fsm.PutNode{Name: "n1", Addr: ptr("10.0.0.1:8081"), Token: ptr("t")})
	us.ok(&fsm.BeginTask{Origin: origin(10), Job: 10, Kind: fsm.TaskCreate, Tenant: "x", ID: 10})
	for job := fsm.JobID(11); job < 20; job++ {
		us.ok(&fsm.ForgoTask{Origin: origin(10), Job: job, Kind: fsm.TaskCreate, Tenant: "y", ID: fsm.UnitID(job)})
	}
	us.ok(&fsm.ForgoTask{Origin: origin(30), Job: 30, Kind: fsm.TaskCreate, Tenant: "y", ID: 30})
	kept := 0
	for range us.Tasks() {
		kept++
	}
	if kept != 2 {
		t.Errorf("%d tasks are kept", kept)
	}
	us.refused(fsm.CodeTaskOver, &fsm.BeginTask{Origin: origin(10), Job: 15, Kind: fsm.TaskCreate, Tenant: "y", ID: 15})
}

// TestI4AnEpochThatCouldNotGrowIsNotReceived: its branch's next epoch would be below it.
func TestI4AnEpochThatCouldNotGrowIsNotReceived(t *testing.T) {
	us := region(t, "us")
	us.ok(&fsm.PutNode{Name: "n1", Addr: ptr("10.0.0.1:8081"), Token: ptr("t")})
	source := fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://10.0.1.1:8081", Epoch: 1<<63 - 1}
	us.refused(fsm.CodeBadRequest, &fsm.BeginTask{Origin: origin(1), Job: 40, Kind: fsm.TaskReceive, Tenant: "x", ID: 4, Region: ptr(fsm.RegionName("us")), Source: &source})
	source.Epoch = 7
	us.ok(&fsm.BeginTask{Origin: origin(1), Job: 40, Kind: fsm.TaskReceive, Tenant: "x", ID: 4, Region: ptr(fsm.RegionName("us")), Source: &source})
	worse := source
	worse.Epoch = 1<<64 - 1
	us.refused(fsm.CodeBadRequest, &fsm.TellTask{Origin: origin(1), Job: 40, Word: fsm.TaskSource, Other: &worse})
	us.refused(fsm.CodeBadRequest, &fsm.TellTask{Origin: origin(1), Job: 40, Word: fsm.TaskSource})
}

// TestN5TheTokenOfAForeignNodeIsNotKept once nothing follows it any more.
func TestN5TheTokenOfAForeignNodeIsNotKept(t *testing.T) {
	us := region(t, "us")
	us.ok(&fsm.PutNode{Name: "n1", Addr: ptr("10.0.0.1:8081"), Token: ptr("t")})
	source := fsm.Foreign{Region: "eu", Node: "e1", Addr: "http://10.0.1.1:8081", Token: "secret", Epoch: 7}
	begun := us.ok(&fsm.BeginTask{Origin: origin(1), Job: 40, Kind: fsm.TaskReceive, Tenant: "x", ID: 4, Region: ptr(fsm.RegionName("us")), Source: &source})
	us.ok(&fsm.ForgoTask{Origin: origin(1), Job: 40, Kind: fsm.TaskReceive, Tenant: "x", ID: 4})
	us.ok(&fsm.AdvanceJob{ID: begun.Task.Local, From: fsm.StepUndo, To: fsm.StepDone})
	if j, _ := us.Job(begun.Task.Local); j.Other != nil {
		t.Errorf("the job that has ended keeps %+v", j.Other)
	}
}

// own is region us's directory with nodes n1 and n2, and x on n1, of the global entry 40.
func own(t *testing.T) (us *dir, x fsm.UnitRef) {
	us = region(t, "us")
	for _, n := range []fsm.NodeName{"n1", "n2"} {
		us.ok(&fsm.PutNode{Name: n, Addr: ptr("10.0.0." + string(n[1:]) + ":8081"), Token: ptr("t")})
		us.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	begun := us.ok(&fsm.BeginTask{Origin: origin(40), Job: 40, Kind: fsm.TaskCreate, Tenant: "x", ID: 40, Node: ptr(fsm.NodeName("n1"))})
	us.ok(&fsm.AdvanceJob{ID: begun.Task.Local, From: fsm.StepMake, To: fsm.StepDone})
	return us, fsm.UnitRef{Unit: "x", ID: 40}
}

// TestI4ARecoveryKnowsOfBranchesThatCameFromOtherDirectories: what it begins is above them.
func TestI4ARecoveryKnowsOfBranchesThatCameFromOtherDirectories(t *testing.T) {
	us, x := own(t)
	id := us.recover()
	const met = 2<<50 | 77 // x has left, and has come back
	us.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{{UnitRef: x, Node: "n1", Others: []fsm.NodeName{"n2"}, Epoch: met}}})
	us.ok(&fsm.EndRecovery{Recovery: id, Nodes: us.nodeRefs("n1", "n2")})
	if p, _ := us.Placed("x"); p.Epoch <= met {
		t.Errorf("x goes on in epoch %d, and its node has one of %d", p.Epoch, uint64(met))
	}
	late := fsm.UnitRef{Unit: "y", ID: fsm.UnitID(fsm.FirstRevision(3)) + 9} // the global group was recovered more often
	us.refused(fsm.CodeBadRequest, &fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: "z", ID: x.ID}, Node: "n1"})
	us.ok(&fsm.AdoptUnit{UnitRef: late, Node: "n2", Epoch: met})
	if p, _ := us.Placed("y"); p.Epoch <= met {
		t.Errorf("y goes on in epoch %d, and its node has one of %d", p.Epoch, uint64(met))
	}
}

// TestI1ARecoveredRegionLeavesTenantsAloneThatHaveMovedAway: its directory is from before,
// and what its nodes still hold is not theirs to write.
func TestI1ARecoveredRegionLeavesTenantsAloneThatHaveMovedAway(t *testing.T) {
	us, x := own(t)
	begun := us.ok(&fsm.BeginTask{Origin: origin(41), Job: 41, Kind: fsm.TaskDepart, Tenant: "x", ID: x.ID})
	id := us.recover()
	us.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id, Elsewhere: []fsm.TenantName{"x"}, Units: []fsm.TakenUnit{taken(x, "n1", "n2")}})
	us.refused(fsm.CodeBadRequest, &fsm.TakeOver{Recovery: id, Elsewhere: []fsm.TenantName{"y"}, Units: []fsm.TakenUnit{taken(x, "n1", "n2")}})
	us.ok(&fsm.TakeOver{Recovery: id, Elsewhere: []fsm.TenantName{"x"}})
	if _, ok := us.Placed("x"); ok || len(us.events) != 1 || us.events[0].UnitGone != "x" {
		t.Errorf("x is still placed; events %v", us.events)
	}
	us.ok(&fsm.EndRecovery{Recovery: id, Nodes: us.nodeRefs("n1", "n2")})
	us.ok(&fsm.AdvanceJob{ID: begun.Task.Local, From: fsm.StepCopy, To: fsm.StepDone})

	global := ready(t, 1)
	id = global.recover()
	global.refused(fsm.CodeBadRequest, &fsm.TakeOver{Recovery: id, Elsewhere: []fsm.TenantName{"x"}})
}
