package node

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"domicile/dataplane/node/store"
	"domicile/proto"
)

// lateCall is a call that a leader makes. In its body and path, UNIT, ID, EPOCH, JOB
// and HOLDER stand for what makes it late or not.
type lateCall struct {
	method, path, body string
	unit               string // that it is about where all is well
	list               bool   // about many units: those that were not done are told in a list, with 200
	headers            bool   // the holder is a header
	removal            string // HeaderRemoval
}

// lateCalls are all that change a node, but grants.
var lateCalls = map[string]lateCall{
	"follow":       {"POST", "follow", `{"units":[{"unit":"UNIT","id":ID,"epoch":EPOCH}],"from":"http://127.0.0.1:1","as":"http://127.0.0.1:2",HOLDER}`, "copy", true, false, ""},
	"follow one":   {"POST", "tenants/UNIT/follow", `{"id":ID,"epoch":EPOCH,"from":"http://127.0.0.1:1","as":"http://127.0.0.1:2",HOLDER}`, "copy", false, false, ""},
	"promote":      {"POST", "promote", `{"tenants":[{"unit":"UNIT","id":ID}],"epoch":"EPOCH",HOLDER}`, "copy", true, false, ""},
	"promote one":  {"POST", "tenants/UNIT/promote", `{"id":ID,"epoch":"EPOCH",HOLDER}`, "copy", false, false, ""},
	"handover":     {"POST", "handover", `{"job":"JOB","ms":100,"units":[{"unit":"UNIT","id":ID,"node":"n2","addr":"http://127.0.0.1:1"}],HOLDER}`, "acme", true, false, ""},
	"thaw":         {"POST", "thaw", `{"job":"JOB","units":[{"unit":"UNIT","id":ID}],HOLDER}`, "acme", true, false, ""},
	"thaw one":     {"POST", "tenants/UNIT/thaw", `{"job":"JOB",HOLDER}`, "acme", false, false, ""},
	"freeze":       {"POST", "tenants/UNIT/freeze", `{"ms":60000,HOLDER}`, "acme", false, false, ""},
	"release":      {"POST", "tenants/UNIT/release", `{"job":"JOB","position":"1:1","destination":{"node":"n2","addr":"http://127.0.0.1:1"},HOLDER}`, "acme", false, false, ""},
	"remove":       {"DELETE", "tenants/UNIT", "", "acme", false, true, ""},
	"remove copy":  {"DELETE", "tenants/UNIT", "", "copy", false, true, proto.RemovalCopy},
	"make":         {"PUT", "tenants/UNIT", `{"id":ID,HOLDER}`, "acme", false, false, ""},
	"import":       {"PUT", "tenants/UNIT/file", "SQLite format 3", "acme", false, true, ""},
	"schema":       {"POST", "tenants/UNIT/schema", `{"sql":"create table late (v)",HOLDER}`, "acme", false, false, ""},
	"query":        {"POST", "tenants/UNIT/query", `{"sql":"create table late (v)",HOLDER}`, "acme", false, false, ""},
	"change owner": {"POST", "holder", `{HOLDER,"next":{"authority":"c2/eu","history":1,"term":9}}`, "acme", false, false, ""},
	"grant":        {"POST", "lease", `{"ms":60000,"epoch":"5","grant":90,"acked":89,HOLDER}`, "acme", false, false, ""},
}

// late is a call as it arrives.
type late struct {
	unit             string
	id, epoch, call  int
	job              string
	authority        string
	history, term    int
	nobody, unnumber bool // it names no holder, no number
}

