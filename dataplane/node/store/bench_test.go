package store

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plain is the driver without the store, for comparison.
func plain(b *testing.B, pragmas string) *raw {
	b.Helper()
	r, err := openRaw(filepath.Join(b.TempDir(), "x.db"), true)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.close)
	if err := r.exec("PRAGMA journal_mode=WAL;" + pragmas + "CREATE TABLE t(a INTEGER PRIMARY KEY, b)"); err != nil {
		b.Fatal(err)
	}
	return r
}

func (r *raw) mustPrepare(b *testing.B, sql string) *rawStmt {
	s, _, err := r.prepare(sql, true)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.finalize)
	return s
}

const rows = 10000

// cpuOf reports the process's CPU time per operation of f, which runs the
// benchmark's loop: steadier than the clock on a shared machine.
func cpuOf(b *testing.B, f func()) {
	start := cpuTime()
	f()
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
}

func cpuTime() time.Duration {
	var ru unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func BenchmarkPointReadPlain(b *testing.B) {
	r := plain(b, "")
	r.exec(fmt.Sprintf("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT INTO t SELECT i, 'value '||i FROM n", rows))
	s := r.mustPrepare(b, "SELECT b FROM t WHERE a=?")
	b.ReportAllocs()
	cpuOf(b, func() {
		for i := 0; b.Loop(); i++ {
			s.bind(1, IntValue(int64(i%rows)+1))
			for {
				row, err := s.step()
				if err != nil {
					b.Fatal(err)
				}
				if !row {
					break
				}
				s.bytes(0)
			}
			s.reset()
		}
	})
}

func BenchmarkPointRead(b *testing.B) {
	u := unit(b, open(b, Config{}))
	write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", fmt.Sprintf("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT INTO t SELECT i, 'value '||i FROM n", rows))
	b.ReportAllocs()
	args := make([]Value, 1)
	cpuOf(b, func() {
		for i := 0; b.Loop(); i++ {
			args[0] = IntValue(int64(i%rows) + 1)
			err := u.Read(ctx, func(c *Conn) error {
				_, _, err := c.Exec("SELECT b FROM t WHERE a=?", args, func(r *Row) error { r.Bytes(0); return nil })
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchInsertPlain(b *testing.B, pragmas string) {
	r := plain(b, pragmas)
	s := r.mustPrepare(b, "INSERT INTO t(b) VALUES(?)")
	cpuOf(b, func() {
		for b.Loop() {
			s.bind(1, TextValue("some value"))
			if err := s.drain(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkInsertPlainNormal(b *testing.B) {
	benchInsertPlain(b, "PRAGMA synchronous=NORMAL;")
}
func BenchmarkInsertPlainFull(b *testing.B) { benchInsertPlain(b, "PRAGMA synchronous=FULL;") }

var insertArgs = []Value{TextValue("some value")}

func insertValue(c *Conn) error {
	_, _, err := c.Exec("INSERT INTO t(b) VALUES(?)", insertArgs, nil)
	return err
}

func benchInsert(b *testing.B, cfg Config, clients int, capture bool) {
	u := unit(b, open(b, cfg))
	write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	if !capture {
		u.w.capture = nil
		u.w.raw.exec("PRAGMA wal_autocheckpoint=1000")
	}
	do := func() error { _, err := u.Write(ctx, insertValue); return err }
	cpuOf(b, func() {
		if clients == 1 {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
			return
		}
		b.SetParallelism(clients / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkInsertNormalNoCapture(b *testing.B) { benchInsert(b, Config{Sync: SyncNormal}, 1, false) }
func BenchmarkInsertNormal(b *testing.B)          { benchInsert(b, Config{Sync: SyncNormal}, 1, true) }
func BenchmarkInsertNormal64(b *testing.B)        { benchInsert(b, Config{Sync: SyncNormal}, 64, true) }
func BenchmarkInsertFull(b *testing.B)            { benchInsert(b, Config{}, 1, true) }
func BenchmarkInsertFull8(b *testing.B)           { benchInsert(b, Config{}, 8, true) }
func BenchmarkInsertFull64(b *testing.B)          { benchInsert(b, Config{}, 64, true) }

func BenchmarkInsert100InOneTransaction(b *testing.B) {
	u := unit(b, open(b, Config{}))
	write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	for b.Loop() {
		_, err := u.Write(ctx, func(c *Conn) error {
			for range 100 {
				if err := insertValue(c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkFirstQuery is what a unit's first query costs after it was closed.
func BenchmarkFirstQuery(b *testing.B) {
	s := open(b, Config{MaxOpen: 1})
	for _, name := range []string{"a", "b"} {
		s.Create(ctx, name, 1)
		u, release, err := s.Acquire(ctx, name)
		if err != nil {
			b.Fatal(err)
		}
		write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "INSERT INTO t VALUES(1, zeroblob(90000))")
		release()
	}
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		// Close whatever is open, outside the measured time.
		s.slots.mu.Lock()
		victim := s.slots.longestIdle(time.Time{})
		s.slots.mu.Unlock()
		if victim != nil {
			s.closeIdle(victim)
		}
		start := time.Now()
		u, release, err := s.Acquire(ctx, []string{"a", "b"}[i%2])
		if err != nil {
			b.Fatal(err)
		}
		if one(b, u, "SELECT a FROM t") != "1" {
			b.Fatal("wrong")
		}
		times = append(times, time.Since(start))
		release()
	}
	b.ReportMetric(float64(median(times).Microseconds()), "p50-µs")
}

func median(d []time.Duration) time.Duration {
	lo, hi := time.Duration(0), time.Hour
	for hi-lo > time.Microsecond {
		mid := (lo + hi) / 2
		n := 0
		for _, x := range d {
			if x <= mid {
				n++
			}
		}
		if n*2 >= len(d) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// BenchmarkIdleUnitMemory opens 1,000 units of 100 KB, reads and writes each
// once, and reports the growth of the process per unit.
func BenchmarkIdleUnitMemory(b *testing.B) {
	for b.Loop() {
		s := open(b, Config{MaxOpen: 2000})
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprint("u", i)
			s.Create(ctx, names[i], 1)
		}
		before := rss(b)
		for _, name := range names {
			u, release, err := s.Acquire(ctx, name)
			if err != nil {
				b.Fatal(err)
			}
			write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "INSERT INTO t VALUES(1, zeroblob(90000))")
			one(b, u, "SELECT length(group_concat(hex(b))) FROM t")
			release()
		}
		b.ReportMetric(float64(rss(b)-before)/1000/1024, "KB-fresh")
		for _, name := range names {
			u, release, _ := s.Acquire(ctx, name)
			release()
			u.trim()
		}
		b.ReportMetric(float64(rss(b)-before)/1000/1024, "KB-idle")
		s.Close()
	}
}

func rss(b *testing.B) int64 {
	runtime.GC()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc")
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n * 1024
		}
	}
	return 0
}

type discard struct{ n atomic.Int64 }

func (d *discard) Write(p []byte) (int, error) { d.n.Add(int64(len(p))); return len(p), nil }

func BenchmarkImageOut(b *testing.B) {
	u := unit(b, open(b, Config{}))
	write(b, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<50) INSERT INTO t SELECT i, randomblob(1000000) FROM n")
	b.SetBytes(u.dbBytes.Load())
	for b.Loop() {
		img, err := u.Image(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := img.WriteTo(new(discard)); err != nil {
			b.Fatal(err)
		}
		img.Close()
	}
}

// BenchmarkFirstQueryPlain is the driver's own cost of opening and asking.
func BenchmarkFirstQueryPlain(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.db")
	r, err := openRaw(path, true)
	if err != nil {
		b.Fatal(err)
	}
	r.exec("PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES(1, zeroblob(90000))")
	r.close()
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		r, err := openRaw(path, false)
		if err != nil {
			b.Fatal(err)
		}
		if v, err := r.queryText("SELECT a FROM t"); v != "1" {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
		r.close()
	}
	b.ReportMetric(float64(median(times).Microseconds()), "p50-µs")
}
