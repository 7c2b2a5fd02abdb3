package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// TestI2M9TheFormerPrimaryLeavesARegionWhateverCopiesThereAre: to a region of one node,
// where no copy can be, a move leaves nothing in the region that the tenant has left.
func TestI2M9TheFormerPrimaryLeavesARegionWhateverCopiesThereAre(t *testing.T) {
	d, u := moving(t)
	d.ok(&fsm.DeleteNode{Name: "m2"})
	d.upTo(fsm.StepClean, "m1", "us")
	d.want("a", "a m1 active")
	p, _ := d.Placed("a")
	spare, ok := d.SpareCopy(p)
	if !ok || spare.Node != "n1" || spare.To != fsm.CopyLeaving {
		t.Fatalf("%+v, %v: it stays in eu", spare, ok)
	}
	d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{spare}})
	d.ok(&fsm.DropCopies{Copies: []fsm.CopyRef{{UnitRef: u, Node: "n1"}, {UnitRef: u, Node: "n2"}}})
	if p, _ := d.Placed("a"); len(p.Copies) != 0 {
		t.Errorf("%+v", p.Copies)
	}
	// Where a copy can be, what was left behind stays until that is in sync.
	d, u = moving(t)
	d.upTo(fsm.StepClean, "m1", "us")
	p, _ = d.Placed("a")
	leave := fsm.CopyChange{UnitRef: u, Epoch: p.Epoch, Node: "n1", From: fsm.CopyFormer, To: fsm.CopyLeaving}
	d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{leave}})
	p, _ = d.Placed("a")
	if _, ok := d.SpareCopy(p); ok || d.copies("a") != "m2 syncing, n1 former, n2 leaving" {
		t.Fatalf("%s: it is given up before there is a copy", d.copies("a"))
	}
	for _, to := range []fsm.CopyState{fsm.CopyJoining, fsm.CopyInSync} {
		d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: u, Epoch: p.Epoch, Node: "m2", From: map[fsm.CopyState]fsm.CopyState{fsm.CopyJoining: fsm.CopySyncing, fsm.CopyInSync: fsm.CopyJoining}[to], To: to}}})
	}
	p, _ = d.Placed("a")
	if spare, ok := d.SpareCopy(p); !ok || spare.Node != "n1" {
		t.Fatalf("%+v, %v", spare, ok)
	}
	// In its own region the last copy of a unit stays until another is in sync.
	d, _ = moving(t)
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	p, _ = d.Placed("a")
	d.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{u}})
	d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: u, Epoch: p.Epoch, Node: "n1", From: fsm.CopyFormer, To: fsm.CopyLeaving}}})
	if p, _ := d.Placed("a"); p.Copies[0].State != fsm.CopyFormer {
		t.Errorf("%+v", p.Copies)
	}
}

// TestN7ANodeThatHoldsReadersAloneIsDrained: they leave though no other node may hold them.
func TestN7ANodeThatHoldsReadersAloneIsDrained(t *testing.T) {
	d, _ := moving(t)
	d.ok(&fsm.DeleteNode{Name: "m2"})
	d.ok(&fsm.SetReader{Tenant: "a", Region: "us", Wanted: true})
	if p, _ := d.Placed("a"); p.Copies[0].Node != "m1" || p.Copies[0].State != fsm.CopyReader {
		t.Fatalf("%+v", p.Copies)
	}
	d.ok(&fsm.SetDrain{Node: "m1", Drain: true})
}
