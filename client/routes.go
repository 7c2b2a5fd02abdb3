package client

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"domicile/fsm"
	"domicile/proto"
)

// notSent reports whether a request certainly never left this machine.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/_shard")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// PutNode records a node or changes one; it reports whether it is new.
func (c *Client) PutNode(ctx context.Context, name fsm.NodeName, put proto.PutNode) (proto.NodeRecorded, bool, error) {
	var out proto.NodeRecorded
	a, err := c.change(ctx, http.MethodPut, path("nodes", string(name)), put, &out)
	return out, a.status == http.StatusCreated, err
}

// Nodes lists the nodes by name.
func (c *Client) Nodes(ctx context.Context) ([]proto.Node, error) {
	var out []proto.Node
	_, err := c.read(ctx, path("nodes"), nil, &out)
	return out, err
}

// Node gives one node.
func (c *Client) Node(ctx context.Context, name fsm.NodeName) (proto.Node, error) {
	var out proto.Node
	_, err := c.read(ctx, path("nodes", string(name)), nil, &out)
	return out, err
}

// DeleteNode forgets a node that holds nothing.
func (c *Client) DeleteNode(ctx context.Context, name fsm.NodeName) error {
	_, err := c.change(ctx, http.MethodDelete, path("nodes", string(name)), nil, nil)
	return err
}

// CreateTenant creates a tenant; when it returns without an error the tenant
// can be written.
func (c *Client) CreateTenant(ctx context.Context, name fsm.TenantName, put proto.PutTenant) (proto.TenantCreated, error) {
	var out proto.TenantCreated
	_, err := c.change(ctx, http.MethodPut, path("tenants", string(name)), put, &out)
	return out, err
}

// Tenant gives one tenant.
func (c *Client) Tenant(ctx context.Context, name fsm.TenantName) (proto.Tenant, error) {
	var out proto.Tenant
	_, err := c.read(ctx, path("tenants", string(name)), nil, &out)
	return out, err
}

// DeleteTenant removes a tenant everywhere.
func (c *Client) DeleteTenant(ctx context.Context, name fsm.TenantName) error {
	_, err := c.change(ctx, http.MethodDelete, path("tenants", string(name)), nil, nil)
	return err
}

// ListTenants says which tenants to list. The zero value lists all.
type ListTenants struct {
	Region *fsm.RegionName // of this region only; "" is the unnamed one
	Prefix string          // whose names begin with this
	After  fsm.TenantName  // whose names come after this
	Limit  int             // at most so many in a page; 0: the server's default
	Bytes  bool            // with their sizes, asked of their nodes
}

func (l ListTenants) query() url.Values {
	q := url.Values{}
	if l.Region != nil {
		q.Set("region", string(*l.Region))
	}
	if l.Prefix != "" {
		q.Set("prefix", l.Prefix)
	}
	if l.After != "" {
		q.Set("after", string(l.After))
	}
	if l.Limit != 0 {
		q.Set("limit", strconv.Itoa(l.Limit))
	}
	if l.Bytes {
		q.Set("bytes", "1")
	}
	return q
}

// TenantsPage gives one page of tenants by name, and whether there are more:
// ask again with After set to the last one's name.
func (c *Client) TenantsPage(ctx context.Context, list ListTenants) ([]proto.Tenant, bool, error) {
	page, next, err := c.tenantsPage(ctx, list)
	return page, next != "", err
}

// tenantsPage gives a page, and after which name the next one begins, "" for none.
func (c *Client) tenantsPage(ctx context.Context, list ListTenants) ([]proto.Tenant, fsm.TenantName, error) {
	var out []proto.Tenant
	a, err := c.read(ctx, path("tenants"), list.query(), &out)
	if err != nil {
		return out, "", err
	}
	link, is := strings.CutSuffix(a.header.Get("Link"), `>; rel="next"`)
	next, err := url.Parse(strings.TrimPrefix(link, "<"))
	if !is || err != nil {
		return out, "", nil
	}
	return out, fsm.TenantName(next.Query().Get("after")), nil
}

// Tenants yields all tenants by name, page by page. After an error it ends.
func (c *Client) Tenants(ctx context.Context, list ListTenants) iter.Seq2[proto.Tenant, error] {
	return func(yield func(proto.Tenant, error) bool) {
		for {
			page, next, err := c.tenantsPage(ctx, list)
			if err != nil {
				yield(proto.Tenant{}, err)
				return
			}
			for _, t := range page {
				if !yield(t, nil) {
					return
				}
			}
			if next == "" || next == list.After {
				return
			}
			list.After = next
		}
	}
}

// Pin keeps a tenant's primary where it is (T7).
func (c *Client) Pin(ctx context.Context, name fsm.TenantName) error {
	_, err := c.change(ctx, http.MethodPut, path("tenants", string(name), "pin"), nil, nil)
	return err
}

// Unpin lets it go.
func (c *Client) Unpin(ctx context.Context, name fsm.TenantName) error {
	_, err := c.change(ctx, http.MethodDelete, path("tenants", string(name), "pin"), nil, nil)
	return err
}

