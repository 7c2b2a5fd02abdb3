package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// failoverBench measures what quality figures §4.4 ask for.
type failoverBench struct {
	bin, dir string
	runs     int
	length   time.Duration
	rows     [][]string
}

func benchFailover(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("failover", flag.ContinueOnError)
	runs := fs.Int("runs", 10, "failovers of each kind, 1 to 100")
	length := fs.Duration("time", 3*time.Second, "length of one measurement of writes")
	tenants := fs.Int("tenants", 1000, "tenants of the section many, and of the second half of stop")
	only := fs.String("only", "", "sections, separated by commas: cut, short, many, hand, stop, lag, keepup, ack, nodes; none: all")
	bin := fs.String("domicile", "bin/domicile", "the program")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *runs > 100 {
		return fmt.Errorf("-runs takes 1 to 100")
	}
	path, err := findBinary(*bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", "bench-failover-") // on the disk that the project is on
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var failed error
	b := &failoverBench{bin: path, runs: *runs, length: *length}
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"cut", func(ctx context.Context) error {
			return b.cutOff(ctx, copyOptions{lease: time.Second}, 10, 10, b.runs, "≤ 1.15 s in the worst")
		}},
		{"short", func(ctx context.Context) error {
			return b.cutOff(ctx, copyOptions{lease: 300 * time.Millisecond}, 10, 10, b.runs, "≤ 0.4 s")
		}},
		{"hand", func(ctx context.Context) error { return b.byHand(ctx, 20) }},
		{"stop", func(ctx context.Context) error {
			few := b.cleanStop(ctx, 100)
			b.dir += "-many"
			return errors.Join(few, b.cleanStop(ctx, *tenants))
		}},
		{"lag", b.lag},
		{"keepup", b.keepUp},
		{"ack", b.ack},
		{"nodes", func(ctx context.Context) error { return b.manyNodes(ctx, 1000) }},
		{"many", func(ctx context.Context) error {
			// When tenants can be written shows with a client for some of them; with
			// one for each, what their first writes cost shows too.
			some := b.cutOff(ctx, copyOptions{lease: time.Second}, *tenants, min(50, *tenants), max(1, b.runs/3), "≤ 1.3 s")
			b.dir += "-all"
			return errors.Join(some, b.cutOff(ctx, copyOptions{lease: time.Second}, *tenants, *tenants, max(1, b.runs/3), "≤ 1.3 s"))
		}},
	} {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		begin := time.Now()
		b.dir, b.rows = filepath.Join(dir, s.name), nil
		if err := s.run(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, time.Since(begin).Round(time.Millisecond))
		if len(b.rows) > 0 {
			table([]string{"figure", "measured", "reach"}, b.rows)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return failed
}

func (b *failoverBench) row(figure, measured, reach string) {
	b.rows = append(b.rows, []string{figure, measured, reach})
}

func seconds(d time.Duration) float64 { return d.Seconds() }
func millis(d time.Duration) float64  { return float64(d.Microseconds()) / 1000 }
