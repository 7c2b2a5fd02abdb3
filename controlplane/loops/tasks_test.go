package loops

import (
	"testing"

	"domicile/fsm"
)

// TestARegionThatDoesNotAnswerIsAskedAgainWithinASecond: calls of a job to a region go one
// at a time, and after one that failed there is a pause that does not grow beyond TaskAgain.
func TestARegionThatDoesNotAnswerIsAskedAgainWithinASecond(t *testing.T) {
	w := newWorld(t)
	c := TaskCall{Job: 7, Region: "us"}
	cmd := &fsm.ForgoTask{Job: 7}
	ask := func() (bool, fsm.Millis) {
		p := planner{s: w.state, m: w.m, now: w.now}
		p.ask(c, cmd, 0)
		for _, a := range p.plan.Tasks {
			w.m.BeginTask(a, w.now)
		}
		return len(p.plan.Tasks) == 1, p.plan.Wake
	}
	first := w.now
	for n := range 20 {
		if asked, _ := ask(); !asked {
			t.Fatalf("call %d is not made", n)
		}
		if asked, _ := ask(); asked {
			t.Fatal("two calls are under way at once")
		}
		w.m.EndTask(c, TaskAnswer{Outcome: Silent}, w.now)
		asked, wake := ask()
		if asked || wake <= w.now || wake > w.now+TaskAgain {
			t.Fatalf("after failure %d: asked %v, looks again at %d, now %d", n, asked, wake, w.now)
		}
		w.now = wake
	}
	k := w.m.task(c)
	if k.silent != first {
		t.Errorf("silent since %d, and was first asked at %d", k.silent, first)
	}
	ask()
	w.m.EndTask(c, TaskAnswer{Outcome: Refused, Refusal: &fsm.Refusal{Code: fsm.CodeTaskUnknown}}, w.now)
	if !k.refused(fsm.CodeTaskUnknown) || k.silent != 0 || k.unwilled == 0 || k.known {
		t.Errorf("a refusal is kept as %+v", *k)
	}
	w.now += TaskAgain
	ask()
	w.m.EndTask(c, TaskAnswer{Outcome: Done, Task: TaskState{Step: fsm.StepCopy}}, w.now)
	if !k.known || k.state.Step != fsm.StepCopy || k.heard != w.now || k.refusal() != nil || k.unwilled != 0 {
		t.Errorf("an answer is kept as %+v", *k)
	}
	if asked, _ := ask(); !asked {
		t.Error("nothing stands in the way of another call")
	}
}
