package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

// nodeCall makes one call to a node, as the holder of a term.
type nodeCall struct {
	nodes  *nodeClient
	action loops.Action
	node   nodeAt
	holder proto.Holder
	number uint64 // of the call, in the term of holder; 0: it changes nothing
	schema string
	// source is whom units follow, or the primary of a copy that is removed, and token what that node is shown; others are
	// the nodes that units are handed to.
	source *fsm.Node
	token  string
	others map[fsm.NodeName]string // their addresses
	job    string                  // by which number a handover is known to its source
	forced bool                    // what they lack of a unit that the node cannot read is given up
	// unproven: what they have is known by the release alone, as a move's target need not
	// be in sync.
	unproven bool
}

// addresses takes from the directory where the nodes are that the call is about;
// false where one is not recorded.
func (c *nodeCall) addresses(state *fsm.State) bool {
	a := &c.action
	node, ok := state.Node(a.Target.Node)
	if !ok {
		return false
	}
	c.node = at(node)
	switch a.Verb {
	case loops.FollowUnits:
		if job, receives := state.Job(a.Job); receives && job.Other != nil { // of another directory
			c.source, c.token = &fsm.Node{Name: job.Other.Node, Addr: job.Other.Addr}, job.Other.Token
			return true
		}
		if c.source, ok = state.Node(a.Source); !ok {
			return false
		}
		if c.token = state.Settings().ReplicationToken; c.token == "" {
			c.token = c.source.Token
		}
	case loops.RemoveCopy:
		if u, ok := state.Placed(a.Target.Unit); ok && u.ID == a.Target.ID && u.Promoted() && u.Node != a.Target.Node {
			c.source, _ = state.Node(u.Node)
		}
	case loops.HandOverUnits, loops.ThawUnits:
		job, ok := state.Job(a.Job)
		if ok { // a forced drain's moves overlook pins alone
			c.forced, c.unproven = job.Forced && job.Kind == fsm.JobHandover, job.Kind == fsm.JobMove || job.Kind == fsm.JobDepart
		}
		if c.job = a.Job.String(); ok && job.Release != 0 {
			c.job = strconv.FormatUint(uint64(job.Release), 10)
		}
		c.others = make(map[fsm.NodeName]string)
		if ok && job.Other != nil {
			c.others[job.Other.Node] = nodeURL(job.Other.Addr)
			return true
		}
		for _, i := range a.Units {
			if n, ok := state.Node(i.Node); ok {
				c.others[i.Node] = nodeURL(n.Addr)
			}
		}
	}
	return true
}

// do makes the call and says what came of it.
func (c *nodeCall) do(ctx context.Context) loops.Answer {
	switch v := c.action.Verb; v {
	case loops.MakeUnit:
		return c.make(ctx)
	case loops.RunSchema:
		return c.runSchema(ctx)
	case loops.RemoveUnit, loops.RemoveCopy:
		return c.remove(ctx)
	case loops.RemakeAndRunSchema:
		if a := c.remove(ctx); a.Outcome != loops.Done && a.Outcome != loops.Absent {
			return a
		}
		if a := c.make(ctx); a.Outcome != loops.Done {
			a.Untouched = false
			return a
		}
		return c.runSchema(ctx)
	case loops.FollowUnits:
		return c.follow(ctx)
	case loops.PromoteUnits:
		return c.promote(ctx)
	case loops.HandOverUnits:
		return c.handOver(ctx)
	case loops.ThawUnits:
		return c.thaw(ctx)
	case loops.LookAtUnits:
		return c.look(ctx)
	case loops.LookAtMove:
		return c.lookAtMove(ctx)
	case loops.ReadNode:
		return c.read(ctx)
	default:
		panic(fmt.Sprintf("BUG: verb %d", v))
	}
}

// header numbers the call, so that a node knows a late one.
func (c *nodeCall) header() http.Header {
	h := http.Header{}
	if c.number != 0 {
		h.Set(proto.HeaderCall, strconv.FormatUint(c.number, 10))
	}
	return h
}

// unitHeader is header, with the id of the unit that the call is about.
func (c *nodeCall) unitHeader() http.Header {
	h := c.header()
	h.Set(proto.HeaderUnitID, strconv.FormatUint(uint64(c.action.Target.ID), 10))
	return h
}

func (c *nodeCall) make(ctx context.Context) loops.Answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.nodes.call(ctx, http.MethodPut, c.node, unitPath(c.action.Target.Unit), c.header(),
		proto.MakeUnit{ID: c.action.Target.ID, Holder: c.holder})
	if err == nil && reply.status == http.StatusCreated {
		return loops.Answer{Outcome: loops.Done}
	}
	return c.negative(reply, err, "create the tenant")
}

func (c *nodeCall) runSchema(ctx context.Context) loops.Answer {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	reply, err := c.nodes.call(ctx, http.MethodPost, c.node, unitPath(c.action.Target.Unit)+"/schema", c.unitHeader(),
		proto.RunSchema{SQL: c.schema, Holder: c.holder})
	switch {
	case err == nil && reply.status == http.StatusOK:
		return loops.Answer{Outcome: loops.Done}
	case err == nil && reply.status == http.StatusBadRequest:
		return loops.Answer{Outcome: loops.Refused, Refusal: &fsm.Refusal{
			Code:   fsm.CodeSchemaRefused,
			Text:   "the schema was refused, and nothing is kept; the name is being given back (the tenant may show as deleting for a moment): " + said(reply),
			Fields: c.fields(),
		}}
	}
	a := c.negative(reply, err, "run the schema")
	// The unit was made: the job has done something on the node.
	a.Untouched = false
	return a
}

