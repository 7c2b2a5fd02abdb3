package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// openLoad sends one tenant a request whenever one is due, however many are under way:
// while the tenant cannot be written they pile up, so that one is always under way, and
// none is left out because an earlier one took long.
type openLoad struct {
	c       *copyCluster
	tenant  int
	name    string // of its rows
	writes  bool
	stopped context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	answered []answered // in the order of answers
	sent     int
	failed   int
}

// answered is a request that was answered.
type answered struct {
	due, at time.Time
	epoch   uint64 // of a write
}

func (a answered) took() time.Duration { return a.at.Sub(a.due) }

// startLoad begins writes, or reads, of a tenant, that many a second.
func (c *copyCluster) startLoad(ctx context.Context, tenant int, name string, perSecond int, writes bool) *openLoad {
	ctx, cancel := context.WithCancel(ctx)
	l := &openLoad{c: c, tenant: tenant, name: name, writes: writes, stopped: cancel}
	every := time.Second / time.Duration(perSecond)
	l.wg.Go(func() {
		for due := time.Now(); ctx.Err() == nil; due = due.Add(every) {
			time.Sleep(time.Until(due))
			l.mu.Lock()
			n := l.sent
			l.sent++
			l.mu.Unlock()
			l.wg.Go(func() { l.one(n, due) })
		}
	})
	return l
}

// stop sends nothing more and waits for the answers.
func (l *openLoad) stop() {
	l.stopped()
	l.wg.Wait()
}

func (l *openLoad) one(n int, due time.Time) {
	sql := "select max(id) from log"
	if l.writes {
		sql = fmt.Sprintf("insert into log (body) values ('%s-%d')", l.name, n)
	}
	// Not the load's context: what was sent is waited for.
	data, err := l.c.ask(context.Background(), http.MethodPost, l.c.proxyURL+"/t/"+tenantName(l.tenant)+"/query", `{"sql":"`+sql+`"}`)
	a := answered{due: due, at: time.Now()}
	if l.writes && err == nil {
		a.epoch, err = epochOf(data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.answered = append(l.answered, a)
		return
	}
	if l.failed++; l.failed <= 3 {
		fmt.Fprintln(os.Stderr, "failed:", err)
	}
}

func epochOf(answer []byte) (uint64, error) {
	var got struct{ Position string }
	if err := json.Unmarshal(answer, &got); err != nil {
		return 0, err
	}
	epoch, _, _ := strings.Cut(got.Position, ":")
	return strconv.ParseUint(epoch, 10, 64)
}

// since gives what was answered from then on, in the order of answers.
func (l *openLoad) since(t time.Time) []answered {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.answered)
	for i > 0 && l.answered[i-1].at.After(t.Add(-around)) { // they are in order but for some µs
		i--
	}
	all := slices.DeleteFunc(slices.Clone(l.answered[i:]), func(a answered) bool { return !a.at.After(t) })
	slices.SortFunc(all, func(a, b answered) int { return a.at.Compare(b.at) })
	return all
}

// longestGap is the longest time between two answers of some, in order.
func longestGap(all []answered) (d time.Duration) {
	for i := 1; i < len(all); i++ {
		d = max(d, all[i].at.Sub(all[i-1].at))
	}
	return d
}

func slowest(all []answered) (d time.Duration) {
	for _, a := range all {
		d = max(d, a.took())
	}
	return d
}

// between gives those that were answered in a span of time.
func between(all []answered, from, to time.Time) []answered {
	i, _ := slices.BinarySearchFunc(all, from, func(a answered, t time.Time) int { return a.at.Compare(t) })
	j, _ := slices.BinarySearchFunc(all, to, func(a answered, t time.Time) int { return a.at.Compare(t) })
	return all[min(i, j):j]
}

// overlapping gives those that were under way at some instant in a span of time.
func overlapping(all []answered, from, to time.Time) (some []answered) {
	for _, a := range all {
		if a.at.After(from) && a.due.Before(to) {
			some = append(some, a)
		}
	}
	return some
}

// flipIn finds the first answer of the newest epoch.
func flipIn(all []answered) (at time.Time, ok bool) {
	if len(all) == 0 {
		return at, false
	}
	newest := slices.MaxFunc(all, func(a, b answered) int { return cmp.Compare(a.epoch, b.epoch) }).epoch
	i := slices.IndexFunc(all, func(a answered) bool { return a.epoch == newest })
	return all[i].at, i > 0
}

// tally counts the rows of a stopped load in the tenant: acknowledged ones that are not
// there, and those that are there twice.
func (l *openLoad) tally(ctx context.Context) (lost, doubled int, err error) {
	data, err := l.c.ask(ctx, http.MethodPost, l.c.proxyURL+"/t/"+tenantName(l.tenant)+"/query",
		fmt.Sprintf(`{"sql":"select count(*), count(distinct body) from log where body glob '%s-*'"}`, l.name))
	if err != nil {
		return 0, 0, err
	}
	var got struct{ Rows [][]int }
	if err := json.Unmarshal(data, &got); err != nil || len(got.Rows) != 1 || len(got.Rows[0]) != 2 {
		return 0, 0, fmt.Errorf("counting rows: %s", data)
	}
	// What failed may be there or not: it is counted as failed.
	rows, distinct := got.Rows[0][0], got.Rows[0][1]
	return max(0, len(l.answered)-distinct), rows - distinct, nil
}