// lateNode is a node that was told of three units by calls up to number 100 of term 5:
// acme (id 1) is written here, after job 20 was undone; given (id 2) was given up for
// job 20; copy (id 3) follows the branch of epoch 50. None is held of a fourth, gone.
func lateNode(t *testing.T) *leasedNode {
	n := startLeased(t, func(c *Config) { c.KeepUnits = true })
	n.term = 5
	by := []string{proto.HeaderHolder, "c1/global 1 5"}
	for unit, id := range map[string]int{"acme": 1, "given": 2} {
		n.admin(201, "PUT", "tenants/"+unit, fmt.Sprintf(`{"id":%d}`, id), by...)
	}
	n.lease(`[{"unit":"acme","id":1},{"unit":"given","id":2}]`)
	n.query("acme", "create table t (id integer primary key, v text)")
	n.query("given", "create table t (v)")
	n.numbered(99, 200, "POST", "tenants/given/freeze", `{"ms":60000}`, by...)
	n.numbered(100, 200, "POST", "tenants/given/release", `{"job":"20","position":"1:1","destination":{"node":"n2","addr":"http://127.0.0.1:1"}}`, by...)
	n.numbered(100, 200, "POST", "thaw", `{"job":"20","units":[{"unit":"acme","id":1}]}`, by...)
	n.numbered(100, 200, "POST", "follow", `{"units":[{"unit":"copy","id":3,"epoch":50}],"from":"http://127.0.0.1:1","as":"http://127.0.0.1:2"}`, by...)
	n.numbered(100, 404, "DELETE", "tenants/gone", "", append(by, proto.HeaderUnitID, "4")...)
	return n
}

