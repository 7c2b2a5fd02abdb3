package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// moved is the answer to a move.
type moved struct {
	From, To     string
	Bytes        uint64
	MS           uint64  `json:"ms"`
	PauseMS      float64 `json:"pause_ms"`
	ReplicaOn    string  `json:"replica_on"`
	Unreplicated string
	ID           json.Number
}

// move moves a tenant and waits until it is written at its new node.
func (c *copyCluster) move(ctx context.Context, tenant, to int, region string) (m moved, err error) {
	_, api, err := c.leader(ctx)
	if err != nil {
		return m, err
	}
	body := fmt.Sprintf(`{"to":%q}`, nodeID(to))
	if region != "" {
		body = fmt.Sprintf(`{"to":%q,"region":%q}`, nodeID(to), region)
	}
	data, err := c.ask(ctx, http.MethodPost, api+"/_shard/tenants/"+tenantName(tenant)+"/move", body)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.To == "" {
		err = fmt.Errorf("the move was not awaited: %s", data)
	}
	return m, err
}

// awaitMoved waits until nothing is left of a move, and the tenant has the copies that
// it is to have.
func (c *copyCluster) awaitMoved(ctx context.Context, m moved) error {
	_, api, err := c.leader(ctx)
	if err != nil {
		return err
	}
	return c.awaitMovedBy(ctx, api, m)
}

// awaitMovedBy does so for a move of the group at that address.
func (c *copyCluster) awaitMovedBy(ctx context.Context, api string, m moved) error {
	err := await(ctx, "the move is not done", time.Minute, func() error {
		data, err := c.ask(ctx, http.MethodGet, api+"/_shard/moves/"+m.ID.String(), "")
		var job struct{ Step, Outcome string }
		if err == nil {
			err = json.Unmarshal(data, &job)
		}
		if err == nil && job.Step != "done" {
			err = fmt.Errorf("it is at %s", job.Step)
		}
		if err == nil && job.Outcome != "done" {
			return fmt.Errorf("its outcome is %s", job.Outcome)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.awaitReplicated(ctx)
}

func (c *copyCluster) awaitReplicated(ctx context.Context) error {
	return c.awaitMetric(ctx, "domicile_unreplicated_units 0\n", time.Minute)
}

// whereIs gives the node of a tenant, and those of its copies.
func (c *copyCluster) whereIs(ctx context.Context, tenant int) (node int, copies []int, err error) {
	_, api, err := c.leader(ctx)
	if err != nil {
		return 0, nil, err
	}
	data, err := c.ask(ctx, http.MethodGet, api+"/_shard/tenants/"+tenantName(tenant), "")
	if err != nil {
		return 0, nil, err
	}
	var t struct{ Node, Replica string }
	if err := json.Unmarshal(data, &t); err != nil {
		return 0, nil, err
	}
	node = -1
	for i := range c.nodes {
		switch nodeID(i) {
		case t.Node:
			node = i
		case t.Replica:
			copies = append(copies, i)
		}
	}
	if node < 0 {
		return 0, nil, fmt.Errorf("tenant %s is on node %q", tenantName(tenant), t.Node)
	}
	return node, copies, nil
}

// other gives a node that holds nothing of a tenant, or, as a switch-over, its copy.
func (c *copyCluster) other(ctx context.Context, tenant int, switchOver bool) (int, error) {
	node, copies, err := c.whereIs(ctx, tenant)
	if err != nil {
		return 0, err
	}
	for i := range c.nodes {
		if i != node && slices.Contains(copies, i) == switchOver {
			return i, nil
		}
	}
	return 0, fmt.Errorf("tenant %s is on %s, its copies on %v: there is no node to move it to", tenantName(tenant), nodeID(node), copies)
}

// fill makes a tenant about that many bytes long.
func (c *copyCluster) fill(ctx context.Context, tenant int, bytes int64) error {
	url := c.proxyURL + "/t/" + tenantName(tenant) + "/query"
	if _, err := c.ask(ctx, http.MethodPost, url, `{"sql":"create table fill (id integer primary key, body blob)"}`); err != nil {
		return err
	}
	const row, step = 64 << 10, 4 << 20 // a commit that copies get as an entry
	for left := bytes; left > 0; left -= step {
		n := max(1, min(left, step)/row)
		sql := fmt.Sprintf("insert into fill (body) select randomblob(%d) from (with recursive c(i) as (select 1 union all select i+1 from c where i < %d) select i from c)", row, n)
		if _, err := c.ask(ctx, http.MethodPost, url, fmt.Sprintf(`{"sql":%q}`, sql)); err != nil {
			return err
		}
	}
	return c.awaitReplicated(ctx)
}

// image is how far the image is that a node takes in of a tenant; ok: one is under way.
func (c *copyCluster) image(ctx context.Context, node, tenant int) (bytes, total int64, ok bool, err error) {
	data, err := c.ask(ctx, http.MethodGet, c.direct[node]+"/_admin/units?unit="+tenantName(tenant), "", "Authorization", "Bearer "+nodeToken)
	if err != nil {
		return 0, 0, false, err
	}
	var held []struct {
		Unit  string
		Image *struct {
			Bytes int64
			Total int64 `json:"bytes_total"`
		}
	}
	if err := json.Unmarshal(data, &held); err != nil {
		return 0, 0, false, err
	}
	for _, h := range held {
		if h.Unit == tenantName(tenant) && h.Image != nil {
			return h.Image.Bytes, h.Image.Total, true, nil
		}
	}
	return 0, 0, false, nil
}

// awaitMetric waits until the first control server shows a line of metrics.
func (c *copyCluster) awaitMetric(ctx context.Context, line string, limit time.Duration) error {
	return await(ctx, "no "+line, limit, func() error { return c.shows(ctx, line) })
}
