package fsm_test

import (
	"testing"

	"domicile/fsm"
)

// TestG3ARegionStaysWithItsOwnGroup: routers of another group of the same region's name are
// not recorded for it, and a region is not taken back from such a group.
func TestG3ARegionStaysWithItsOwnGroup(t *testing.T) {
	d := ready(t, 0)
	put := func(router, authority string) *fsm.PutRegion {
		return &fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{router}, Authority: authority}}
	}
	recorded := func(router, authority string) {
		t.Helper()
		if r, _ := d.Region("us"); r == nil || r.Routers[0] != router || r.Authority != authority {
			t.Errorf("recorded: %+v", r)
		}
	}
	d.refused(fsm.CodeBadRequest, put("http://a:1", "c1/tr"), "c1/tr")
	d.refused(fsm.CodeBadRequest, put("http://a:1", "c1/us\n"))
	d.ok(put("http://a:1", "")) // as before authorities were asked for
	recorded("http://a:1", "")
	d.ok(put("http://a:1", "c1/us"))
	recorded("http://a:1", "c1/us")
	d.ok(put("http://b:1", ""))
	recorded("http://b:1", "c1/us")
	d.refused(fsm.CodeRegionMismatch, put("http://b:1", "c2/us"), "c1/us", "c2/us", "DELETE /_shard/regions/us")
	stage := &fsm.StageRegion{Giver: fsm.Giver{Authority: "c2/us", History: 1, Job: 3}, Region: "us", Try: 1, Part: 1}
	d.refused(fsm.CodeScope, stage, "c1/us", "c2/us")
	stage.Authority = "c1/us"
	d.ok(stage)
	d.ok(&fsm.CloseIntake{Giver: stage.Giver})
	d.ok(&fsm.DeleteRegion{Name: "us"})
	d.ok(put("http://b:1", "c2/us"))
	recorded("http://b:1", "c2/us")
}

// TestG3AnAuthorityIsRecordedOnceEveryServerKnowsOfIt: one of before would forget it.
func TestG3AnAuthorityIsRecordedOnceEveryServerKnowsOfIt(t *testing.T) {
	d := newDir(t)
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://a:1"}, Authority: "c1/us"}})
	if r, _ := d.Region("us"); r.Authority != "" {
		t.Errorf("at an old level: %+v", r)
	}
}
