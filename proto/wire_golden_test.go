package proto_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

// A version's golden files are written once, by go test ./proto -run Golden
// -golden, and never changed: every later version has to read them. Those of the version
// that is not released yet are written anew.
var writeGolden = flag.Bool("golden", false, "write the golden files that are missing, and those of the version to come")

// unreleased is the version to come, "" where there is none: set when something of it is
// stored, and cleared with its release.
const unreleased = "v4"

// goldenLogs are the logs of each version.
var goldenLogs = map[string]func() []fsm.Entry{
	"v1": func() []fsm.Entry { return logOf(everyCommand()) },
	"v2": func() []fsm.Entry { return logOf(commandsV2()) },
	// Of version 2 too: what came after its first log.
	"v2-choices": func() []fsm.Entry { return logOf(commandsV2Choices()) },
	"v3":         func() []fsm.Entry { return logOf(commandsV3()) },
	"v4":         func() []fsm.Entry { return logOf(commandsV4()) },
	"v4-region":  func() []fsm.Entry { return logOf(commandsV4Region()) },
}

func ptr[T any](v T) *T { return &v }

// everyCommand holds each command of version 1 at least once, with every field
// set.
func everyCommand() []fsm.Command {
	settings := fsm.Settings{
		DefaultRegion: ptr(fsm.RegionName("eu")), Replicas: 1, AutoFailover: 3000, RepairAfter: 10_000, RemoveAfter: 10_001, ReplicationToken: "rt",
	}
	return []fsm.Command{
		&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c0ffee", Region: "eu", History: 2}, Settings: settings},
		&fsm.SetSettings{Settings: fsm.Settings{Replicas: 2, DefaultRegion: ptr(fsm.RegionName(""))}},
		&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: 1}},
		&fsm.PutMember{Member: fsm.Member{ID: "s2", Raft: "127.0.0.1:8171", API: "http://127.0.0.1:8170", Version: 1}},
		&fsm.DeleteMember{ID: "s2"},
		&fsm.PutNode{Name: "n1", Addr: ptr("127.0.0.1:8081"), Token: ptr("secret"), Zone: ptr(fsm.ZoneName("a")), Weight: ptr(uint32(3))},
		&fsm.PutNode{Name: "n2", Addr: ptr("127.0.0.1:8082"), Token: ptr("secret"), Region: ptr(fsm.RegionName("")), Weight: ptr(uint32(0))},
		&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))},
		&fsm.PutNode{Name: "n3", Addr: ptr("127.0.0.1:8083"), Token: ptr("secret"), Region: ptr(fsm.RegionName("us"))},
		&fsm.DeleteNode{Name: "n3"},
		&fsm.RecordUsage{Usage: []fsm.NodeUsage{{Node: "n1", Bytes: 1 << 40}, {Node: "n9", Bytes: 1}}},
		&fsm.CreateTenant{Name: "acme", Region: ptr(fsm.RegionName("")), Node: ptr(fsm.NodeName("n1")), Pinned: true, Schema: "CREATE TABLE t (x)", Silent: []fsm.NodeName{"n2", "n9"}},
		&fsm.CreateTenant{Name: "wide", Buckets: 16, Hash: fsm.HashMPCRC32},
		&fsm.AdvanceJob{ID: 12, From: fsm.StepMake, To: fsm.StepSchema},
		&fsm.NoteJob{ID: 12, Problem: "n1 does not answer"},
		&fsm.AdvanceJob{ID: 12, From: fsm.StepSchema, To: fsm.StepDone},
		&fsm.CreateTenant{Name: "umbrella"},
		&fsm.AdvanceJob{ID: 17, From: fsm.StepMake, To: fsm.StepUndo, Refusal: &fsm.Refusal{
			Code: fsm.CodeNodeRefused, Text: "no", Fields: map[string]string{"node": "n1", "status": "507"},
		}},
		&fsm.SetPin{Tenant: "acme", Pinned: false},
		&fsm.PutRegion{Region: fsm.Region{Name: "ap", Routers: []string{"http://r1:8090", "https://r2:8090"}}},
		&fsm.PutRegion{Region: fsm.Region{Name: "sa", Routers: []string{"http://r3:8090"}}},
		&fsm.DeleteRegion{Name: "sa"},
		&fsm.CreateTenant{Name: "hooli"},
		&fsm.AdvanceJob{ID: 23, From: fsm.StepMake, To: fsm.StepDone},
		&fsm.CreateTenant{Name: "gone"},
		&fsm.DeleteTenant{Name: "hooli"},
		&fsm.DeleteTenant{Name: "gone"},
	}
}

func goldenLog() []fsm.Entry {
	return slices.Concat(goldenLogs["v1"](), goldenLogs["v2"](), goldenLogs["v3"](), goldenLogs["v4"](), goldenLogs["v4-region"]())
}

func logOf(commands []fsm.Command) []fsm.Entry {
	var log []fsm.Entry
	for i, c := range commands {
		e := fsm.Entry{Revision: fsm.Revision(i + 1), Term: 4, At: 1_700_000_000_000 + fsm.Millis(i), Cmd: c}
		if i%3 == 0 {
			e.Decided, e.Key, e.Fingerprint = 4, fmt.Sprintf("key-%c", 'a'+i), "print"
		}
		log = append(log, e)
	}
	return log
}

