package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/group"
	"domicile/fsm"
)

// benchScale makes a directory of a million tenants by its log, starts three
// control servers and a proxy over it, and measures what quality figures §4.2
// ask for at that size.
func benchScale(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("scale", flag.ContinueOnError)
	tenants := fs.Int("tenants", 1_000_000, "tenants")
	followers := fs.Int("followers", 1000, "followers that come back at once")
	bin := fs.String("domicile", "bin/domicile", "the program")
	if err := fs.Parse(args); err != nil {
		return err
	}
	path, err := findBinary(*bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", "bench-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &scale{bin: path, dir: dir}
	defer s.stop()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"make the directory by its log", func(ctx context.Context) error { return s.seed(ctx, *tenants) }},
		{"start three servers", s.start},
		{"change it", s.change},
		{"load it into a proxy", s.proxy},
		{"have followers come back", func(ctx context.Context) error { return s.herd(ctx, *followers) }},
		{"lose the leader", s.loseLeader},
	} {
		begin := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", step.name, time.Since(begin).Round(time.Millisecond))
	}
	fmt.Printf("A directory of %d tenants\n", *tenants)
	table([]string{"figure", "measured", "reach"}, s.rows)
	return nil
}

type scale struct {
	bin, dir string
	control  []*process
	apis     []string
	rafts    []string
	rows     [][]string
	others   []*process
}

func (s *scale) stop() {
	for _, p := range append(s.others, s.control...) {
		p.stop()
	}
}

func (s *scale) row(figure, measured, reach string) {
	s.rows = append(s.rows, []string{figure, measured, reach})
}

