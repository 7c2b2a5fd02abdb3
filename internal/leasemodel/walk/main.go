// Command walk walks the model of the lease rule: the whole rule, which must
// have no bad state, and each rule that lacks a clause, which must have one. It
// ends with status 1 when that is not so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"domicile/internal/leasemodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	room   int
	traces bool
	only   string
}

func run(ctx context.Context) error {
	var o options
	size := leasemodel.Usual
	flag.Func("size", "size of the instances: small, usual (the default) or large (hours, and tens of gigabytes)", func(v string) error {
		size = leasemodel.Size(v)
		if size != leasemodel.Small && size != leasemodel.Usual && size != leasemodel.Large {
			return fmt.Errorf("small, usual or large")
		}
		return nil
	})
	memory := flag.Int("memory", 2048, "megabytes for the table of states")
	flag.BoolVar(&o.traces, "traces", true, "print the counter-examples")
	flag.StringVar(&o.only, "only", "", "walk only the rules whose names contain this (whole: the whole rule)")
	flag.Parse()
	o.room = *memory << 20 / 16
	whole := leasemodel.Whole()
	failed := 0
	walk := func(name string, rule leasemodel.Rule, b leasemodel.Bounds, bad bool) error {
		if !strings.Contains(name, o.only) {
			return nil
		}
		ok, err := o.walk(ctx, name, rule, b, bad)
		if !ok {
			failed++
		}
		return err
	}
	if err := walk("whole rule, leases", whole, size.Leases(), false); err != nil {
		return err
	}
	if err := walk("whole rule, promises", whole, size.Promises(), false); err != nil {
		return err
	}
	for _, k := range leasemodel.Knockouts() {
		rule, b := whole, leasemodel.Small.Leases()
		if k.LeaveOut(&rule); k.Promises {
			b = leasemodel.Small.Promises()
		}
		if err := walk("without "+k.Name, rule, b, true); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of the walks ended in another way than they must", failed)
	}
	return nil
}

// walk walks one rule and says whether it ended as it must.
func (o *options) walk(ctx context.Context, name string, rule leasemodel.Rule, b leasemodel.Bounds, wantBad bool) (bool, error) {
	m := &leasemodel.Model{Rule: rule, Bounds: b}
	begin := time.Now()
	r, err := m.Walk(ctx, o.room)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	verdict := "no bad state"
	if r.Bad != "" {
		verdict = r.Bad
	}
	fmt.Printf("%s: %s (%d states, %d steps, depth %d, %v)\n", name, verdict, r.States, r.Steps, r.Depth, time.Since(begin).Round(10*time.Millisecond))
	ok := (r.Bad != "") == wantBad
	if r.Bad != "" && (o.traces || !ok) {
		m.Print(os.Stdout, r.Trace)
	}
	return ok, nil
}
