package stream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// BenchmarkThousandSubscribersReconnect is a server of 1,000,000 tenants whose
// 1,000 proxies come back at once and load the whole directory. They read it
// without holding it; what a proxy makes of it is measured there.
func BenchmarkThousandSubscribersReconnect(b *testing.B) {
	s := fsm.New()
	rev := fsm.Revision(0)
	apply := func(cmd fsm.Command) fsm.Result {
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1, Cmd: cmd})
		if r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
		return r
	}
	apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c1", History: 1}})
	node, addr, token, weight := fsm.NodeName("n1"), "10.0.0.1:80", "t", uint32(1)
	apply(&fsm.PutNode{Name: node, Addr: &addr, Token: &token, Weight: &weight})
	for i := range 1_000_000 {
		r := apply(&fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("tenant-%d", i)), Node: &node})
		apply(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	}
	h := New(Config{})
	h.Reset(Own(s.Snapshot()))
	server := httptest.NewServer(h)
	defer func() {
		h.Close()
		server.Close()
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var most uint64
	var bytes int64
	var first time.Duration
	before := cpu()
	for b.Loop() {
		begin := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		firstDone := sync.OnceFunc(func() { first = time.Since(begin) })
		for range 1000 {
			wg.Go(func() {
				n, err := load(client, server.URL)
				if err != nil {
					b.Error(err)
				}
				firstDone()
				mu.Lock()
				bytes = n
				mu.Unlock()
			})
		}
		wg.Wait()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapSys)
	}
	b.ReportMetric(float64(bytes)/(1<<20), "MB/stream")
	b.ReportMetric(float64(most)/(1<<20), "MB-heap")
	b.ReportMetric((cpu()-before).Seconds()/float64(b.N), "s-CPU/both-ends")
	b.ReportMetric(first.Seconds(), "s/first")
}

// cpu is the time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// load reads frames, by their lengths, until the end of the whole directory:
// the first frame after the chunks that is a small one.
func load(client *http.Client, url string) (int64, error) {
	resp, err := client.Get(url + "/_shard/subscribe")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body := bufio.NewReaderSize(resp.Body, 256<<10)
	var total int64
	var head [4]byte
	for n := 0; ; n++ {
		if _, err := io.ReadFull(body, head[:]); err != nil {
			return total, err
		}
		size := int64(head[0]) | int64(head[1])<<8 | int64(head[2])<<16 | int64(head[3])<<24
		if size > proto.MaxFrame {
			return total, proto.ErrFrame
		}
		if _, err := body.Discard(int(size)); err != nil {
			return total, err
		}
		total += size + 4
		if n > 2 && size < 64 { // End
			return total, nil
		}
	}
}
