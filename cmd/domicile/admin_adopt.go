package main

import (
	"errors"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

var errHandOverUndone = errors.New("the hand-over was undone: the region is where it was")

// handing is a region that changes directories.
type handing struct {
	Name   fsm.RegionName `arg:"" help:"Name of the region."`
	Show   bool           `help:"Begin nothing: show how the last one stands."`
	Cancel bool           `help:"End one under way that has not given the region yet; its nodes and tenants stay where they are."`
	Wait   bool           `default:"true" negatable:"" help:"Wait until it has ended, and tell what it waits for."`
}

type regionsAdopt struct{ handing }

// Run has a region keep its own directory from now on.
func (c *regionsAdopt) Run(a *admin) error { return c.run(a, proto.HandOverAdopt) }

type regionsReturn struct{ handing }

// Run has the global directory keep a region again.
func (c *regionsReturn) Run(a *admin) error { return c.run(a, proto.HandOverReturn) }

func (c *handing) run(a *admin, how string) error {
	ask := a.HandRegion
	switch {
	case c.Show && c.Cancel:
		return usagef("--show begins and ends nothing, and --cancel ends a hand-over; give one of them")
	case c.Show:
		ask = a.RegionHandOver
	case c.Cancel:
		ask = a.CancelHandOver
	}
	h, err := ask(a.ctx, c.Name, how)
	said := ""
	for err == nil && c.Wait && !c.Show && h.Outcome == "" {
		if !a.json && h.Step+h.Problem != said {
			said = h.Step + h.Problem
			if err := a.say("%s %s", h.Step, h.Problem); err != nil {
				return err
			}
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
		h, err = a.RegionHandOver(a.ctx, c.Name, how)
	}
	if err != nil {
		return err
	}
	rows := [][]string{{string(h.Region), h.Direction, h.Step, h.Outcome, h.Problem + h.Error}}
	if err := a.print(h, []string{"REGION", "DIRECTION", "STEP", "OUTCOME", "PROBLEM"}, rows); err != nil {
		return err
	}
	if h.Outcome == "undone" && !c.Cancel {
		return errHandOverUndone
	}
	return nil
}