func (c *nodeCall) remove(ctx context.Context) loops.Answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	header := c.unitHeader()
	header.Set(proto.HeaderHolder, c.holder.String())
	if c.action.Verb == loops.RemoveCopy {
		header.Set(proto.HeaderRemoval, proto.RemovalCopy)
		if text := c.lives(ctx); text != "" {
			header.Set(proto.HeaderLives, text)
		}
	}
	reply, err := c.nodes.call(ctx, http.MethodDelete, c.node, unitPath(c.action.Target.Unit), header, nil)
	if err == nil {
		// Only a node's own word ends a job: what listens at its address may be
		// something else for a while, and has a 404 for everything.
		switch code, node := errorOf(reply); {
		case reply.status == http.StatusNoContent:
			return loops.Answer{Outcome: loops.Done, Aside: reply.header.Get(proto.HeaderAside)}
		case reply.status == http.StatusNotFound && node && code != proto.CodeUnknownRoute,
			reply.status == http.StatusConflict && (code == nodeCodeUnitExists || code == nodeCodeWrongID):
			return loops.Answer{Outcome: loops.Absent}
		}
	}
	return c.negative(reply, err, "remove the tenant")
}

// lives asks the primary of a copy that is removed where the unit stands there; "" where
// it does not say: then what the copy's node holds is kept.
func (c *nodeCall) lives(ctx context.Context) string {
	if c.source == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	reply, err := c.nodes.call(ctx, http.MethodGet, at(c.source), unitPath(c.action.Target.Unit)+"/position", nil, nil)
	var p proto.UnitPosition
	if err != nil || reply.status != http.StatusOK || json.Unmarshal(reply.body, &p) != nil || p.ID != c.action.Target.ID {
		return ""
	}
	return p.Lives()
}

// A node's codes for: it holds another unit of this name.
const (
	nodeCodeUnitExists fsm.Code = "unit_exists"
	nodeCodeWrongID    fsm.Code = "wrong_unit_id"
)

// negative reads an answer that is not what the call hoped for. Its texts name
// no port of this end and no time, so that the same trouble has the same text.
func (c *nodeCall) negative(reply nodeReply, err error, what string) loops.Answer {
	if err != nil {
		var unsent *notSentError
		return loops.Answer{Outcome: loops.Silent, Untouched: errors.As(err, &unsent), Refusal: &fsm.Refusal{
			Code:   fsm.CodeNodeUnreachable,
			Text:   fmt.Sprintf("node %s at %s does not answer; it was asked to %s", c.node.name, c.node.addr, what),
			Fields: c.fields(),
		}}
	}
	a := loops.Answer{Outcome: loops.Refused, Refusal: &fsm.Refusal{
		Code:   fsm.CodeNodeRefused,
		Text:   fmt.Sprintf("node %s refused to %s: %s", c.node.name, what, said(reply)),
		Fields: c.fields(),
	}}
	switch {
	case reply.status == http.StatusServiceUnavailable:
		a.Outcome, a.Untouched = loops.Unavailable, true
	case reply.status == http.StatusConflict:
		a.Untouched = true
		if h, ok := holderOf(reply); ok {
			a.Outcome = loops.Foreign
			if h.Authority == c.holder.Authority {
				a.Outcome, a.Heard = loops.Fenced, h.History
			}
			a.Refusal.Text = fmt.Sprintf("node %s belongs to %s; it was asked to %s by %s", c.node.name, h.Authority, what, c.holder.Authority)
		}
	case reply.status >= 400 && reply.status < 500:
		a.Untouched = true // a refusal has no effect (I7)
	}
	return a
}

func (c *nodeCall) fields() map[string]string {
	tenant, _, _ := c.action.Target.Unit.Split()
	return map[string]string{"node": string(c.node.name), "tenant": string(tenant)}
}

// nodeFault is the body of a node's negative answer.
type nodeFault struct {
	Error string   `json:"error"`
	Code  fsm.Code `json:"code"`
}

// said gives the text of a node's negative answer.
func said(reply nodeReply) string {
	var f nodeFault
	if json.Unmarshal(reply.body, &f) != nil || f.Error == "" {
		return fmt.Sprintf("status %d", reply.status)
	}
	return f.Error
}

// errorOf gives the code of a negative answer, "" for none; false where it does
// not look like a node's.
func errorOf(reply nodeReply) (fsm.Code, bool) {
	var f nodeFault
	err := json.Unmarshal(reply.body, &f)
	return f.Code, err == nil && f.Error != ""
}

// holderOf gives the holder that a node's 409 names.
func holderOf(reply nodeReply) (proto.Holder, bool) {
	var h proto.Holder
	err := json.Unmarshal(reply.body, &h)
	return h, err == nil && h.Authority != ""
}