func TestEveryCommandIsInAGoldenLog(t *testing.T) {
	kinds, effects := make(map[reflect.Type]bool), make(map[string]bool)
	s := fsm.New()
	for _, e := range logOf(commandsV2()) {
		r, _ := s.Apply(e)
		if refused := r.Refusal != nil; refused != (e.Revision == 41) {
			t.Errorf("%d, %T: %v", e.Revision, e.Cmd, r.Refusal)
		}
		effects["flips"] = effects["flips"] || len(r.Flips) > 0
		effects["left"] = effects["left"] || len(r.Left) > 0
		effects["added"] = effects["added"] || len(r.Added) > 0
	}
	if len(effects) != 3 || slices.Contains(slices.Collect(maps.Values(effects)), false) {
		t.Errorf("version 2: %v", effects)
	}
	for _, e := range goldenLog() {
		kinds[reflect.TypeOf(e.Cmd)] = true
	}
	if len(kinds) != 41 {
		t.Errorf("%d kinds of commands are in the golden logs", len(kinds))
	}
}

func TestEntriesSurviveTheirEncoding(t *testing.T) {
	log := goldenLog()
	for seed := range uint64(20) {
		log = append(log, fsmtest.Entries(seed, 200)...)
		log = append(log, fsmtest.RegionsEntries(seed, 200)...)
	}
	for _, e := range log {
		if diff := cmp.Diff(e, wire(t, e)); diff != "" {
			t.Fatalf("%T: %s", e.Cmd, diff)
		}
	}
}

func golden(t *testing.T, version, name string, content func() []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", version, name)
	b, err := os.ReadFile(path)
	anew := unreleased != "" && strings.HasPrefix(version, unreleased)
	if *writeGolden && (os.IsNotExist(err) || anew) {
		b = content()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenFilesOfEveryVersion(t *testing.T) {
	for version, log := range goldenLogs {
		t.Run(version, func(t *testing.T) { testGolden(t, version, log()) })
	}
}

func testGolden(t *testing.T, version string, entries []fsm.Entry) {
	want := fsm.New()
	var encoded []byte
	for _, e := range entries {
		want.Apply(e)
		b, err := proto.EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		encoded = binary.AppendUvarint(encoded, uint64(e.Revision))
		encoded = binary.AppendUvarint(encoded, e.Term)
		encoded = append(binary.AppendUvarint(encoded, uint64(len(b))), b...)
	}
	log := golden(t, version, "log", func() []byte { return encoded })
	if !bytes.Equal(log, encoded) {
		t.Error("entries are encoded in another way than they were")
	}
	replayed := fsm.New()
	for r := bytes.NewReader(log); r.Len() > 0; {
		revision, term, b := readEntry(t, r)
		e, err := proto.DecodeEntry(revision, term, b)
		if err != nil {
			t.Fatal(err)
		}
		replayed.Apply(e)
	}
	hash := golden(t, version, "state.sha256", func() []byte { return []byte(hexHash(t, want)) })
	if got := hexHash(t, replayed); got != string(hash) {
		t.Errorf("the log gives another state than it did: %s, was %s", got, hash)
	}
	snapshot := golden(t, version, "snapshot", func() []byte { return snapshotBytes(t, want) })
	if got := hexHash(t, readSnapshot(t, snapshot)); got != string(hash) {
		t.Errorf("the snapshot holds another state than it did: %s, was %s", got, hash)
	}
	streams := goldenStreams
	if version >= "v4" {
		streams = streams[len(streams)-1:] // written by none that tells less
	}
	for _, g := range streams {
		stream := golden(t, version, g.name, func() []byte { return streamBytes(t, want) })
		if v := follow(t, bytes.NewReader(stream)); !v.Equal(viewWithout(t, replayed, g.lacks)) {
			t.Errorf("%s holds another directory than it did", g.name)
		}
	}
}

// goldenStreams are snapshots as followers got them, by what they did not tell yet.
var goldenStreams = []struct {
	name  string
	lacks func(e *fsm.Event)
}{
	{"stream", func(e *fsm.Event) { withoutLost(e); withoutPromoting(e); withoutUnleased(e) }},
	{"stream-lost", func(e *fsm.Event) { withoutPromoting(e); withoutUnleased(e) }},
	{"stream-promoting", withoutUnleased},
	{"stream-unleased", func(*fsm.Event) {}},
}

func withoutLost(e *fsm.Event) {
	if e.Node != nil {
		e.Node.Lost = false
	}
}

func withoutUnleased(e *fsm.Event) {
	if e.Node != nil {
		e.Node.Unleased = false
	}
}

func withoutPromoting(e *fsm.Event) {
	if e.Unit != nil {
		e.Unit.Promoting = false
	}
}

// viewWithout is what followers were told of s that were not told everything.
func viewWithout(t *testing.T, s *fsm.State, lacks func(e *fsm.Event)) *fsm.View {
	t.Helper()
	v := fsm.NewView()
	events := slices.Collect(fsm.Project(s))
	for i := range events {
		lacks(&events[i])
	}
	if err := v.Apply(0, s.Revision(), events); err != nil {
		t.Fatal(err)
	}
	return v
}

func readEntry(t *testing.T, r *bytes.Reader) (fsm.Revision, uint64, []byte) {
	t.Helper()
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = binary.ReadUvarint(r); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, n[2])
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return fsm.Revision(n[0]), n[1], b
}

func hexHash(t *testing.T, s *fsm.State) string {
	t.Helper()
	h, err := proto.StateHash(s)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h[:])
}
