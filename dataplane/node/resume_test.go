package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/internal/boottime"
)

// TestL10ACopyFollowsAgainAtItsStart: a copy that restarts acknowledges writes again
// though nobody tells it whom to follow; the control plane may be down for hours.
func TestL10ACopyFollowsAgainAtItsStart(t *testing.T) {
	dirs, made := []string{t.TempDir(), t.TempDir()}, 0
	p, f := startPair(t, func(c *Config) { c.Store.Dir = dirs[made]; made++ })
	p.want(200, "POST", "/t/acme/query", insert)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	kept, err := os.Stat(filepath.Join(dirs[1], "node.json"))
	if err != nil || kept.Mode().Perm() != 0o600 {
		t.Errorf("%v %v: others may read what the node shows to its sources", kept.Mode(), err)
	}
	f = startLeased(t, func(c *Config) { c.Store.Dir, c.KeepUnits = dirs[1], true })
	p.want(200, "POST", "/t/acme/query", insert) // waits for the copy
	a := p.want(200, "POST", "/t/acme/query", insert)
	f.want(200, "POST", "/t/acme/query", `{"sql":"select count(*) from t"}`, "Domicile-Mode", "read", "Domicile-After", a.header.Get("Domicile-Position"))
	// What is kept for sources that are not followed any more goes at the next start.
	f.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	startLeased(t, func(c *Config) { c.Store.Dir, c.KeepUnits, c.Clock = dirs[1], true, &boottime.Manual{} })
	eventually(t, "the token to be forgotten", func() bool {
		text, err := os.ReadFile(filepath.Join(dirs[1], "node.json"))
		return err == nil && !strings.Contains(string(text), adminToken)
	})
}
