package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"domicile/fsm"
	"domicile/proto"
)

// MoveTenant moves a tenant while it is in use. Exactly one answer is given: that of a
// move which is over, or, where put.Wait is false or it takes long, the move as it
// stands: ask Move of it again.
func (c *Client) MoveTenant(ctx context.Context, name fsm.TenantName, put proto.MoveTenant) (*proto.TenantMoved, *proto.Move, error) {
	a, err := c.change(ctx, http.MethodPost, path("tenants", string(name), "move"), put, nil)
	if err != nil {
		return nil, nil, err
	}
	if a.status == http.StatusAccepted {
		move := new(proto.Move)
		return nil, move, decode(a, move)
	}
	moved := new(proto.TenantMoved)
	return moved, nil, decode(a, moved)
}

// ListMoves says which moves to list. The zero value lists all.
type ListMoves struct {
	Tenant fsm.TenantName
	Node   fsm.NodeName // from it or to it
	Active bool         // that have not ended
	Kind   string       // proto.KindRebalance: rebalances in place of moves
	After  fsm.JobID    // older than the one of this number
	Limit  int          // at most so many in a page; 0: the server's default
}

func (l ListMoves) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"tenant": string(l.Tenant), "node": string(l.Node), "kind": l.Kind} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if l.After != 0 {
		q.Set("after", l.After.String())
	}
	if l.Limit != 0 {
		q.Set("limit", strconv.Itoa(l.Limit))
	}
	if l.Active {
		q.Set("active", "1")
	}
	return q
}

// MovesPage gives one page of moves, the newest first, and whether there are more: ask
// again with After set to the last one's ID.
func (c *Client) MovesPage(ctx context.Context, list ListMoves) ([]proto.Move, bool, error) {
	var out []proto.Move
	a, err := c.read(ctx, path("moves"), list.query(), &out)
	return out, err == nil && strings.Contains(a.header.Get("Link"), `rel="next"`), err
}

// Moves gives all moves that are kept, the newest first.
func (c *Client) Moves(ctx context.Context, list ListMoves) ([]proto.Move, error) {
	all := []proto.Move{}
	for {
		page, more, err := c.MovesPage(ctx, list)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if !more || len(page) == 0 {
			return all, nil
		}
		list.After = page[len(page)-1].ID
	}
}

// Move gives one move, or a rebalance.
func (c *Client) Move(ctx context.Context, id fsm.JobID) (proto.Move, error) {
	var out proto.Move
	_, err := c.read(ctx, path("moves", id.String()), nil, &out)
	return out, err
}

// CancelMove ends a move that has not come to its release, or what has not begun of a
// rebalance.
func (c *Client) CancelMove(ctx context.Context, id fsm.JobID) (proto.Move, error) {
	var out proto.Move
	_, err := c.change(ctx, http.MethodDelete, path("moves", id.String()), nil, &out)
	return out, err
}

// DrainNode begins to empty a node. Force takes pinned tenants too, and begins where not
// everything has a place to go to.
func (c *Client) DrainNode(ctx context.Context, name fsm.NodeName, force bool) (proto.DrainBegun, error) {
	var out proto.DrainBegun
	_, err := c.change(ctx, http.MethodPost, path("nodes", string(name), "drain"), proto.Drain{Force: force}, &out)
	return out, err
}

// Drain tells how far a node's drain is.
func (c *Client) Drain(ctx context.Context, name fsm.NodeName) (proto.DrainState, error) {
	var out proto.DrainState
	_, err := c.read(ctx, path("nodes", string(name), "drain"), nil, &out)
	return out, err
}

// UndrainNode ends a node's drain: it takes tenants again.
func (c *Client) UndrainNode(ctx context.Context, name fsm.NodeName) error {
	_, err := c.change(ctx, http.MethodDelete, path("nodes", string(name), "drain"), nil, nil)
	return err
}

// Rebalance plans which tenants go to which nodes, and begins that unless it is a dry
// run or there is nothing to move: the plan has an ID then.
func (c *Client) Rebalance(ctx context.Context, ask proto.Rebalance) (proto.RebalancePlan, error) {
	var out proto.RebalancePlan
	_, err := c.change(ctx, http.MethodPost, path("rebalance"), ask, &out)
	return out, err
}
