package testcluster

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/dataplane/node/replica"
	"domicile/fsm"
	"domicile/internal/netfault"
	"domicile/proto"
)

// aFrame is as the replication protocol has it; its sum is not looked at.
func aFrame(kind byte, unit uint32, payload string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(append(b, kind), unit)
	return append(append(b, payload...), 0, 0, 0, 0)
}

const entry = 18

// TestI2TheTapTellsBytesThatMayNotPass: bytes of a unit between regions pass during a move
// that named the other region and while it is read there, and at no other time; whatever
// the pieces that they come in.
func TestI2TheTapTellsBytesThatMayNotPass(t *testing.T) {
	now := time.Now()
	eu, us, tr := fsm.RegionName("eu"), fsm.RegionName("us"), fsm.RegionName("tr")
	long := now.Add(-time.Hour)
	for _, c := range []struct {
		name  string
		moves []proto.Move
		reads map[span]window
		wrong bool
	}{
		{"nothing", nil, nil, true},
		{"a move there", []proto.Move{{Tenant: "acme", From: "n1", Region: &us, Started: now}}, nil, false},
		{"a move back", []proto.Move{{Tenant: "acme", From: "us-n1", Region: &eu, Started: now}}, nil, false},
		{"a move there, told by who leads since", []proto.Move{{Tenant: "acme", FromRegion: &eu, Region: &us, Started: now}}, nil, false},
		{"a move there from a third region", []proto.Move{{Tenant: "acme", FromRegion: &tr, Region: &us, Started: now}}, nil, true},
		{"another's move", []proto.Move{{Tenant: "other", From: "n1", Region: &us, Started: now}}, nil, true},
		{"a move to a third region", []proto.Move{{Tenant: "acme", From: "n1", To: "tr-n1", Started: now}}, nil, true},
		{"a move within the region", []proto.Move{{Tenant: "acme", From: "n1", To: "n2", Region: &eu, Started: now}}, nil, true},
		{"a move that has ended", []proto.Move{{Tenant: "acme", From: "n1", Region: &us, Started: long, Ended: &long}}, nil, true},
		{"a move that came later", []proto.Move{{Tenant: "acme", From: "n1", Region: &us, Started: now.Add(time.Hour)}}, nil, true},
		{"a reader", nil, map[span]window{{"acme", "n2", "us-n1"}: {begin: long}}, false},
		{"a reader elsewhere", nil, map[span]window{{"acme", "n1", "tr-n1"}: {begin: long}}, true},
		{"a reader that was removed", nil, map[span]window{{"acme", "n1", "us-n1"}: {long, long}}, true},
	} {
		tap := newTap()
		for node, region := range map[string]string{"n1": "eu", "n2": "eu", "us-n1": "us", "tr-n1": "tr"} {
			tap.lives(node, region)
		}
		head := "GET " + replica.Path + " HTTP/1.1\r\nHost: n1\r\n\r\n"
		said := append([]byte(head), aFrame(frameFollow, 7, strings.Repeat("x", followNameAt)+"acme")...)
		for piece := range slices.Chunk(said, 5) {
			tap.look("us-n1", "n1", 1, netfault.Forward, piece)
		}
		fed := append([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"), aFrame(entry, 7, "a commit")...)
		for piece := range slices.Chunk(fed, 7) {
			tap.look("us-n1", "n1", 1, netfault.Backward, piece)
		}
		if len(tap.seen) != 1 {
			t.Fatalf("the tap saw %v", tap.seen)
		}
		if wrong := tap.judge(c.moves, c.reads); (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %q", c.name, wrong)
		}
		if again := tap.judge(nil, nil); len(again) > 0 || tap.crossed()["acme"] == 0 {
			t.Errorf("%s: judged twice: %q; %v passed", c.name, again, tap.crossed())
		}
	}
}

// TestTheTapUnderstandsWhatItSees, or says that it does not.
func TestTheTapUnderstandsWhatItSees(t *testing.T) {
	for name, said := range map[string][]byte{
		"another request":        []byte("GET /_admin/tenants/acme/file HTTP/1.1\r\n\r\n"),
		"a unit without a name":  append([]byte("GET "+replica.Path+" HTTP/1.1\r\n\r\n"), aFrame(3, 9, "")...),
		"a follow without one":   append([]byte("GET "+replica.Path+" HTTP/1.1\r\n\r\n"), aFrame(frameFollow, 9, "short")...),
		"a frame beyond measure": append([]byte("GET "+replica.Path+" HTTP/1.1\r\n\r\n"), 255, 255, 255, 255, 18, 0, 0, 0, 0),
	} {
		tap := newTap()
		tap.lives("a", "eu")
		tap.lives("b", "us")
		tap.look("a", "b", 1, netfault.Forward, said)
		if len(tap.judge(nil, nil)) == 0 {
			t.Errorf("%s was taken for nothing", name)
		}
		tap = newTap()
		tap.lives("a", "eu")
		tap.lives("b", "eu")
		tap.look("a", "b", 1, netfault.Forward, said)
		if wrong := tap.judge(nil, nil); len(wrong) > 0 {
			t.Errorf("within a region: %s", wrong)
		}
	}
}
