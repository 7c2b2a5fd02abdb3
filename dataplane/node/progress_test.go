package node

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
	"domicile/proto"
)

// line gives what GET units says of the unit acme alone.
func (n *leasedNode) line() (u proto.HeldUnit) {
	n.t.Helper()
	a := n.admin(200, "GET", "units?unit=other&unit=acme", "")
	var list []proto.HeldUnit
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list) != 1 || list[0].Unit != "acme" {
		n.t.Fatalf("%v: %s", err, a.body)
	}
	return list[0]
}

// TestM7AMoveIsSeenAtItsNodes: how much of the image has come, why it does not go on, and
// that the source is sending.
func TestM7AMoveIsSeenAtItsNodes(t *testing.T) {
	pieces, goOn := 0, make(chan error)
	p := startLeased(t, func(c *Config) { c.KeepUnits = true })
	p.create("acme", 1)
	p.create("other2", 2)
	p.lease(`[{"unit":"acme","id":1}]`)
	p.query("acme", "create table t (v)")
	p.query("acme", "insert into t select zeroblob(9000000)") // too large for an entry
	f := startLeased(t, func(c *Config) {
		c.KeepUnits = true
		c.Store.Fault = func(op store.FileOp, _ string) error {
			if op != store.OpImage {
				return nil
			}
			if pieces++; pieces == 10 {
				return <-goOn
			}
			return nil
		}
	})
	if u := p.line(); u.State != "active" {
		t.Errorf("%+v", u)
	}
	f.followAs(p, "target")
	wait.For(t, "part of the image", func() error {
		u := f.line()
		if u.Image == nil || u.Image.Bytes == 0 {
			return os.ErrNotExist
		}
		if u.Image.Bytes >= u.Image.Total || u.Image.Total < 9000000 || u.State != "receiving" || u.Kind != proto.CopyTarget {
			t.Errorf("%+v %+v", u, u.Image)
		}
		return nil
	})
	if u := p.line(); u.State != "sending" || u.Role != "primary" {
		t.Errorf("%+v", u)
	}
	p.want(200, "POST", "/t/acme/query", `{"sql":"insert into t values (1)"}`)
	goOn <- &os.PathError{Op: "write", Path: "image", Err: unix.ENOSPC}
	wait.For(t, "the trouble to be told", func() error {
		if u := f.line(); u.Image != nil || !strings.Contains(u.Problem, "disk full") {
			return os.ErrNotExist
		}
		return nil
	})
	f.awaitUnit(`"position":"1:3"`)
	wait.For(t, "its end", func() error {
		if u := f.line(); u.Problem != "" || u.Image != nil {
			return os.ErrExist
		}
		return nil
	})
	f.followAs(p, "")
	wait.For(t, "the source to hear of it", func() error {
		if u := p.line(); u.State != "active" {
			return os.ErrExist
		}
		return nil
	})
	p.admin(200, "POST", "tenants/acme/freeze", `{"ms":60000,"authority":"c1/global","history":1,"term":1}`)
	if u := p.line(); u.State != "sending" {
		t.Errorf("%+v", u)
	}
	p.admin(400, "GET", "units?unit=A.B.C", "")
	var st proto.NodeStats
	if err := json.Unmarshal([]byte(p.admin(200, "GET", "stats", "").body), &st); err != nil || st.Free == 0 {
		t.Errorf("%v %+v", err, st)
	}
}