// holds is all that calls can change of a node, as text.
func (n *leasedNode) holds() string {
	n.t.Helper()
	text := fmt.Sprintf("%+v", n.s.store.Holder())
	for _, path := range []string{"units", "open", "lease"} {
		text += n.admin(200, "GET", path, "").body
	}
	_, err := n.s.store.Tell(n.s.store.Holder(), []string{"acme", "given", "copy", "gone"}, func(unit string, told *store.Told) error {
		text += fmt.Sprintf("%s %+v\n", unit, *told)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	text += "it follows for copy: " + n.s.replica.Status("copy").From
	return changing.ReplaceAllString(text, "")
}

// changing is what nobody's call changes: files grow by themselves, a source is not
// reached, and a call that is refused may have opened a file.
var changing = regexp.MustCompile(`,?"(bytes|error|problem)":("[^"]*"|[0-9]+)|,?{"name":"copy"[^}]*}`)

// send makes a call as it arrives late, and gives the answer.
func (n *leasedNode) send(c *lateCall, l *late, garble func(string) string) answer {
	n.t.Helper()
	holder := fmt.Sprintf(`"authority":%q,"history":%d,"term":%d`, l.authority, l.history, l.term)
	headers := []string{"Authorization", "Bearer " + adminToken}
	if c.headers && !l.nobody {
		headers = append(headers, proto.HeaderHolder, fmt.Sprintf("%s %d %d", l.authority, l.history, l.term))
	}
	headers = append(headers, proto.HeaderUnitID, fmt.Sprint(l.id))
	if !l.unnumber {
		headers = append(headers, proto.HeaderCall, fmt.Sprint(l.call))
	}
	if strings.HasSuffix(c.path, "file") && l.unit == "acme" {
		l.unit = "gone" // what is held is refused before
	}
	path := strings.ReplaceAll(c.path, "UNIT", l.unit)
	body := strings.NewReplacer("UNIT", l.unit, "ID", fmt.Sprint(l.id), "EPOCH", fmt.Sprint(l.epoch), "JOB", l.job, "HOLDER", holder).Replace(c.body)
	if l.nobody {
		body = strings.NewReplacer(","+holder, "", holder+",", "").Replace(body)
	}
	if garble != nil {
		body = garble(body)
	}
	if c.removal != "" {
		headers = append(headers, proto.HeaderRemoval, c.removal)
	}
	return n.do(c.method, "/_admin/"+path, body, headers...)
}

// TestLateCallsChangeNothing: each call of a leader, of an older term, for another unit,
// overtaken, repeated, garbled … is refused with what its sender needs to know, and
// nothing is lost.
func TestLateCallsChangeNothing(t *testing.T) {
	n := lateNode(t)
	ids := map[string]int{"acme": 1, "given": 2, "copy": 3, "gone": 4}
	for name, call := range lateCalls {
		t.Run(name, func(t *testing.T) {
			for _, row := range rowsOf(name, &call) {
				now := late{unit: call.unit, epoch: 60, call: 101, job: "30", authority: "c1/global", history: 1, term: 5}
				row.make(&now)
				if now.id == 0 {
					now.id = ids[now.unit]
				}
				n.t = t
				before := n.holds()
				a := n.send(&call, &now, row.garble)
				if a.status != row.status || !strings.Contains(a.body, row.says) {
					t.Errorf("%s: %d %s, want %d and %s", row.name, a.status, a.body, row.status, row.says)
				}
				if after := n.holds(); after != before {
					t.Errorf("%s: it answered %d %s and changed\n%s to\n%s", row.name, a.status, a.body, before, after)
				}
			}
		})
	}
	n.t = t
	n.want(200, "POST", "/t/acme/query", insert) // its lease is as it was
}

// lateRow is one way in which a call can be wrong, and its answer.
type lateRow struct {
	name   string
	make   func(*late)
	garble func(string) string
	status int
	says   string
}

// rowsOf gives the rows of a call.
func rowsOf(name string, c *lateCall) []lateRow {
	rows := []lateRow{
		{"an older term", func(l *late) { l.term = 4 }, nil, 409, `"term":5`},
		{"a history that is none", func(l *late) { l.history, l.term = 0, 9 }, nil, 400, `"code":"bad_request"`},
		{"another authority", func(l *late) { l.authority, l.term = "c2/global", 9 }, nil, 409, `"authority":"c1/global"`},
		{"nobody's", func(l *late) { l.nobody = true }, nil, 400, `"code":"holder_required"`},
	}
	well := func(*late) {}
	if c.body != "" && !c.headers {
		rows = append(rows,
			lateRow{"cut", well, func(s string) string { return s[:len(s)-1] }, 400, `"code":"bad_request"`},
			lateRow{"with a field that is not known", well, func(s string) string { return s[:len(s)-1] + `,"what":1}` }, 400, `"code":"bad_request"`},
			lateRow{"with a number that is none", well, func(s string) string { return strings.Replace(s, `"term":5`, `"term":"five"`, 1) }, 400, `"code":"bad_request"`})
	}
	unit := func(what string, f func(*late), status int, code string) {
		if c.list {
			status = 200
		}
		rows = append(rows, lateRow{what, f, nil, status, fmt.Sprintf(`"code":%q`, code)})
	}
	if strings.Contains(c.path, "UNIT") || c.list {
		overtaken(name, unit)
	}
	return append(rows, ownRows[name]...)
}

// overtaken adds what holds for every call about units.
func overtaken(name string, unit func(what string, f func(*late), status int, code string)) {
	switch name {
	case "query": // an operator's, by hand: it has no number
	case "make", "import": // of a unit that is held, or of one that is not
	default:
		unit("overtaken", func(l *late) { l.call = 99 }, 409, "stale_call")
	}
	switch name {
	case "freeze", "release", "thaw one", "query": // carry no id
	case "make":
		unit("another unit of the name", func(l *late) { l.id = 9 }, 409, "unit_exists")
	case "import":
		unit("of a unit that is held", func(l *late) { l.unit = "given" }, 409, "unit_exists")
	default:
		unit("another unit of the name", func(l *late) { l.id = 9 }, 409, "wrong_unit_id")
	}
	switch name {
	case "make", "import": // make it
	case "follow", "follow one":
		unit("of a unit that was removed since", func(l *late) { l.unit, l.call = "gone", 99 }, 409, "stale_call")
	default:
		unit("of a unit that is not held", func(l *late) { l.unit = "gone"; l.call = 100 }, 404, "unknown_tenant")
	}
	switch name {
	case "follow", "follow one", "promote", "promote one":
		unit("of an older epoch", func(l *late) { l.epoch, l.unnumber = 49, true }, 409, "epoch_passed")
		unit("of an older epoch, in its turn", func(l *late) { l.epoch = 49 }, 409, "epoch_passed")
	case "handover", "release":
		unit("of a job that was undone", func(l *late) { l.job, l.unnumber = "20", true }, 409, "job_conflict")
		unit("of a job before that", func(l *late) { l.job, l.unnumber = "19", true }, 409, "job_conflict")
		unit("of a unit that another job gave up", func(l *late) { l.unit, l.unnumber = "given", true }, 409, "job_conflict")
	}
}

// ownRows are those of single calls.
var ownRows = map[string][]lateRow{
	"follow": {
		{"twice", func(l *late) { l.call, l.epoch = 100, 50 }, nil, 200, `"following":["copy"]`},
		{"of a unit that is written here", func(l *late) { l.unit, l.unnumber, l.epoch = "acme", true, 0 }, nil, 200, `"code":"wrong_state"`},
		{"by itself", func(*late) {}, func(s string) string { return strings.Replace(s, "127.0.0.1:1", "127.0.0.1:2", 1) }, 400, "does not follow itself"},
		{"of no address", func(*late) {}, func(s string) string { return strings.Replace(s, "http://127.0.0.1:1", "somewhere", 1) }, 400, "somewhere"},
		{"named twice", func(*late) {}, func(s string) string {
			return strings.Replace(s, `[{`, `[{"unit":"copy","id":3,"epoch":60},{`, 1)
		}, 400, "named twice"},
	},
	"promote": {
		{"of a copy that holds nothing", func(l *late) { l.unnumber, l.epoch = true, 50 }, nil, 200, `"code":"needs_image"`},
		{"of no epoch", func(*late) {}, func(s string) string { return strings.Replace(s, `"60"`, `"x"`, 1) }, 400, "epoch is a decimal number"},
	},
	"handover": {
		{"twice", func(l *late) { l.unit, l.job, l.call = "given", "20", 100 }, nil, 200, `"released":[{"tenant":"given","position":"1:1"}]`},
		{"of a copy", func(l *late) { l.unit, l.unnumber = "copy", true }, nil, 200, `"code":"wrong_state"`},
		{"to nobody", func(*late) {}, func(s string) string { return strings.Replace(s, `"node":"n2"`, `"node":""`, 1) }, 400, "where it goes"},
		{"for no job", func(l *late) { l.job = "" }, nil, 400, "job, the number of the work"},
	},
	"thaw": {
		{"twice", func(l *late) { l.job, l.call = "20", 100 }, nil, 200, `"thawed":["acme"]`},
		{"of a unit that another job gave up", func(l *late) { l.unit, l.job, l.call = "given", "19", 99 }, nil, 200, `"code":"stale_call"`},
	},
	"release": {
		{"of a unit that has thawed", func(l *late) { l.unnumber = true }, nil, 409, "it has thawed"},
		{"twice", func(l *late) { l.unit, l.job, l.call = "given", "20", 100 }, nil, 200, `"released":true`},
	},
	"freeze": {
		{"of a copy", func(l *late) { l.unit, l.unnumber = "copy", true }, nil, 409, `"state":"following"`},
		{"of a unit that was given up", func(l *late) { l.unit, l.unnumber = "given", true }, nil, 409, `"state":"sent"`},
	},
	"make":        {{"twice", func(*late) {}, nil, 201, `"created":"acme"`}},
	"remove copy": {{"of a unit that is written here", func(l *late) { l.unit, l.unnumber = "acme", true }, nil, 409, `"code":"wrong_state"`}},
	"import":      {{"of what is no database", func(l *late) { l.unnumber = true }, nil, 400, `"code":"bad_image"`}},
	"grant": {
		{"twice", func(*late) {}, func(s string) string { return strings.Replace(s, `"grant":90,"acked":89`, `"grant":2,"acked":1`, 1) }, 409, `"code":"stale_grant"`},
		{"overtaken", func(*late) {}, func(s string) string { return strings.Replace(s, `"grant":90,"acked":89`, `"grant":1,"acked":0`, 1) }, 409, `"grant":2`},
		{"for another boot", func(*late) {}, func(s string) string { return strings.Replace(s, `{`, `{"boot":"another",`, 1) }, 412, `"boot":`},
		{"of a list that is not held", func(*late) {}, func(s string) string { return strings.Replace(s, `"epoch":"5"`, `"epoch":"4"`, 1) }, 412, `"epoch":"5"`},
		{"of a change to a list that is not held", func(*late) {}, func(s string) string {
			return strings.Replace(s, `"epoch":"5"`, `"epoch":"6","base":"4","remove":["acme"]`, 1)
		}, 412, `"epoch":"5"`},
		{"confirming itself", func(*late) {}, func(s string) string { return strings.Replace(s, `"acked":89`, `"acked":90`, 1) }, 400, `"code":"bad_request"`},
	},
}