// PutRegion records a region that keeps its own directory; it reports whether
// it is new.
func (c *Client) PutRegion(ctx context.Context, name fsm.RegionName, put proto.PutRegion) (proto.Region, bool, error) {
	var out proto.Region
	a, err := c.change(ctx, http.MethodPut, path("regions", string(name)), put, &out)
	return out, a.status == http.StatusCreated, err
}

// Regions lists the regions that keep their own directory.
func (c *Client) Regions(ctx context.Context) ([]proto.Region, error) {
	var out []proto.Region
	_, err := c.read(ctx, path("regions"), nil, &out)
	return out, err
}

// Region gives one of them.
func (c *Client) Region(ctx context.Context, name fsm.RegionName) (proto.Region, error) {
	var out proto.Region
	_, err := c.read(ctx, path("regions", string(name)), nil, &out)
	return out, err
}

// DeleteRegion forgets a region that is no tenant's home.
func (c *Client) DeleteRegion(ctx context.Context, name fsm.RegionName) error {
	_, err := c.change(ctx, http.MethodDelete, path("regions", string(name)), nil, nil)
	return err
}

// Tasks lists what the global group has a region's do, of one tenant alone where that is
// named: those of the region whose server is asked, or of InRegion's.
func (c *Client) Tasks(ctx context.Context, tenant fsm.TenantName) ([]proto.Task, error) {
	query := url.Values{}
	if tenant != "" {
		query.Set("tenant", string(tenant))
	}
	var out []proto.Task
	_, err := c.read(ctx, path("tasks"), query, &out)
	return out, err
}

// Orphans lists the tenants about which a region's directory and the global one do not
// agree.
func (c *Client) Orphans(ctx context.Context) ([]proto.OrphanedTenant, error) {
	var out []proto.OrphanedTenant
	_, err := c.read(ctx, path("tasks", "orphans"), nil, &out)
	return out, err
}

// DropOrphan has what a region has of a tenant that has departed go, for good: it may be all
// that there is.
func (c *Client) DropOrphan(ctx context.Context, tenant fsm.TenantName) error {
	_, err := c.change(ctx, http.MethodDelete, path("tasks", "orphans", string(tenant)), nil, nil)
	return err
}

// HandRegion begins to give a region to its own group (proto.HandOverAdopt), or back to the
// global one (proto.HandOverReturn). It goes on after the answer.
func (c *Client) HandRegion(ctx context.Context, name fsm.RegionName, how string) (proto.RegionHandOver, error) {
	var out proto.RegionHandOver
	_, err := c.change(ctx, http.MethodPost, path("regions", string(name), how), nil, &out)
	return out, err
}

// RegionHandOver tells how the last one of a region stands.
func (c *Client) RegionHandOver(ctx context.Context, name fsm.RegionName, how string) (proto.RegionHandOver, error) {
	var out proto.RegionHandOver
	_, err := c.read(ctx, path("regions", string(name), how), nil, &out)
	return out, err
}

// CancelHandOver ends one that has not given the region yet.
func (c *Client) CancelHandOver(ctx context.Context, name fsm.RegionName, how string) (proto.RegionHandOver, error) {
	var out proto.RegionHandOver
	_, err := c.change(ctx, http.MethodDelete, path("regions", string(name), how), nil, &out)
	return out, err
}

// Group tells of the group as the server asked sees it.
func (c *Client) Group(ctx context.Context) (proto.Group, error) {
	var out proto.Group
	_, err := c.read(ctx, path("group"), nil, &out)
	return out, err
}

// AddServer adds a server to the group, or changes its vote or addresses.
func (c *Client) AddServer(ctx context.Context, add proto.AddServer) (proto.ServerAdded, error) {
	var out proto.ServerAdded
	_, err := c.change(ctx, http.MethodPost, path("group", "servers"), add, &out)
	return out, err
}

// RemoveServer takes a server out of the group.
func (c *Client) RemoveServer(ctx context.Context, id fsm.MemberID) error {
	_, err := c.change(ctx, http.MethodDelete, path("group", "servers", string(id)), nil, nil)
	return err
}

// TransferLeadership hands leadership to a server, or to one that the leader
// chooses for "". It is not asked again once it may have been done.
func (c *Client) TransferLeadership(ctx context.Context, to fsm.MemberID) (proto.Led, error) {
	var out proto.Led
	_, err := c.do(ctx, request{method: http.MethodPost, path: path("group", "transfer"),
		body: proto.Transfer{ID: to}, once: true}, &out)
	return out, err
}

// PutMember has the leader record a server of its group; servers do so for
// themselves. It gives the revision from which on the directory holds it.
func (c *Client) PutMember(ctx context.Context, put proto.PutMember) (fsm.Revision, error) {
	a, err := c.change(ctx, http.MethodPost, path("group", "members"), put, nil)
	return fsm.Revision(a.revision), err
}
