package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Schema is what a unit under load is created with.
const Schema = "create table log (id integer primary key, count integer); create table register (last integer, count integer); insert into register values (0, 0)"

// LogQuery gives a unit's log, for Logs.
const LogQuery = "select id, count from log order by count"

// LoadConfig says who asks what.
type LoadConfig struct {
	Recorder *Recorder
	Units    []string
	Proxies  []string      // addresses, http://host:port
	Clients  int           // of each unit; each has one operation under way
	Pause    time.Duration // of each client between operations
	Timeout  time.Duration // of one operation; after it its outcome is unknown
	Reads    bool          // reads, of the primary and of copies, beside writes
	Seed     uint64
	FirstID  int64 // ids of writes come after it
	// FirstClient is the number of the first client: of several loads with one recorder
	// it tells whose an operation was.
	FirstClient int
	// Transport carries the requests; http.DefaultTransport where nil.
	Transport http.RoundTripper
}

// Load is clients at work.
type Load struct {
	cfg    LoadConfig
	client *http.Client
	ids    atomic.Int64
	stop   context.CancelFunc
	wait   sync.WaitGroup
}

// Start starts the clients.
func Start(cfg LoadConfig) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cfg: cfg, client: &http.Client{Transport: cfg.Transport}, stop: cancel}
	l.ids.Store(cfg.FirstID)
	for u, unit := range cfg.Units {
		for i := range cfg.Clients {
			n := cfg.FirstClient + u*cfg.Clients + i
			l.wait.Go(func() { l.run(ctx, unit, n) })
		}
	}
	return l
}

// Stop lets each client end the operation that it has under way, and waits.
func (l *Load) Stop() {
	l.stop()
	l.wait.Wait()
}

func (l *Load) run(ctx context.Context, unit string, n int) {
	r := rand.New(rand.NewPCG(l.cfg.Seed, uint64(n)))
	tick := time.NewTicker(max(l.cfg.Pause, time.Microsecond))
	defer tick.Stop()
	var last *Op // this client's last acknowledged write
	for ctx.Err() == nil {
		base := l.cfg.Proxies[r.IntN(len(l.cfg.Proxies))] + "/t/" + unit
		op := &Op{Unit: unit, Client: n, Kind: Write}
		if l.cfg.Reads {
			switch v := r.IntN(10); {
			case v < 3:
				op.Kind = Read
			case v < 5 && last != nil:
				op.Kind, op.After = CopyRead, last
			}
		}
		if op.Kind == Write {
			op.ID = l.ids.Add(1)
		}
		l.do(op, base, r.IntN(2) == 0)
		l.cfg.Recorder.Add(op)
		if op.Kind == Write && op.Outcome == OK {
			last = op
		}
		if l.cfg.Pause > 0 {
			<-tick.C
		}
	}
}

// do sends an operation and records what came of it.
func (l *Load) do(op *Op, base string, keyed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Timeout)
	defer cancel()
	path, body := "/query", `{"sql":"select last, count from register"}`
	if op.Kind == Write {
		path, body = "/batch", WriteBody(op.ID)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		op.Outcome, op.Why = Refused, err.Error()
		return
	}
	switch {
	case op.Kind == Write && keyed:
		req.Header.Set("Idempotency-Key", fmt.Sprintf("w-%d", op.ID))
	case op.Kind == CopyRead:
		req.Header.Set("Domicile-Mode", "read")
		req.Header.Set("Domicile-Prefer", "replica")
		req.Header.Set("Domicile-After", op.After.Position.String())
	}
	req.GetBody = nil // nothing is sent twice behind the recorder's back
	op.Begin = l.cfg.Recorder.Now()
	resp, err := l.client.Do(req)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	op.End = l.cfg.Recorder.Now()
	if err != nil {
		op.Outcome, op.Why = Unknown, err.Error()
		if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" {
			op.Outcome = Refused
		}
		return
	}
	op.answered(resp, data)
}

// WriteBody is the body of POST batch that writes id.
func WriteBody(id int64) string {
	return fmt.Sprintf(`{"statements":[{"sql":"insert into log select %d, count + 1 from register"},{"sql":"update register set last = %d, count = count + 1"},{"sql":"select last, count from register"}]}`, id, id)
}

// rows are a result's rows.
type rows struct{ Rows [][]int64 }

// answered records an answer: what it says of the effect, and what was seen.
func (o *Op) answered(resp *http.Response, data []byte) {
	if resp.StatusCode != http.StatusOK {
		o.Outcome, o.Why = outcome(resp.StatusCode, data), strconv.Itoa(resp.StatusCode)+" "+string(bytes.TrimSpace(data))
		return
	}
	o.Outcome = OK
	var result rows
	var err error
	if o.Kind == Write {
		var all struct{ Results []rows }
		if err = json.Unmarshal(data, &all); err == nil && len(all.Results) == 3 {
			result = all.Results[2]
		}
	} else {
		err = json.Unmarshal(data, &result)
	}
	if err != nil || len(result.Rows) != 1 || len(result.Rows[0]) != 2 {
		o.Outcome, o.Why = Unknown, fmt.Sprintf("an answer that says nothing: %s (%v)", data, err)
		return
	}
	o.Replayed = resp.Header.Get("Idempotent-Replayed") != ""
	o.Seen = Register{Last: result.Rows[0][0], Count: result.Rows[0][1]}
	if o.Kind == Read && resp.Header.Get("Domicile-Stale") != "" {
		o.Kind = CopyRead // the node held no lease, and said so
	}
	if p := resp.Header.Get("Domicile-Position"); p != "" {
		if o.Position, err = ParsePosition(p); err != nil {
			o.Why = err.Error()
		}
	}
}

// outcome is what a status and a code promise of the effect: a refusal has none,
// unless it says that nobody knows.
func outcome(status int, data []byte) Outcome {
	var e struct{ Code string }
	_ = json.Unmarshal(data, &e) // no code: the status alone speaks
	switch {
	case e.Code == "outcome_unknown", e.Code == "replica_unreachable", status == http.StatusGatewayTimeout:
		return Unknown
	case status == http.StatusBadGateway && e.Code != "node_unreachable" && e.Code != "region_unreachable":
		return Unknown
	case status == http.StatusInternalServerError:
		return Unknown
	}
	return Refused
}
