package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// Check finds each of these in a directory with moves, so that a snapshot that holds one
// is refused (I2, I4).
func TestI2I4CheckFindsWhatIsWrongWithMoves(t *testing.T) {
	type records struct {
		n1, n2 fsm.Node
		unit   fsm.Placed
		jobs   []fsm.Job
	}
	target := []fsm.Target{{Unit: "a", ID: 2, Node: "n2"}}
	make := func(change func(*records)) error {
		r := records{
			n1: *node("n1", "eu"), n2: *node("n2", "eu"),
			unit: fsm.Placed{ID: 2, Unit: "a", Node: "n1", State: fsm.UnitActive, Epoch: 1, Copies: []fsm.Copy{{Node: "n2", State: fsm.CopyTarget, Entry: 60}}},
			jobs: []fsm.Job{{ID: 55, Kind: fsm.JobMove, Tenant: "a", Source: "n1", Cause: fsm.CauseMove, Step: fsm.StepCopy, Targets: target}},
		}
		change(&r)
		b, err := fsm.NewBuilder(fsm.Meta{Revision: 100, Now: 9, Level: 3, Scope: fsm.Scope{Cluster: "c", History: 1}})
		if err != nil {
			return err
		}
		for _, n := range []*fsm.Node{node("m1", "us"), node("m2", "us"), &r.n1, &r.n2} {
			if err := b.AddNode(n, 60); err != nil {
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
	job := func(change func(*fsm.Job)) func(*records) { return func(r *records) { change(&r.jobs[0]) } }
	release := func(r *records) {
		r.unit.State, r.unit.Job = fsm.UnitMoving, 55
		r.jobs[0].Step, r.jobs[0].Release = fsm.StepRelease, 70
	}
	abroad := func(r *records) {
		r.jobs[0].Targets = []fsm.Target{{Unit: "a", ID: 2, Node: "m1"}}
		r.unit.Copies = []fsm.Copy{{Node: "m1", State: fsm.CopyTarget, Entry: 60}, {Node: "m2", State: fsm.CopyTarget, Entry: 60}}
	}
	alone := func(step fsm.JobStep) func(*records) {
		return func(r *records) { r.jobs[0].Step, r.unit.Copies = step, nil }
	}
	cancelled := &fsm.Refusal{Code: fsm.CodeCancelled, Text: "no"}
	for name, good := range map[string]func(*records){
		"copying": func(*records) {}, "releasing": release, "copying abroad": abroad, "waiting": alone(fsm.StepQueue), "cleaning": alone(fsm.StepClean),
		"thawing":           job(func(j *fsm.Job) { j.Step = fsm.StepThaw }),
		"thawing, given up": func(r *records) { alone(fsm.StepThaw)(r); r.jobs[0].Refusal = cancelled },
		"of a former unit": func(r *records) {
			alone(fsm.StepQueue)(r)
			r.jobs[0].Targets = []fsm.Target{{Unit: "a", ID: 1, Node: "n9"}}
		},
		"a rebalance": func(r *records) {
			r.jobs = append(r.jobs, fsm.Job{ID: 56, Kind: fsm.JobRebalance, Step: fsm.StepBegin, Targets: target})
		},
		"drained":             func(r *records) { r.n1.Drain = &fsm.Drain{ID: 70, Units: 1} },
		"a target not copied": alone(fsm.StepCopy), // it was the primary for a while
	} {
		if err := make(good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]func(*records){
		"a target without a move":          func(r *records) { r.jobs = nil },
		"a target of a move that waits":    job(func(j *fsm.Job) { j.Step = fsm.StepQueue }),
		"a target of a move that flipped":  job(func(j *fsm.Job) { j.Step = fsm.StepPromote }),
		"a target of a move that is over":  job(func(j *fsm.Job) { j.Step = fsm.StepClean }),
		"a target of a move that ended":    job(func(j *fsm.Job) { j.Step, j.Ended, j.EndedIn = fsm.StepDone, 9, 80 }),
		"a target of a move given up":      job(func(j *fsm.Job) { j.Step, j.Refusal = fsm.StepThaw, cancelled }),
		"a target of a former unit's move": job(func(j *fsm.Job) { j.Targets = []fsm.Target{{Unit: "a", ID: 1, Node: "n2"}} }),
		"a target elsewhere (I2)":          func(r *records) { abroad(r); r.jobs[0].Targets = target },
		"a second target at home":          job(func(j *fsm.Job) { j.Targets = []fsm.Target{{Unit: "a", ID: 2, Node: "m1"}} }),
		"a move to nobody": func(r *records) {
			alone(fsm.StepQueue)(r)
			r.jobs[0].Targets = []fsm.Target{{Unit: "a", ID: 2, Node: "n9"}}
		},
		"a move of two":                  job(func(j *fsm.Job) { j.Targets = append(j.Targets[:1:1], target...) }),
		"a move from nowhere":            job(func(j *fsm.Job) { j.Source = "" }),
		"a move by a lapse":              job(func(j *fsm.Job) { j.Cause = fsm.CauseLapsed }),
		"a move that removes":            job(func(j *fsm.Job) { j.Step = fsm.StepRemove }),
		"a move given up after the flip": func(r *records) { alone(fsm.StepPromote)(r); r.jobs[0].Refusal = cancelled },
		"two moves of a unit":            func(r *records) { two := r.jobs[0]; two.ID = 56; r.jobs = append(r.jobs, two) },
		"a release of an active unit":    func(r *records) { release(r); r.unit.State, r.unit.Job = fsm.UnitActive, 0 },
		"a release of a later entry":     func(r *records) { release(r); r.jobs[0].Release = 101 },
		"a release without its entry":    func(r *records) { release(r); r.jobs[0].Release = 0 },
		"a release by another node":      func(r *records) { release(r); r.jobs[0].Source = "n2" },
		"a release to no copy":           func(r *records) { release(r); r.unit.Copies = nil },
		"an empty rebalance": func(r *records) {
			r.jobs = append(r.jobs, fsm.Job{ID: 56, Kind: fsm.JobRebalance, Step: fsm.StepBegin})
		},
		"a rebalance of a tenant": func(r *records) {
			r.jobs = append(r.jobs, fsm.Job{ID: 56, Kind: fsm.JobRebalance, Tenant: "a", Step: fsm.StepBegin, Targets: target})
		},
		"two rebalances": func(r *records) {
			for id := fsm.JobID(56); id < 58; id++ {
				r.jobs = append(r.jobs, fsm.Job{ID: id, Kind: fsm.JobRebalance, Step: fsm.StepBegin, Targets: target})
			}
		},
		"a standby that is drained": func(r *records) { r.n1.Standby, r.n2.Drain = "n2", &fsm.Drain{ID: 70} },
		"a drain of a later entry":  func(r *records) { r.n1.Drain = &fsm.Drain{ID: 101} },
	} {
		if make(bad) == nil {
			t.Errorf("%s was not found", name)
		}
	}
}
