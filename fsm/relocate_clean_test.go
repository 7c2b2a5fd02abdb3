package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// What a move has left behind, and is removed only after a grace, keeps nobody from the
// tenant: it is moved on, and deleted, meanwhile.
func TestM5ATenantThatArrivedIsFreeWhileItsSourceIsCleared(t *testing.T) {
	d := newRegions(t)
	move := d.ok(&fsm.BeginRelocation{Tenant: "acme", Region: "tr"}).Job
	for _, to := range []fsm.JobStep{fsm.StepRelease, fsm.StepPromote, fsm.StepClean} {
		d.refused(fsm.CodeBusy, &fsm.BeginRelocation{Tenant: "acme", Region: "us"})
		d.refused(fsm.CodeBusy, &fsm.DeleteTenant{Name: "acme"})
		d.advance(move, to)
	}
	again := d.ok(&fsm.BeginRelocation{Tenant: "acme", Region: "us"}).Job
	d.advance(move, fsm.StepDone)
	d.refused(fsm.CodeBusy, &fsm.DeleteTenant{Name: "acme"})
	for _, to := range []fsm.JobStep{fsm.StepRelease, fsm.StepPromote, fsm.StepClean} {
		d.advance(again, to)
	}
	gone := d.ok(&fsm.DeleteTenant{Name: "acme"}).Job
	d.advance(gone, fsm.StepDone)
	d.advance(again, fsm.StepDone)
	if _, ok := d.Tenant("acme"); ok {
		t.Error("the tenant is there still")
	}
}

// newRegions is a global directory of two regions that keep their own, and a tenant of us.
func newRegions(t *testing.T) *regionsDir { return newRegionsOf(t, func(*dir) {}) }

// newRegionsOf is that, of a directory that begins so.
func newRegionsOf(t *testing.T, begins func(*dir)) *regionsDir {
	d := &regionsDir{newDir(t)}
	begins(d.dir)
	d.ok(&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", Version: fsm.Version}})
	for _, r := range []fsm.RegionName{"us", "tr"} {
		d.ok(&fsm.PutRegion{Region: fsm.Region{Name: r, Routers: []string{"http://" + string(r) + ":8090"}}})
	}
	us := fsm.RegionName("us")
	d.advance(d.ok(&fsm.CreateTenant{Name: "acme", Region: &us}).Job, fsm.StepDone)
	return d
}

type regionsDir struct{ *dir }

// advance takes a job to a step.
func (d *regionsDir) advance(id fsm.JobID, to fsm.JobStep) {
	d.t.Helper()
	j, _ := d.Job(id)
	d.ok(&fsm.AdvanceJob{ID: id, From: j.Step, To: to})
}
