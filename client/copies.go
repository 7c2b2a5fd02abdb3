package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"domicile/fsm"
	"domicile/proto"
)

// WriteOffNode forgets a node that will not come back: its copies are forgotten,
// and no job waits for it. It is refused while the node is a tenant's primary.
func (c *Client) WriteOffNode(ctx context.Context, name fsm.NodeName) error {
	_, err := c.change(ctx, http.MethodDelete, path("nodes", string(name)), proto.DeleteNode{Force: true}, nil)
	return err
}

// FailOver gives a node's tenants to their copies: one that answers releases
// them first, a silent one is waited for until its lease has run out. Force is
// for nodes that take no lease, which the caller has made sure to write nothing,
// and for copies that may lack acknowledged writes. Where some tenants could not
// be failed over the answer comes with an *Error of status 502.
func (c *Client) FailOver(ctx context.Context, name fsm.NodeName, force bool) (proto.FailedOver, error) {
	var out proto.FailedOver
	_, err := c.change(ctx, http.MethodPost, path("nodes", string(name), "failover"), proto.FailOver{Force: force}, &out)
	return out, partly(err, &out, func() bool { return out.Node != "" })
}

// RepairReplicas places copies that are missing or badly placed, now, and waits
// for them a while. Where some are not in sync then, the answer comes with an
// *Error of status 502.
func (c *Client) RepairReplicas(ctx context.Context) (proto.Replicated, error) {
	var out proto.Replicated
	_, err := c.change(ctx, http.MethodPost, path("replicas"), nil, &out)
	return out, partly(err, &out, func() bool { return len(out.Failed) > 0 })
}

// partly reads the answer of a change that was done in part, whose status is
// 502 and whose body is that of the answer.
func partly(err error, into any, is func() bool) error {
	var said *Error
	if !errors.As(err, &said) || said.Status != http.StatusBadGateway || said.Code != "" {
		return err
	}
	text, _ := json.Marshal(said.Fields)
	if json.Unmarshal(text, into) == nil && is() {
		said.Text = "some tenants failed"
	}
	return err
}

// Explain tells of each node whether it may hold a tenant, as RolePrimary or
// RoleReplica, its rank, and why.
func (c *Client) Explain(ctx context.Context, name fsm.TenantName, role fsm.Role) ([]proto.Verdict, error) {
	what := "primary"
	if role == fsm.RoleReplica {
		what = "replica"
	}
	var out []proto.Verdict
	_, err := c.read(ctx, path("tenants", string(name), "explain"), url.Values{"for": {what}}, &out)
	return out, err
}

// Settings gives the group's settings.
func (c *Client) Settings(ctx context.Context) (proto.Settings, error) {
	var out proto.Settings
	_, err := c.read(ctx, path("settings"), nil, &out)
	return out, err
}

// PutSettings changes the settings that are named.
func (c *Client) PutSettings(ctx context.Context, put proto.PutSettings) (proto.Settings, error) {
	var out proto.Settings
	_, err := c.change(ctx, http.MethodPut, path("settings"), put, &out)
	return out, err
}
