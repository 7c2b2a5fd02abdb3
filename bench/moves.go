package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// movesBench measures what quality figures §4.5 ask for.
type movesBench struct {
	bin, dir string
	runs     int
	sizes    []int64 // MB
	rate     int     // writes a second
	tenants  int
	rows     [][]string
	bad      int // requests failed, rows lost and doubled, in all
}

func benchMoves(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("moves", flag.ContinueOnError)
	runs := fs.Int("runs", 20, "moves of each kind and size, 1 to 1000")
	sizes := fs.String("sizes", "1,64,256,1024", "sizes of the tenant in MB, separated by commas")
	rate := fs.Int("rate", 1000, "writes a second")
	tenants := fs.Int("tenants", 1000, "tenants of the section drain")
	only := fs.String("only", "", "sections, separated by commas: pause, parts, rate, regions, drain, many; none: all")
	bin := fs.String("domicile", "bin/domicile", "the program")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *runs > 1000 {
		return fmt.Errorf("-runs takes 1 to 1000")
	}
	if *rate < 1 || *rate > 20_000 || *tenants < 1 {
		return fmt.Errorf("-rate takes 1 to 20000, -tenants 1 or more")
	}
	path, err := findBinary(*bin)
	if err != nil {
		return err
	}
	b := &movesBench{bin: path, runs: *runs, rate: *rate, tenants: *tenants}
	for _, s := range strings.Split(*sizes, ",") {
		mb, err := strconv.ParseInt(s, 10, 64)
		if err != nil || mb < 1 {
			return fmt.Errorf("-sizes takes numbers of MB: %q", s)
		}
		b.sizes = append(b.sizes, mb)
	}
	dir, err := os.MkdirTemp(".", "bench-moves-") // on the disk that the project is on
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return b.sections(ctx, dir, *only)
}

func (b *movesBench) sections(ctx context.Context, dir, only string) (failed error) {
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"pause", b.pauses},
		{"parts", b.parts},
		{"rate", b.copyRate},
		{"regions", b.regions},
		{"drain", b.drains},
		{"many", b.many},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), s.name) {
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
		_ = os.RemoveAll(b.dir) // the next one needs the room
	}
	return errors.Join(failed, b.verdict())
}

// verdict is an error where anything went wrong that a client would see.
func (b *movesBench) verdict() error {
	if b.bad > 0 {
		return fmt.Errorf("%d requests failed, or rows were lost or doubled", b.bad)
	}
	return nil
}

func (b *movesBench) row(figure, measured, reach string) {
	b.rows = append(b.rows, []string{figure, measured, reach})
}

// tally stops a load of writes and one of reads, and adds up what went wrong.
func (b *movesBench) tally(ctx context.Context, writes, reads *openLoad) (string, error) {
	reads.stop()
	writes.stop()
	lost, doubled, err := writes.tally(ctx)
	if err != nil {
		return "", err
	}
	b.bad += writes.failed + reads.failed + lost + doubled
	return fmt.Sprintf("%d / %d / %d of %d writes and %d reads", writes.failed+reads.failed, lost, doubled, writes.sent, reads.sent), nil
}

// spread is a sample as p50 / p99 / worst.
func (s sample) spread() string {
	if len(s) == 0 {
		return "–"
	}
	c := s.sorted()
	return short(s.median()) + " / " + short(c[min(len(c)-1, len(c)*99/100)]) + " / " + short(c[len(c)-1])
}
