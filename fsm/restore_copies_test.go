package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// Check finds each of these in a directory with copies, so that a snapshot that
// holds one is refused (I1, I2, I4).
func TestI1I2CheckFindsWhatIsWrongWithCopies(t *testing.T) {
	settings := fsm.Settings{Replicas: 1, AutoFailover: 3000, LongestLease: 3000}
	type records struct {
		meta fsm.Meta
		list fsm.Revision
		n2   fsm.Node
		unit fsm.Placed
		jobs []fsm.Job
	}
	make := func(change func(*records)) error {
		r := records{
			meta: fsm.Meta{Revision: 100, Now: 9, Level: 2, Scope: fsm.Scope{Cluster: "c", History: 1}, Settings: settings},
			list: 60, n2: *node("n2", "eu"),
			unit: fsm.Placed{ID: 2, Unit: "a", Node: "n1", State: fsm.UnitActive, Epoch: 50, Copies: []fsm.Copy{{Node: "n2", State: fsm.CopyInSync, Since: 9, Entry: 60}}},
		}
		change(&r)
		b, err := fsm.NewBuilder(r.meta)
		if err != nil {
			return err
		}
		for _, n := range []*fsm.Node{node("n1", "eu"), &r.n2, node("n3", "us")} {
			if err := b.AddNode(n, r.list); err != nil {
				return err
			}
		}
		if err := b.AddTenant(&fsm.Tenant{Name: "a"}, &r.unit); err != nil {
			return err
		}
		for i := range r.jobs {
			if err := b.AddJob(&r.jobs[i]); err != nil {
				return err
			}
		}
		_, err = b.State()
		return err
	}
	copies := func(c ...fsm.Copy) func(*records) { return func(r *records) { r.unit.Copies = c } }
	waiting := func(r *records) {
		r.unit.Previous, r.unit.Lacks, r.unit.Copies = "n2", 1, []fsm.Copy{{Node: "n2", State: fsm.CopyFormer}}
	}
	moving := func(change func(*records)) func(*records) {
		return func(r *records) {
			r.unit.State, r.unit.Job = fsm.UnitMoving, 70
			r.jobs = []fsm.Job{{
				ID: 70, Kind: fsm.JobHandover, Source: "n1", Cause: fsm.CauseHand, Step: fsm.StepRelease, Targets: []fsm.Target{{Unit: "a", ID: 2, Node: "n2"}},
			}}
			change(r)
		}
	}
	thaw := func(r *records) { r.jobs[0].Step, r.unit.State, r.unit.Job = fsm.StepThaw, fsm.UnitActive, 0 }
	for name, good := range map[string]func(*records){
		"in sync": func(*records) {}, "not promoted": waiting, "moving": moving(func(*records) {}), "thawing": moving(thaw),
		"thawing, and gone": moving(func(r *records) { thaw(r); r.jobs[0].Targets[0].ID = 1 }),
		"written off":       func(r *records) { waiting(r); r.unit.Previous, r.unit.Copies = "n1", nil },
	} {
		if err := make(good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]func(*records){
		"a copy in no state":            copies(fsm.Copy{Node: "n2", State: 8}),
		"a target of no move":           copies(fsm.Copy{Node: "n2", State: fsm.CopyInSync}, fsm.Copy{Node: "n3", State: fsm.CopyTarget}),
		"a copy of later":               copies(fsm.Copy{Node: "n2", State: fsm.CopyInSync, Since: 10}),
		"a copy of a later entry":       copies(fsm.Copy{Node: "n2", State: fsm.CopyInSync, Entry: 101}),
		"a joining copy elsewhere":      copies(fsm.Copy{Node: "n2", State: fsm.CopyInSync}, fsm.Copy{Node: "n3", State: fsm.CopyJoining}),
		"an in-sync copy elsewhere":     copies(fsm.Copy{Node: "n2", State: fsm.CopyInSync}, fsm.Copy{Node: "n3", State: fsm.CopyInSync}),
		"a joining copy no grant tells": copies(fsm.Copy{Node: "n2", State: fsm.CopyJoining, Entry: 61}),
		"lacks and does not say":        copies(fsm.Copy{Node: "n2", State: fsm.CopyLeaving}),
		"says it lacks":                 func(r *records) { r.unit.Lacks = 5 },
		"its copy is lost, untold":      func(r *records) { r.n2.Lost = true },
		"an epoch of later":             func(r *records) { r.unit.Epoch = 101 },
		"an epoch before it was":        func(r *records) { r.unit.Epoch = 2 },
		"a list older than its epoch":   func(r *records) { r.list = 49 },
		"a list of later":               func(r *records) { r.list = 101 },
		"leases beyond the longest":     func(r *records) { r.meta.Settings.LongestLease = 2999 },
		"a kind of lease that is none":  func(r *records) { r.n2.Lease = 3 },
		"not promoted at the first":     func(r *records) { waiting(r); r.unit.Epoch = 1 },
		"its last primary is forgotten": func(r *records) { waiting(r); r.unit.Copies = nil },
		"its last primary follows":      func(r *records) { waiting(r); r.unit.Copies[0].State, r.unit.Lacks = fsm.CopySyncing, 0 },
		"no node, and not removed":      func(r *records) { r.unit.Node = "" },
		"moving and not promoted":       moving(waiting),
		"moving without a job":          moving(func(r *records) { r.jobs = nil }),
		"moving at a job that thaws":    moving(func(r *records) { r.jobs[0].Step = fsm.StepThaw }),
		"moving at another node's job":  moving(func(r *records) { r.jobs[0].Source = "n2" }),
		"active at a release":           moving(func(r *records) { r.unit.State, r.unit.Job = fsm.UnitActive, 0 }),
		"a handover to another region":  moving(func(r *records) { r.jobs[0].Targets[0].Node = "n3" }),
		"a handover to nobody":          moving(func(r *records) { r.jobs[0].Targets[0].Node = "n9" }),
		"a handover of a former unit":   moving(func(r *records) { r.jobs[0].Targets[0].ID = 1 }),
		"a handover of nothing":         moving(func(r *records) { thaw(r); r.jobs[0].Targets = nil }),
		"a handover of a tenant":        moving(func(r *records) { r.jobs[0].Tenant = "a" }),
		"a handover without a cause":    moving(func(r *records) { r.jobs[0].Cause = 0 }),
		"a handover that makes":         moving(func(r *records) { r.jobs[0].Step = fsm.StepMake }),
		"two handovers of one node":     moving(func(r *records) { two := r.jobs[0]; two.ID, two.Step = 71, fsm.StepThaw; r.jobs = append(r.jobs, two) }),
		"a target twice":                moving(func(r *records) { r.jobs[0].Targets = append(r.jobs[0].Targets, r.jobs[0].Targets[0]) }),
		"a deleting unit at a handover": moving(func(r *records) { r.unit.State = fsm.UnitDeleting }),
		"an active unit at a handover":  moving(func(r *records) { r.unit.State = fsm.UnitActive }),
		"a create that undoes has copies": func(r *records) {
			r.unit.State, r.unit.Job, r.unit.Epoch, r.unit.Copies[0].State = fsm.UnitCreating, 70, 1, fsm.CopySyncing
			r.jobs = []fsm.Job{{ID: 70, Kind: fsm.JobCreate, Tenant: "a", Step: fsm.StepUndo, Refusal: &fsm.Refusal{Code: "x"}, Targets: []fsm.Target{{Unit: "a", ID: 2, Node: "n1"}}}}
		},
		"a delete that forgets a copy": func(r *records) {
			r.unit.State, r.unit.Job = fsm.UnitDeleting, 70
			r.jobs = []fsm.Job{{ID: 70, Kind: fsm.JobDelete, Tenant: "a", Step: fsm.StepRemove, Targets: []fsm.Target{{Unit: "a", ID: 2, Node: "n1"}}}}
		},
	} {
		if make(bad) == nil {
			t.Errorf("%s was not found", name)
		}
	}
}
