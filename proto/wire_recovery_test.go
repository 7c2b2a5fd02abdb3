package proto_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/fsm"
	"domicile/proto"
)

// commandsOfARecovery holds each command of a recovery, with every field set, behind
// the log of version 2, whose state is recovered.
func commandsOfARecovery(s *fsm.State) []fsm.Command {
	id := s.Recovery().ID
	take := &fsm.TakeOver{Recovery: id}
	for t := range s.Tenants("", "") {
		for p := range s.ToTakeOver(t.Name) {
			u := fsm.TakenUnit{UnitRef: fsm.UnitRef{Unit: p.Unit, ID: p.ID}, Node: "n2", Others: []fsm.NodeName{"n3", "n4"}}
			if p.Unit == "stark" {
				u.Node, u.Others = "", nil
			}
			take.Units = append(take.Units, u)
		}
	}
	first := &fsm.TakeOver{Recovery: id, Upto: "acme", Units: take.Units[:1]}
	take.After, take.Units = "acme", take.Units[1:]
	end := &fsm.EndRecovery{Recovery: id}
	for n := range s.Nodes() {
		end.Nodes = append(end.Nodes, fsm.NodeRef{Node: n.Name, ID: n.ID})
	}
	return []fsm.Command{
		&fsm.ForgoNode{Recovery: id, Node: "10.0.0.9:8081"}, first, take, end,
		&fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: "orphan", ID: 12345}, Node: "n2", Others: []fsm.NodeName{"n3"}},
		&fsm.CreateTenant{Name: "after"},
	}
}

// commandsOfAGlobalRecovery does so behind the log of version 4: with homes of each kind,
// and a region that is written off.
func commandsOfAGlobalRecovery(s *fsm.State) []fsm.Command {
	id := s.Recovery().ID
	commands := []fsm.Command{&fsm.ForgoNode{Recovery: id, Region: "us"}, &fsm.ForgoNode{Recovery: id, Node: "10.0.0.9:8081"}, &fsm.TakeOver{Recovery: id, Anew: true}}
	after := fsm.TenantName("")
	part := func(upto fsm.TenantName) *fsm.TakeOver {
		take := &fsm.TakeOver{Recovery: id, After: after, Upto: upto}
		commands, after = append(commands, take), upto
		return take
	}
	for t := range s.Tenants("", "") {
		take := part(t.Name)
		if t.HasHome {
			home := fsm.TakenHome{Tenant: t.Name, ID: t.Claim, Home: "tr"}
			switch t.Name {
			case "wayne":
				home.Home, home.Node, home.Others, home.Epoch = "", "e1", []fsm.NodeName{"e2"}, 3<<50|7
			case "hooli":
				home = fsm.TakenHome{Tenant: t.Name}
			}
			take.Homes = []fsm.TakenHome{home}
		}
		for p := range s.ToTakeOver(t.Name) {
			take.Units = append(take.Units, fsm.TakenUnit{UnitRef: fsm.UnitRef{Unit: p.Unit, ID: p.ID}, Node: "e2", Others: []fsm.NodeName{"e1"}, Epoch: 1<<50 | 7})
		}
	}
	part("").Homes = []fsm.TakenHome{{Tenant: "zz-new", ID: 12345, Home: "tr"}}
	end := &fsm.EndRecovery{Recovery: id, Regions: []fsm.RegionName{"tr"}}
	for n := range s.Nodes() {
		end.Nodes = append(end.Nodes, fsm.NodeRef{Node: n.Name, ID: n.ID})
	}
	return append(commands, end, &fsm.CreateTenant{Name: "hooli-2"})
}

// commandsOfARegionRecovery does so behind the log of a region's directory of version 4: with
// a tenant that lives elsewhere, and branches that came from other directories; and then
// yields one that another group has, too.
func commandsOfARegionRecovery(s *fsm.State) (commands []fsm.Command) {
	id, after := s.Recovery().ID, fsm.TenantName("")
	for t := range s.Tenants("", "") {
		take := &fsm.TakeOver{Recovery: id, After: after, Upto: t.Name}
		commands, after = append(commands, take), t.Name
		if t.Name == "arrived" {
			take.Elsewhere = []fsm.TenantName{t.Name}
			continue
		}
		for p := range s.ToTakeOver(t.Name) {
			u := fsm.TakenUnit{UnitRef: fsm.UnitRef{Unit: p.Unit, ID: p.ID}, Node: p.Node, Epoch: 3<<50 | 7}
			if t.Name == "wayne" {
				u.Node, u.Others = "u2", []fsm.NodeName{"u1"}
			}
			take.Units = append(take.Units, u)
		}
	}
	commands = append(commands, &fsm.TakeOver{Recovery: id, After: after})
	end := &fsm.EndRecovery{Recovery: id}
	for n := range s.Nodes() {
		end.Nodes = append(end.Nodes, fsm.NodeRef{Node: n.Name, ID: n.ID})
	}
	x := fsm.UnitRef{Unit: "orphan", ID: 12345}
	adopted := s.Revision() + fsm.Revision(len(commands)) + 2
	return append(commands, end, &fsm.AdoptUnit{UnitRef: x, Node: "u2", Others: []fsm.NodeName{"u1"}, Epoch: 2<<50 | 9},
		&fsm.YieldTenant{UnitRef: x, Epoch: 2<<50 | uint64(adopted), History: 3})
}

