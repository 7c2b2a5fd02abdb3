package proto

import (
	"bytes"
	"testing"

	"domicile/fsm"
)

// What is staged of a region that is being handed over is in a snapshot, as is what is
// known of a hand-over that has ended.
func TestG2ASnapshotKeepsWhatARegionWasToldOf(t *testing.T) {
	s := fsm.New()
	at := fsm.Revision(0)
	do := func(cmd fsm.Command) {
		t.Helper()
		at++
		raw, err := EncodeEntry(fsm.Entry{At: 5, Cmd: cmd})
		if err != nil {
			t.Fatal(err)
		}
		e, err := DecodeEntry(at, 1, raw)
		if err != nil {
			t.Fatal(err)
		}
		e.Revision = at
		if r, _ := s.Apply(e); r.Refusal != nil {
			t.Fatalf("%T: %v", cmd, r.Refusal)
		}
	}
	do(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", Region: "us", History: 1}})
	do(&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:1", Version: fsm.Version}})
	giver := fsm.Giver{Authority: "c/global", History: 1, Job: 7}
	do(&fsm.CloseIntake{Giver: giver})
	giver.Job = 9
	do(&fsm.StageRegion{Giver: giver, Region: "us", Try: 3, Part: 1, Longest: 4000, Node: &fsm.Node{Name: "n1", Addr: "h:1", Token: "t", Region: "us", Zone: "z", Weight: 2, Lease: fsm.LeaseTaken}})
	do(&fsm.StageRegion{Giver: giver, Region: "us", Try: 3, Part: 2, Longest: 4000, Tenants: []fsm.GivenTenant{{
		Tenant: fsm.Tenant{Name: "a", Created: 4, Pinned: true, Quota: &fsm.Quota{RPS: 3}},
		Unit: fsm.Placed{ID: 5, Unit: "a", Node: "n1", State: fsm.UnitActive, Epoch: 1 << 51,
			Copies: []fsm.Copy{{Node: "n2", State: fsm.CopyInSync}}},
	}}})
	do(&fsm.StageRegion{Giver: giver, Region: "us", Try: 3, Part: 3, Longest: 4000, GoneNodes: []fsm.NodeName{"n7"}, GoneTenants: []fsm.TenantName{"x"}})
	same := func() {
		t.Helper()
		var file bytes.Buffer
		if err := WriteSnapshot(&file, s); err != nil {
			t.Fatal(err)
		}
		back, err := ReadSnapshot(&file)
		if err != nil {
			t.Fatal(err)
		}
		was, err1 := StateHash(s)
		is, err2 := StateHash(back)
		up, _ := s.Upstream()
		if now, _ := back.Upstream(); was != is || err1 != nil || err2 != nil || now != up {
			t.Errorf("the snapshot gives another state: %v %v, of %+v, not %+v", err1, err2, now, up)
		}
		s = back
	}
	same()
	do(&fsm.StageRegion{Giver: giver, Region: "us", Try: 3, Part: 4, Longest: 4000, Node: &fsm.Node{Name: "n2", Addr: "h:2", Token: "t", Region: "us"}})
	i, _ := s.Intake("c/global")
	do(&fsm.ArriveRegion{Giver: giver, Digest: i.Digest})
	same()
}
