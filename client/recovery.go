package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"domicile/fsm"
	"domicile/proto"
)

// Recovery tells of the directory's last recovery (requirement O6).
func (c *Client) Recovery(ctx context.Context) (proto.Recovery, error) {
	var out proto.Recovery
	_, err := c.do(ctx, request{method: http.MethodGet, path: path("recovery")}, &out)
	return out, err
}

// WriteOffForRecovery has the recovery go on without a node, a recorded one by its name,
// another by its address, or without a region that keeps its own directory. What it alone
// holds is given up.
func (c *Client) WriteOffForRecovery(ctx context.Context, off proto.RecoveryWriteOff) error {
	_, err := c.change(ctx, http.MethodPost, path("recovery", "write-off"), off, nil)
	return err
}

// Adopt makes a unit that a node holds, and the directory does not know, the tenant
// of its name.
func (c *Client) Adopt(ctx context.Context, a proto.Adopt) (proto.TenantCreated, error) {
	var out proto.TenantCreated
	_, err := c.change(ctx, http.MethodPost, path("recovery", "adopt"), a, &out)
	return out, err
}

// Backup writes the directory to w and checks that it is whole; it tells what was
// written. It holds the tokens of the nodes.
func (c *Client) Backup(ctx context.Context, w io.Writer) (*fsm.State, error) {
	var last error
	for _, server := range c.servers {
		state, wrote, err := c.backupFrom(ctx, server, w)
		if err == nil || wrote {
			return state, err
		}
		last = err
	}
	return nil, last
}

func (c *Client) backupFrom(ctx context.Context, server *url.URL, w io.Writer) (state *fsm.State, wrote bool, err error) {
	resp, err := c.stream(ctx, http.MethodGet, server.String()+path("backup"), nil)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", server.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, false, negative(resp, text)
	}
	state, err = proto.ReadSnapshot(io.TeeReader(resp.Body, w))
	if err != nil {
		return nil, true, fmt.Errorf("the backup from %s is not whole: %w", server.Host, err)
	}
	return state, true, nil
}

func (c *Client) stream(ctx context.Context, method, target string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// Restore makes a backup the directory of the group of the one server that the
// client has, which must have just been begun; history, where it is not 0, is the
// new one's number at least. It is sent once.
func (c *Client) Restore(ctx context.Context, backup []byte, history uint64) (proto.Restored, error) {
	return c.restore(ctx, url.Values{}, backup, history)
}

// RestoreLost gives the group of a region the name of its former group, authority, which is
// gone for good with its directory, and of which there is no backup: as Restore does, with
// nothing in it.
func (c *Client) RestoreLost(ctx context.Context, authority string, history uint64) (proto.Restored, error) {
	return c.restore(ctx, url.Values{"lost": {authority}}, nil, history)
}

func (c *Client) restore(ctx context.Context, query url.Values, backup []byte, history uint64) (proto.Restored, error) {
	var out proto.Restored
	if len(c.servers) != 1 {
		return out, errors.New("a backup is restored at one server, that of a new group: name that one alone")
	}
	if history != 0 {
		query.Set("history", strconv.FormatUint(history, 10))
	}
	target := c.servers[0].String() + path("restore")
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	resp, err := c.stream(ctx, http.MethodPost, target, bytes.NewReader(backup))
	if err != nil {
		return out, fmt.Errorf("ask %s: %w", c.servers[0].Host, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("ask %s: %w", c.servers[0].Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		return out, negative(resp, text)
	}
	return out, decode(answer{body: text}, &out)
}