// TestGoldenRecovery: the snapshot of a directory whose recovery has begun, and the log
// that ends it, stay readable.
func TestGoldenRecovery(t *testing.T) {
	goldenRecovery(t, "v2-recovery", commandsV2(), 2, commandsOfARecovery)
	goldenRecovery(t, "v4-recovery", commandsV4(), 4, commandsOfAGlobalRecovery)
	goldenRecovery(t, "v4-region-recovery", commandsV4Region(), 4, commandsOfARegionRecovery)
}

func goldenRecovery(t *testing.T, name string, before []fsm.Command, version uint32, commands func(*fsm.State) []fsm.Command) {
	t.Helper()
	s := fsm.New()
	for _, e := range logOf(before) {
		s.Apply(e)
	}
	self := fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: version}
	if err := s.Recover(fsm.RecoverRestored, 2, self, s.Now()+1); err != nil {
		t.Fatal(err)
	}
	snapshot := golden(t, name, "snapshot", func() []byte { return snapshotBytes(t, s) })
	if got := readSnapshot(t, snapshot); hexHash(t, got) != hexHash(t, s) || cmp.Diff(got.Recovery(), s.Recovery()) != "" {
		t.Error("the snapshot holds another state than it did")
	}
	var encoded []byte
	for i, c := range commands(s) {
		e := fsm.Entry{Revision: s.Revision() + 1, Term: 5, At: 1_700_000_100_000 + fsm.Millis(i), Decided: 5, Cmd: c}
		if diff := cmp.Diff(e, wire(t, e)); diff != "" {
			t.Fatalf("%T: %s", c, diff)
		}
		if r, _ := s.Apply(e); r.Refusal != nil {
			t.Fatalf("%T: %v", c, r.Refusal)
		}
		b, err := proto.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		encoded = binary.AppendUvarint(encoded, uint64(e.Revision))
		encoded = binary.AppendUvarint(encoded, e.Term)
		encoded = append(binary.AppendUvarint(encoded, uint64(len(b))), b...)
	}
	log := golden(t, name, "log", func() []byte { return encoded })
	if !bytes.Equal(log, encoded) {
		t.Error("entries are encoded in another way than they were")
	}
	replayed := readSnapshot(t, snapshot)
	for r := bytes.NewReader(log); r.Len() > 0; {
		revision, term, b := readEntry(t, r)
		e, err := proto.DecodeEntry(revision, term, b)
		if err != nil {
			t.Fatal(err)
		}
		replayed.Apply(e)
	}
	hash := golden(t, name, "state.sha256", func() []byte { return []byte(hexHash(t, s)) })
	if got := hexHash(t, replayed); got != string(hash) || cmp.Diff(replayed.Recovery(), s.Recovery()) != "" || replayed.Recovering() {
		t.Errorf("the log gives another state than it did: %s, was %s", got, hash)
	}
	if got := readSnapshot(t, snapshotBytes(t, replayed)); cmp.Diff(got.Recovery(), replayed.Recovery()) != "" {
		t.Error("a recovery that has ended does not survive a snapshot")
	}
}

// TestWhatARecoveryFindsOfOtherDirectoriesIsInItsEntries: branches' epochs, and tenants
// that live elsewhere.
func TestWhatARecoveryFindsOfOtherDirectoriesIsInItsEntries(t *testing.T) {
	x := fsm.UnitRef{Unit: "x", ID: 7}
	for _, cmd := range []fsm.Command{
		&fsm.TakeOver{Recovery: 9, Units: []fsm.TakenUnit{{UnitRef: x, Node: "n1", Epoch: 2<<50 | 7}}, Elsewhere: []fsm.TenantName{"a", "b"}},
		&fsm.AdoptUnit{UnitRef: x, Node: "n1", Epoch: 1<<50 | 3},
	} {
		b, err := proto.EncodeEntry(fsm.Entry{Cmd: cmd})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := proto.DecodeEntry(1, 1, b); err != nil || !cmp.Equal(e.Cmd, cmd) {
			t.Errorf("%+v came back as %+v, %v", cmd, e.Cmd, err)
		}
	}
}
