package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"domicile/internal/wait"
)

type tenantLine struct {
	Name, Node, State, Region string
}

type unitLine struct {
	Unit, State, Role string
}

// Verify is what must hold of every deployment once its faults are healed: all
// processes are up; all control servers and proxies give the same directory; each
// active tenant is on its node and on no other; no node holds what the
// directory does not place there; the tenants named in acknowledged are there;
// no process wrote a token into its log.
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
	wait.For(c.t, "the nodes hold what the directory says, and nothing else", func() error { return c.nodesAgree(tenants) })
	for _, p := range slices.Concat(c.Controls, c.Nodes, c.Proxies) {
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
			return nil, fmt.Errorf("%s and %s list other tenants", p.Name, c.Controls[0].Name)
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

func (c *Cluster) nodesAgree(tenants []tenantLine) error {
	for i, n := range c.Nodes {
		a := do(context.Background(), quick, http.MethodGet, n.URL+"/_admin/units", "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s answers %s", n.Name, a)
		}
		var units []unitLine
		if err := json.Unmarshal(a.Body, &units); err != nil {
			return err
		}
		held := map[string]bool{}
		for _, u := range units {
			held[u.Unit] = true
		}
		for _, x := range tenants {
			if x.Node == fmt.Sprintf("n%d", i+1) {
				if !held[x.Name] {
					return fmt.Errorf("%s does not hold %s, which the directory places there", n.Name, x.Name)
				}
				delete(held, x.Name)
			}
		}
		for left := range held {
			return fmt.Errorf("%s holds %s, which the directory does not place there", n.Name, left)
		}
	}
	return nil
}
