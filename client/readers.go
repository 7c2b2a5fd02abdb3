package client

import (
	"context"
	"net/http"

	"domicile/fsm"
	"domicile/proto"
)

// PutReadReplica asks for a read replica of a tenant in another region. It is placed by
// itself, also later where no node of the region may have it now.
func (c *Client) PutReadReplica(ctx context.Context, name fsm.TenantName, region fsm.RegionName) (proto.ReadReplicaPut, error) {
	var out proto.ReadReplicaPut
	_, err := c.change(ctx, http.MethodPut, path("tenants", string(name), "read-replicas", string(region)), nil, &out)
	return out, err
}

// DeleteReadReplica asks for a read replica no longer. Its data leaves the region after
// the group's grace for copies that were given up.
func (c *Client) DeleteReadReplica(ctx context.Context, name fsm.TenantName, region fsm.RegionName) error {
	_, err := c.change(ctx, http.MethodDelete, path("tenants", string(name), "read-replicas", string(region)), nil, nil)
	return err
}
