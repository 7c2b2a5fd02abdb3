package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

// Routes of a node that are about many units.
const (
	pathUnits    = "/_admin/units"
	pathFollow   = "/_admin/follow"
	pathPromote  = "/_admin/promote"
	pathHandover = "/_admin/handover"
	pathThaw     = "/_admin/thaw"
)

// ask posts body and reads a positive answer into into; what is not one is the
// call's Answer.
func (c *nodeCall) ask(ctx context.Context, limit time.Duration, path, what string, body, into any) (loops.Answer, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	reply, err := c.nodes.call(ctx, method, c.node, path, c.header(), body)
	if err == nil && reply.status == http.StatusOK {
		if into == nil || json.Unmarshal(reply.body, into) == nil {
			return loops.Answer{}, true
		}
		return loops.Answer{Outcome: loops.Refused, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused, Fields: c.fields(),
			Text: fmt.Sprintf("node %s was asked to %s and answers what no node answers", c.node.name, what)}}, false
	}
	return c.negative(reply, err, what), false
}

// done is the Answer of a call about many units: those that are not in ok
// failed, for the reason that is given.
func (c *nodeCall) done(ok map[fsm.UnitName]bool, failed []proto.FailedUnit) loops.Answer {
	a := loops.Answer{Outcome: loops.Done, Failed: make(map[fsm.UnitName]loops.Failure)}
	for _, i := range c.action.Units {
		if !ok[i.Unit] {
			a.Failed[i.Unit] = loops.Failure{Why: "it did not answer for this tenant"}
		}
	}
	for _, f := range failed {
		if _, asked := a.Failed[f.Tenant]; asked {
			a.Failed[f.Tenant] = loops.Failure{Why: f.Why, Left: fsm.Millis(max(f.LeftMS, 0)), Absent: f.Code == fsm.CodeTenantUnknown}
		}
	}
	return a
}

func (c *nodeCall) follow(ctx context.Context) loops.Answer {
	body := proto.FollowUnits{From: nodeURL(c.source.Addr), As: nodeURL(c.node.addr), Token: c.token, Holder: c.holder}
	for _, i := range c.action.Units {
		body.Units = append(body.Units, proto.FollowUnit{Unit: i.Unit, ID: i.ID, Epoch: i.Epoch, Kind: kindOf(i.Kind)})
	}
	var answer proto.FollowingUnits
	if a, ok := c.ask(ctx, callTimeout, pathFollow, "follow "+string(c.source.Name), body, &answer); !ok {
		return a
	}
	ok := make(map[fsm.UnitName]bool)
	for _, u := range answer.Following {
		ok[u] = true
	}
	return c.done(ok, answer.Failed)
}

// kindOf says to a node what a copy is for.
func kindOf(s fsm.CopyState) proto.CopyKind {
	switch s {
	case fsm.CopyTarget:
		return proto.CopyTarget
	case fsm.CopyReader:
		return proto.CopyReader
	}
	return ""
}

func (c *nodeCall) promote(ctx context.Context) loops.Answer {
	body := proto.Promote{Epoch: strconv.FormatUint(c.action.Epoch, 10), Holder: c.holder}
	for _, i := range c.action.Units {
		body.Tenants = append(body.Tenants, proto.UnitItem{Unit: i.Unit, ID: i.ID})
	}
	var answer proto.Promoted
	if a, ok := c.ask(ctx, promoteTimeout, pathPromote, "promote tenants", body, &answer); !ok {
		return a
	}
	return c.done(unitsOf(answer.Promoted), answer.Failed)
}

func unitsOf(list []proto.PromotedUnit) map[fsm.UnitName]bool {
	units := make(map[fsm.UnitName]bool)
	for _, p := range list {
		units[p.Tenant] = true
	}
	return units
}

func (c *nodeCall) handOver(ctx context.Context) loops.Answer {
	body := proto.Handover{Job: c.job, MS: freezeFor.Milliseconds(), Units: c.handoverUnits(), Forced: c.forced, Unproven: c.unproven, Holder: c.holder}
	var answer proto.HandedOver
	if a, ok := c.ask(ctx, callTimeout, pathHandover, "hand tenants over", body, &answer); !ok {
		return a
	}
	return c.done(unitsOf(answer.Released), answer.Failed)
}

func (c *nodeCall) thaw(ctx context.Context) loops.Answer {
	body := proto.Thaw{Job: c.job, Units: c.handoverUnits(), Holder: c.holder}
	var answer proto.Thawed
	a, ok := c.ask(ctx, callTimeout, pathThaw, "take tenants back", body, &answer)
	for _, f := range answer.Failed {
		// What the node does not hold it has not given up either. Any other has to be
		// taken back before the job ends (architecture §3.6.5).
		if f.Code != fsm.CodeTenantUnknown && f.Code != nodeCodeWrongID {
			return loops.Answer{Outcome: loops.Unavailable, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused,
				Text: fmt.Sprintf("node %s does not take tenant %s back: %s", c.node.name, f.Tenant, f.Why), Fields: c.fields()}}
		}
	}
	if ok || a.Refusal != nil && a.Refusal.Fields["code"] == string(proto.CodeUnknownRoute) {
		return loops.Answer{Outcome: loops.Done} // a node that hands nothing over has nothing to take back
	}
	return a
}

func (c *nodeCall) handoverUnits() []proto.HandoverUnit {
	var units []proto.HandoverUnit
	for _, i := range c.action.Units {
		units = append(units, proto.HandoverUnit{Unit: i.Unit, ID: i.ID, Node: i.Node, Addr: c.others[i.Node]})
	}
	return units
}

// look asks what the node holds; for the positions of copies it has little time.
func (c *nodeCall) look(ctx context.Context) loops.Answer {
	limit := lookTimeout
	if c.action.Source != "" {
		limit = compareTimeout
	}
	held, a, ok := c.held(ctx, limit)
	if !ok {
		return a
	}
	a = loops.Answer{Outcome: loops.Done, Held: make([]loops.Held, 0, len(held))}
	for _, h := range held {
		one := loops.Held{UnitRef: fsm.UnitRef{Unit: h.Unit, ID: h.ID}, Aside: fileNames(h.Aside)}
		one.Epoch, one.Seq, _ = parsePosition(h.Position)
		if h.Lost != nil {
			one.From, one.To = h.Lost.From, h.Lost.To
		}
		a.Held = append(a.Held, one)
	}
	return a
}

// fileNames gives the names of files in a node's aside/, as the answer to a removal does.
func fileNames(paths []string) []string {
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = filepath.Base(p)
	}
	return names
}

func (c *nodeCall) held(ctx context.Context, limit time.Duration) ([]proto.HeldUnit, loops.Answer, bool) {
	var held []proto.HeldUnit
	a, ok := c.ask(ctx, limit, pathUnits, "tell what it holds", nil, &held)
	return held, a, ok
}

// parsePosition reads "<epoch>:<seq>".
func parsePosition(text string) (epoch, seq uint64, ok bool) {
	e, q, _ := strings.Cut(text, ":")
	epoch, err1 := strconv.ParseUint(e, 10, 64)
	seq, err2 := strconv.ParseUint(q, 10, 64)
	return epoch, seq, err1 == nil && err2 == nil
}
