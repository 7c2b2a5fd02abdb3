package testcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"domicile/internal/wait"
)

type tenantLine struct {
	Name, Node, State, Region, Replica string

	Readers []struct{ Node string } `json:"read_replicas"`
}

// copies names the nodes that follow a tenant's.
func (x *tenantLine) copies() (nodes []string) {
	if x.Replica != "" {
		nodes = append(nodes, x.Replica)
	}
	for _, r := range x.Readers {
		if r.Node != "" {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

type unitLine struct {
	Unit, State, Role, Position, Error string
}

// Verify is what must hold of every deployment once its faults are healed and
// nothing writes any more: all processes are up; all control servers and proxies
// give the same directory; each active tenant is on its node, and on that of its
// copy, and on no other; the copy has the primary's position and content; the
// tenants named in acknowledged are there; no process wrote a token into its log.
func (c *Cluster) Verify(acknowledged ...string) {
	c.t.Helper()
	var tenants []tenantLine
	wait.For(c.t, "the directories are equal and quiet", func() (err error) {
		tenants, err = c.sameDirectory()
		return err
	})
	names := map[string]string{}
	for _, x := range tenants {
		if names[x.Name] != "" {
			c.t.Errorf("tenant %s is in the directory twice", x.Name)
		}
		names[x.Name] = x.Node
	}
	for _, a := range acknowledged {
		if names[a] == "" {
			c.t.Errorf("tenant %s was acknowledged and is gone", a)
		}
	}
	// Copies may still be placed better: the directory is read anew each time.
	wait.For(c.t, "the nodes hold what the directory says, and nothing else", func() error { return c.withDirectory(c.nodesAgree) })
	wait.For(c.t, "copies equal their primaries", func() error { return c.withDirectory(c.copiesEqual) })
	for _, p := range c.All() {
		if _, ended := p.Ended(); ended {
			c.t.Errorf("%s is not running", p.Name)
		}
		for _, secret := range []string{Token, NodeToken} {
			if strings.Contains(p.Log(), secret) {
				c.t.Errorf("%s wrote a token into its log", p.Name)
			}
		}
	}
}

func (c *Cluster) withDirectory(check func([]tenantLine) error) error {
	tenants, err := c.sameDirectory()
	if err != nil {
		return err
	}
	return check(tenants)
}

func (c *Cluster) sameDirectory() ([]tenantLine, error) {
	var first []byte
	for _, p := range slices.Concat(c.Controls, c.Proxies) {
		a := do(context.Background(), quick, http.MethodGet, p.URL+"/_shard/tenants?limit=1000&consistent", "")
		if a.Status != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s", p.Name, a)
		}
		if first == nil {
			first = a.Body
		}
		if !bytes.Equal(first, a.Body) {
			return nil, fmt.Errorf("%s and %s list other tenants: %s; %s", p.Name, c.Controls[0].Name, a.Body, first)
		}
	}
	var tenants []tenantLine
	if err := json.Unmarshal(first, &tenants); err != nil {
		return nil, err
	}
	for _, x := range tenants {
		if x.State != "active" {
			return nil, fmt.Errorf("tenant %s is still %s", x.Name, x.State)
		}
	}
	return tenants, nil
}

// units gives what a node holds, by name.
func units(n *Process) (map[string]unitLine, error) {
	a := do(context.Background(), quick, http.MethodGet, n.URL+"/_admin/units", "")
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", n.Name, a)
	}
	var lines []unitLine
	if err := json.Unmarshal(a.Body, &lines); err != nil {
		return nil, err
	}
	held := make(map[string]unitLine, len(lines))
	for _, u := range lines {
		held[u.Unit] = u
	}
	return held, nil
}

// place is what a tenant's node must say of it, or its copy's.
func place(x tenantLine, node string) (role string, here bool) {
	switch {
	case node == x.Node:
		return "primary", true
	case slices.Contains(x.copies(), node):
		return "replica", true
	}
	return "", false
}

func (c *Cluster) nodesAgree(tenants []tenantLine) error {
	for _, n := range c.Nodes {
		held, err := units(n)
		if err != nil {
			return err
		}
		for _, x := range tenants {
			role, here := place(x, n.ID)
			if !here {
				continue
			}
			u, there := held[x.Name]
			if !there {
				return fmt.Errorf("%s does not hold %s, which the directory places there", n.Name, x.Name)
			}
			if u.Role != role || u.Error != "" {
				return fmt.Errorf("%s has %s as %s, %s %s, not as %s", n.Name, x.Name, u.Role, u.State, u.Error, role)
			}
			delete(held, x.Name)
		}
		for left := range held {
			return fmt.Errorf("%s holds %s, which the directory does not place there", n.Name, left)
		}
	}
	return nil
}

// copiesEqual compares positions and content of each tenant's places.
func (c *Cluster) copiesEqual(tenants []tenantLine) error {
	at := map[string]map[string]unitLine{}
	for _, n := range c.Nodes {
		held, err := units(n)
		if err != nil {
			return err
		}
		at[n.ID] = held
	}
	for _, x := range tenants {
		for _, copied := range x.copies() {
			a, b := at[x.Node][x.Name], at[copied][x.Name]
			if a.Position != b.Position {
				return fmt.Errorf("tenant %s is at %s on %s and at %s on %s", x.Name, a.Position, x.Node, b.Position, copied)
			}
			first, err := c.content(c.Node(x.Node), x.Name)
			if err != nil {
				return err
			}
			second, err := c.content(c.Node(copied), x.Name)
			if err != nil {
				return err
			}
			if first != second {
				return fmt.Errorf("tenant %s has other rows on %s than on %s, both at %s", x.Name, x.Node, copied, a.Position)
			}
		}
	}
	return nil
}

// content is a hash of a tenant's schema and rows, as a node has them.
func (c *Cluster) content(n *Process, tenant string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	query := func(sql string) ([]byte, error) {
		body, _ := json.Marshal(map[string]string{"sql": sql})
		a := do(context.Background(), quick, http.MethodPost, n.URL+"/t/"+tenant+"/query", string(body), "Domicile-Mode", "read")
		if a.Status != http.StatusOK {
			return nil, fmt.Errorf("%s, %s: %s answers %s", tenant, sql, n.Name, a)
		}
		var got struct{ Rows json.RawMessage }
		err := json.Unmarshal(a.Body, &got)
		h.Write(got.Rows)
		return got.Rows, err
	}
	if _, err = query("select name, sql from sqlite_schema order by name"); err != nil {
		return sum, err
	}
	data, err := query("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' and substr(name, 1, 10) <> '_domicile_' order by name")
	if err != nil {
		return sum, err
	}
	var tables [][]string
	if err := json.Unmarshal(data, &tables); err != nil {
		return sum, err
	}
	for _, t := range tables {
		if _, err := query(`select * from "` + strings.ReplaceAll(t[0], `"`, `""`) + `"`); err != nil {
			return sum, err
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// AwaitCopiesInSync waits until each tenant has so many copies in sync, and is
// active.
func (c *Cluster) AwaitCopiesInSync(copies int, tenants ...string) {
	c.t.Helper()
	for _, x := range tenants {
		wait.For(c.t, fmt.Sprintf("%s has %d copies in sync", x, copies), func() error {
			a := do(context.Background(), quick, http.MethodGet, c.AnyControl().URL+"/_shard/tenants/"+x+"/explain?for=replica", "")
			if a.Status != http.StatusOK {
				return fmt.Errorf("%s", a)
			}
			var verdicts []struct{ Holds string }
			if err := json.Unmarshal(a.Body, &verdicts); err != nil {
				return err
			}
			n := 0
			for _, v := range verdicts {
				if v.Holds == "in_sync" {
					n++
				}
			}
			if n < copies {
				return fmt.Errorf("%d are: %s", n, a.Body)
			}
			return nil
		})
	}
}

// AnyControl gives a control server that runs.
func (c *Cluster) AnyControl() *Process {
	c.t.Helper()
	for _, p := range c.Controls {
		if _, ended := p.Ended(); !ended {
			return p
		}
	}
	c.t.Fatal("no control server runs")
	return nil
}

// listTenants gives the directory as one server has it.
func listTenants(p *Process) (tenants []tenantLine, err error) {
	a := do(context.Background(), quick, http.MethodGet, p.URL+"/_shard/tenants?limit=1000", "")
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", p.Name, a)
	}
	return tenants, json.Unmarshal(a.Body, &tenants)
}