// seed applies the commands of all creates through a group of one server.
func (s *scale) seed(ctx context.Context, tenants int) error {
	for range 3 {
		api, err := freePort()
		if err != nil {
			return err
		}
		raft, err := freePort()
		if err != nil {
			return err
		}
		s.apis, s.rafts = append(s.apis, api), append(s.rafts, raft)
	}
	l, err := net.Listen("tcp", s.rafts[0])
	if err != nil {
		return err
	}
	g, err := group.Open(group.Config{ID: "c1", DataDir: filepath.Join(s.dir, "c1"), Listener: l, API: "http://" + s.apis[0], Bootstrap: true, Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(run) }()
	begin := time.Now()
	err = fill(ctx, g, tenants)
	took := time.Since(begin)
	stop()
	if e := <-ended; err == nil && e != nil && !errors.Is(e, context.Canceled) {
		err = e
	}
	err = errors.Join(err, g.Close())
	s.row("commands a second, one server, 1,024 proposers, log and snapshots included", short(float64(2*tenants)/took.Seconds()), "")
	return err
}

func fill(ctx context.Context, g *group.Group, tenants int) error {
	propose := func(c fsm.Command) (fsm.Result, error) {
		for {
			r, _, err := g.Propose(ctx, group.Proposal{Cmd: c})
			if errors.Is(err, group.ErrNoLeader) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err == nil && r.Refusal != nil {
				err = r.Refusal
			}
			return r, err
		}
	}
	token := "bench"
	for i := range 3 {
		addr := fmt.Sprintf("127.0.0.1:%d", 1+i)
		if _, err := propose(&fsm.PutNode{Name: fsm.NodeName(fmt.Sprintf("n%d", i+1)), Addr: &addr, Token: &token}); err != nil {
			return err
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 1024 {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= tenants {
					return
				}
				r, err := propose(&fsm.CreateTenant{Name: fsm.TenantName(tenantName(i))})
				if err == nil {
					_, err = propose(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return *e
	}
	return nil
}

func (s *scale) start(ctx context.Context) error {
	for i := range 3 {
		if err := s.startOne(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *scale) startOne(ctx context.Context, i int) error {
	begin := time.Now()
	args := []string{"control", "--id", fmt.Sprintf("c%d", i+1), "--data", filepath.Join(s.dir, fmt.Sprintf("c%d", i+1)), "--listen", s.apis[i], "--raft-listen", s.rafts[i], "--log-level", "error", "--auto-failover", "0", "--replicas", "0"}
	if i > 0 {
		args = append(args, "--join", "http://"+s.apis[0])
	}
	p, err := start(ctx, "control", nil, s.bin, args...)
	if err != nil {
		return err
	}
	if i < len(s.control) {
		s.control[i] = p
	} else {
		s.control = append(s.control, p)
	}
	if err := awaitReady(ctx, "http://"+s.apis[i]); err != nil {
		return fmt.Errorf("%w\n%s", err, p.out)
	}
	how := "from its own folder"
	if i > 0 {
		how = "joining with an empty folder"
	}
	s.row(fmt.Sprintf("server %d ready, %s", i+1, how), time.Since(begin).Round(10*time.Millisecond).String(), "")
	return nil
}

func (s *scale) change(ctx context.Context) error {
	for _, clients := range []int{1, 64} {
		r, err := putRegions(ctx, "http://"+s.apis[0], clients, 5*time.Second)
		if err != nil {
			return err
		}
		s.row(fmt.Sprintf("changes, %d clients: a second, p50, p99", clients), fmt.Sprintf("%s, %s ms, %s ms", short(r.PerSecond), short(r.P50/1000), short(r.P99/1000)), "")
	}
	for i, p := range s.control {
		s.row(fmt.Sprintf("memory of server %d", i+1), short(float64(p.rss())/(1<<20))+" MB", "≤ 600 MB")
	}
	return nil
}

func (s *scale) proxy(ctx context.Context) error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := start(ctx, "proxy", nil, s.bin, "proxy", "--listen", addr, "--control", "http://"+s.apis[1], "--log-level", "error")
	if err != nil {
		return err
	}
	s.others = append(s.others, p)
	if err := awaitReady(ctx, "http://"+addr); err != nil {
		return err
	}
	s.row("a proxy's first load, from its start", time.Since(begin).Round(10*time.Millisecond).String(), "≤ 2 s")
	s.row("memory of the proxy after it", short(float64(p.rss())/(1<<20))+" MB", "≤ 200 MB (table)")
	return nil
}

// herd has many followers load the whole directory from one server at once, as
// proxies without a cache would after a restart.
func (s *scale) herd(ctx context.Context, followers int) error {
	var wg sync.WaitGroup
	var failed atomic.Int64
	begin := time.Now()
	peak := int64(0)
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				peak = max(peak, s.control[2].rss())
			}
		}
	}()
	for range followers {
		wg.Go(func() {
			if err := loadOnce(ctx, "http://"+s.apis[2]); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	close(done)
	s.row(fmt.Sprintf("%d followers load it at once from one server", followers), fmt.Sprintf("%v, %d failed", took.Round(10*time.Millisecond), failed.Load()), "≤ 10 s")
	s.row("memory of that server meanwhile, at most", short(float64(peak)/(1<<20))+" MB", "≤ 1.5 GB")
	return nil
}

// loadOnce reads the stream's bytes until the whole directory has come.
func loadOnce(ctx context.Context, server string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/_shard/subscribe", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return readWhole(resp.Body)
}

// endFrameTag is how the frame that ends a whole directory begins: field 4 of
// Frame, with a length (proto/internal/pb/domicile.proto).
const endFrameTag = 4<<3 | 2

// readWhole skips frames (4 bytes of length, then so many) up to the end of the
// whole directory, whose frame is known by its number alone.
func readWhole(r io.Reader) error {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		n := int(uint32(head[0]) | uint32(head[1])<<8 | uint32(head[2])<<16 | uint32(head[3])<<24)
		if _, err := io.CopyN(io.Discard, r, int64(n-1)); err != nil {
			return err
		}
		if head[4] == endFrameTag {
			return nil
		}
	}
}

// loseLeader kills the leader and times the first change that succeeds at
// another server.
func (s *scale) loseLeader(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	_ = s.control[leader].cmd.Process.Kill()
	_ = s.control[leader].cmd.Wait()
	other := "http://" + s.apis[(leader+1)%3]
	hc := &http.Client{Timeout: 5 * time.Second}
	for n := 0; ; n++ {
		if err := putRegion(ctx, hc, fmt.Sprintf("%s/_shard/regions/after-%d", other, n)); err == nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			return errors.New("no change succeeded within 30 s")
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.row("changes again after kill -9 of the leader", time.Since(begin).Round(10*time.Millisecond).String(), "≤ 1.5 s")
	return nil
}

func (s *scale) leader(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.apis[0]+"/_shard/group", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for i := range 3 {
		if strings.Contains(string(body), fmt.Sprintf(`"leader":"c%d"`, i+1)) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no leader in %s", body)
}
