package proto_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/fsm"
)

// filled sets every field that v holds, and all that they hold, to something that is not
// its zero: a field that an encoding leaves out does not come back.
func filled(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			filled(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		filled(key, n)
		filled(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("s" + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1 + *n%2)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(*n)
	case reflect.Int64:
		v.SetInt(int64(*n))
	default:
		panic("BUG: a command holds a " + v.Type().String())
	}
}

// TestEveryFieldOfWhatCameWithVersion4SurvivesItsEncoding, also of the commands that are
// older and have got fields since.
func TestEveryFieldOfWhatCameWithVersion4SurvivesItsEncoding(t *testing.T) {
	for _, cmd := range []fsm.Command{
		&fsm.BindGlobal{}, &fsm.BeginTask{}, &fsm.TellTask{}, &fsm.ForgoTask{}, &fsm.BeginRelocation{},
		&fsm.BeginGive{}, &fsm.GiveRegion{}, &fsm.StageRegion{}, &fsm.ArriveRegion{}, &fsm.CloseIntake{},
		&fsm.CreateTenant{}, &fsm.AdvanceJob{}, &fsm.NoteJob{}, &fsm.SettleTask{}, &fsm.YieldTenant{}, &fsm.AdoptUnit{}, &fsm.ForgoNode{}, &fsm.TakeOver{}, &fsm.EndRecovery{},
	} {
		n := uint64(0)
		filled(reflect.ValueOf(cmd).Elem(), &n)
		if stage, ok := cmd.(*fsm.StageRegion); ok { // the unit of a whole tenant has its name
			for i := range stage.Tenants {
				stage.Tenants[i].Unit.Unit = fsm.UnitName(stage.Tenants[i].Tenant.Name)
			}
		}
		e := fsm.Entry{Revision: 7, Term: 3, At: 5, Decided: 3, Key: "k", Fingerprint: "f", Cmd: cmd}
		if diff := cmp.Diff(e, wire(t, e)); diff != "" {
			t.Errorf("%T: %s", cmd, diff)
		}
	}
}

// levelsOf are a region's directory with a task of each kind that runs, is done, refused or
// forgone, and a global one with a name that is reserved and one with a home.
func levelsOf(t *testing.T) (us, global *fsm.State) {
	at := map[*fsm.State]fsm.Revision{}
	do := func(s *fsm.State, cmd fsm.Command) fsm.Result {
		at[s]++
		r, _ := s.Apply(fsm.Entry{Revision: at[s], Term: 1, At: 7, Cmd: cmd})
		if r.Refusal != nil {
			t.Fatalf("%T: %v", cmd, r.Refusal)
		}
		return r
	}
	us, global = fsm.New(), fsm.New()
	for s, region := range map[*fsm.State]fsm.RegionName{us: "us", global: ""} {
		do(s, &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", Region: region, History: 1}})
		do(s, &fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:1", Version: fsm.Version}})
	}
	do(us, &fsm.PutNode{Name: "n1", Addr: ptr("127.0.0.1:1"), Token: ptr("t"), Region: ptr(fsm.RegionName("us"))})
	from := fsm.Origin{Authority: "g/global", History: 2, Floor: 3}
	for i, name := range []fsm.TenantName{"a", "b", "c"} {
		job := fsm.JobID(10 + i)
		made := do(us, &fsm.BeginTask{Origin: from, Job: job, Kind: fsm.TaskCreate, Tenant: name, ID: fsm.UnitID(job)})
		do(us, &fsm.AdvanceJob{ID: made.Task.Local, From: fsm.StepMake, To: fsm.StepDone})
	}
	source := &fsm.Foreign{Region: "eu", Node: "e1", Addr: "127.0.0.1:2", Token: "secret", Epoch: 1<<50 | 9}
	do(us, &fsm.BeginTask{Origin: from, Job: 13, Kind: fsm.TaskDelete, Tenant: "a", ID: 10})
	do(us, &fsm.BeginTask{Origin: from, Job: 14, Kind: fsm.TaskDepart, Tenant: "b", ID: 11})
	do(us, &fsm.TellTask{Origin: from, Job: 14, Word: fsm.TaskRelease, Other: source})
	do(us, &fsm.BeginTask{Origin: from, Job: 15, Kind: fsm.TaskReceive, Tenant: "d", ID: 5, Pinned: true, Quota: &fsm.Quota{Bytes: 1}, Source: source})
	do(us, &fsm.BeginTask{Origin: from, Job: 16, Kind: fsm.TaskCreate, Tenant: "c", ID: 16})
	do(us, &fsm.ForgoTask{Origin: from, Job: 17, Kind: fsm.TaskReceive, Tenant: "e", ID: 17})

	do(global, &fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:1"}, Authority: "beef/us"}})
	made := do(global, &fsm.CreateTenant{Name: "a", Region: ptr(fsm.RegionName("us"))})
	do(global, &fsm.AdvanceJob{ID: made.Job, From: fsm.StepMake, To: fsm.StepDone})
	do(global, &fsm.CreateTenant{Name: "b", Region: ptr(fsm.RegionName("us")), Node: ptr(fsm.NodeName("n1")), Schema: "CREATE TABLE a(b)", Pinned: true})
	return us, global
}

// TestI8SnapshotsKeepTasksAndNames: what a group does for another one is not forgotten
// with its log.
func TestI8SnapshotsKeepTasksAndNames(t *testing.T) {
	us, global := levelsOf(t)
	for _, s := range []*fsm.State{us, global} {
		b := snapshotBytes(t, s)
		r := readSnapshot(t, b)
		if !bytes.Equal(snapshotBytes(t, r), b) {
			t.Error("the state that was read differs from the one that was written")
		}
		if diff := cmp.Diff(slices.Collect(s.Tasks()), slices.Collect(r.Tasks())); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(slices.Collect(s.Jobs()), slices.Collect(r.Jobs())); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(slices.Collect(s.Tenants("", "")), slices.Collect(r.Tenants("", ""))); diff != "" {
			t.Error(diff)
		}
		was, _ := s.Upstream()
		if now, _ := r.Upstream(); now != was || s.Floor() != r.Floor() {
			t.Errorf("belongs to %+v, floor %d; %+v, %d after reading", was, s.Floor(), now, r.Floor())
		}
		if err := fsm.Check(r); err != nil {
			t.Error(err)
		}
	}
	if n := len(slices.Collect(us.Tasks())); n != 8 {
		t.Errorf("%d tasks", n)
	}
}
