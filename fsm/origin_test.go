package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// A create that names a node, and no region, means the directory that was asked; one that
// names neither goes to the region that was asked only where nothing else says (T2).
func TestT2ANodeIsOfTheDirectoryThatWasAsked(t *testing.T) {
	d := newRegions(t)
	us, node := fsm.RegionName("us"), fsm.NodeName("n1")
	home := func(name fsm.TenantName, cmd fsm.CreateTenant) fsm.RegionName {
		t.Helper()
		cmd.Name = name
		d.ok(&cmd)
		got, _ := d.Tenant(name)
		return got.Home
	}
	if got := home("a", fsm.CreateTenant{Node: &node, Origin: &us}); got != us {
		t.Errorf("with a node it goes to %q", got)
	}
	if got := home("b", fsm.CreateTenant{Origin: &us}); got != us {
		t.Errorf("with neither, where no node is in the global directory, it goes to %q", got)
	}
	addr, token := "127.0.0.1:8081", "secret"
	d.ok(&fsm.PutNode{Name: node, Addr: &addr, Token: &token})
	if got := home("c", fsm.CreateTenant{Origin: &us}); got != "" {
		t.Errorf("with neither, where the global directory has a node, it goes to %q", got)
	}
	if got := home("d", fsm.CreateTenant{Node: &node}); got != "" {
		t.Errorf("with a node of the global directory it goes to %q", got)
	}
	if got := home("e", fsm.CreateTenant{Node: &node, Origin: &us}); got != us {
		t.Errorf("with a node it goes to %q, though us was asked", got)
	}
}
