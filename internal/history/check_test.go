package history

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// write is an acknowledged write from begin to end.
func write(id, begin, end int, epoch, seq uint64, count int64) *Op {
	return &Op{Unit: "u", Kind: Write, ID: int64(id), Begin: time.Duration(begin), End: time.Duration(end), Outcome: OK, Seen: Register{int64(id), count}, Position: Position{epoch, seq}}
}

func read(begin, end int, last, count int64) *Op {
	return &Op{Unit: "u", Kind: Read, Begin: time.Duration(begin), End: time.Duration(end), Outcome: OK, Seen: Register{last, count}}
}

func unknown(id, begin int) *Op {
	return &Op{Unit: "u", Kind: Write, ID: int64(id), Begin: time.Duration(begin), End: time.Duration(begin + 1), Outcome: Unknown}
}

// good is a history with a failover, writes at the same time, and one of which
// nobody knows.
func good() []*Op {
	late := read(50, 60, 3, 3)
	late.Kind, late.After = CopyRead, write(2, 5, 25, 1, 2, 2)
	return []*Op{write(1, 0, 10, 1, 1, 1), write(2, 5, 25, 1, 2, 2), unknown(3, 20), read(30, 40, 3, 3), write(4, 41, 49, 7, 4, 4), late}
}

func TestCheckTakesAGoodHistory(t *testing.T) {
	if err := Check(good(), logs(1, 2, 3, 4), patience); err != nil {
		t.Error(err)
	}
}

// logs are those of the unit of good: write n was the n-th.
func logs(ids ...int64) Logs {
	var log []Register
	for _, id := range ids {
		log = append(log, Register{id, id})
	}
	return Logs{"u": log}
}

func rejects(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestPresentRejects(t *testing.T) {
	refused := unknown(5, 70)
	refused.Outcome = Refused
	ops := append(good(), refused)
	rejects(t, Present(ops, logs(1, 2, 3)), "write 4 was acknowledged")
	rejects(t, Present(ops, logs(1, 2, 4, 4)), "write 4 is there 2 times")
	rejects(t, Present(ops, logs(1, 2, 4, 5)), "write 5 was refused")
	rejects(t, Present(ops, logs(1, 2, 4, 9)), "nobody wrote 9")
	if err := Present(ops, logs(1, 2, 4)); err != nil {
		t.Errorf("the unknown write may be there or not: %v", err)
	}
}

func TestI1OneWriterRejects(t *testing.T) {
	rejects(t, OneWriter([]*Op{write(1, 0, 10, 1, 1, 1), write(2, 20, 30, 7, 2, 2), write(3, 31, 40, 1, 2, 2)}), "write 3 began at 31ns")
	rejects(t, OneWriter([]*Op{write(1, 0, 10, 1, 2, 1), write(2, 11, 30, 1, 1, 2)}), "write 2 began")
	rejects(t, OneWriter([]*Op{write(1, 0, 10, 1, 1, 1), write(2, 0, 30, 1, 1, 2)}), "both acknowledged at 1:1")
	rejects(t, OneWriter([]*Op{write(1, 0, 10, 0, 0, 1)}), "without a position")
	replayed := write(1, 0, 30, 1, 2, 1)
	replayed.Replayed = true
	if err := OneWriter([]*Op{replayed, write(2, 11, 20, 1, 2, 2)}); err != nil {
		t.Errorf("an answer that is given again names the position of its time: %v", err)
	}
	if err := OneWriter([]*Op{write(1, 0, 10, 1, 2, 1), write(2, 5, 30, 1, 1, 2)}); err != nil {
		t.Errorf("writes at the same time may end in either order: %v", err)
	}
}

func TestReadYourWritesRejects(t *testing.T) {
	stale := read(30, 40, 1, 1)
	stale.Kind, stale.After = CopyRead, write(2, 5, 25, 1, 2, 2)
	rejects(t, ReadYourWrites([]*Op{stale}), "saw count 1")
}

func TestLinearizableRejects(t *testing.T) {
	for name, ops := range map[string][]*Op{
		"a stale read":                 {write(1, 0, 10, 1, 1, 1), write(2, 11, 20, 1, 2, 2), read(30, 40, 1, 1)},
		"a lost write":                 {write(1, 0, 10, 1, 1, 1), write(2, 11, 20, 2, 1, 1)},
		"two nodes with the same past": {write(1, 0, 10, 1, 1, 1), write(2, 11, 20, 1, 2, 2), write(3, 12, 21, 2, 2, 2)},
		"an effect before its begin":   {read(0, 5, 1, 1), write(1, 10, 20, 1, 1, 1)},
		"an unknown write that comes and goes": {
			unknown(1, 0), read(10, 20, 1, 1), read(21, 30, 0, 0),
		},
		"a write that was seen and is gone": {unknown(1, 0), read(10, 20, 1, 1), write(2, 21, 30, 2, 1, 1)},
	} {
		if err := Linearizable(ops, Logs{}, patience); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

// TestLinearizableIsFastEnough: a history as a run of the fault tests gives it,
// with clients at the same time and unknown writes, is decided.
func TestLinearizableIsFastEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var ops []*Op
	var log []Register
	for i, count := 1, int64(0); i < 4000; i++ {
		begin := i*10 - r.IntN(30)
		if r.IntN(100) == 0 {
			u := unknown(i, begin)
			ops = append(ops, u)
			if r.IntN(2) == 0 {
				count++
				log = append(log, Register{int64(i), count})
			}
			continue
		}
		count++
		ops = append(ops, write(i, begin, i*10+r.IntN(30), 1, uint64(count), count))
	}
	if err := Linearizable(ops, Logs{"u": log}, patience); err != nil {
		t.Error(err)
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   Outcome
	}{
		{503, "lease_lapsed", Refused}, {503, "outcome_unknown", Unknown}, {502, "outcome_unknown", Unknown},
		{502, "node_unreachable", Refused}, {504, "", Unknown}, {503, "replica_unreachable", Unknown}, {502, "", Unknown}, {404, "unknown_tenant", Refused},
	} {
		if got := outcome(c.status, fmt.Appendf(nil, `{"code":%q}`, c.code)); got != c.want {
			t.Errorf("%d %s: got %s, want %s", c.status, c.code, got, c.want)
		}
	}
	o := &Op{Kind: Write}
	o.answered(&http.Response{StatusCode: 200, Header: http.Header{"Domicile-Position": {"7:12"}}}, []byte(`{"results":[{},{},{"rows":[[5,9]]}]}`))
	if o.Outcome != OK || o.Seen != (Register{5, 9}) || o.Position != (Position{7, 12}) {
		t.Errorf("%+v", o)
	}
}
