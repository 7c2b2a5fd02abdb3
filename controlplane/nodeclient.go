package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Times of calls to nodes. loops.ConfirmAfter is longer than callTimeout.
const (
	dialTimeout    = 1 * time.Second
	probeTimeout   = 2 * time.Second        // of a node before it is recorded (N5)
	statsTimeout   = 500 * time.Millisecond // of all nodes before a create
	callTimeout    = 10 * time.Second       // of one step: a node waits up to 5 s for a tenant in use
	schemaTimeout  = 60 * time.Second
	promoteTimeout = 5 * time.Second
	// freezeFor is how long units may be frozen for a handover; what is not
	// released by then thaws by itself.
	freezeFor   = 5 * time.Second
	lookTimeout = 60 * time.Second // a node may list very many units
	// compareTimeout bounds positions asked for before a failover.
	compareTimeout = time.Duration(loops.PositionsWithin) * time.Millisecond
)

// maxNodeAnswer bounds what is read of a node's answer.
const maxNodeAnswer = 64 << 10

// maxBatch bounds the answer about the units of one call, maxSizes one that lists
// every unit of a node with its size, and maxUnits one that tells all of each.
const (
	maxBatch = 4 << 20
	maxSizes = 64 << 20
	maxUnits = 512 << 20
)

// answerLimit is how much is read of the answer of a route.
func answerLimit(path string) int64 {
	switch path {
	case "/_admin/sizes":
		return maxSizes
	case pathUnits:
		return maxUnits
	case pathFollow, pathPromote, pathHandover, pathThaw:
		return maxBatch
	}
	return maxNodeAnswer
}

// nodeClient speaks the node's admin protocol (spec §2.5). It follows no
// redirect and asks no proxy of the environment: a node's token is for the
// node alone.
type nodeClient struct{ http *http.Client }

func newNodeClient(transport *http.Transport) *nodeClient {
	return &nodeClient{http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// nodeReply is what a node answered.
type nodeReply struct {
	status int
	header http.Header
	body   []byte
}

// notSentError marks an error of a call of which nothing reached the node.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// call makes one call. header holds what the call adds.
func (c *nodeClient) call(ctx context.Context, method string, n nodeAt, path string, header http.Header, body any) (nodeReply, error) {
	var text io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nodeReply{}, &notSentError{err}
		}
		text = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, nodeURL(n.addr)+path, text)
	if err != nil {
		return nodeReply{}, &notSentError{err}
	}
	// GetBody lets the transport send a request again on its own. It never
	// may: whether a call is repeated is the planner's to say.
	req.GetBody = nil
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	if id := httpserve.RequestID(ctx); id != "" {
		req.Header.Set(proto.HeaderRequestID, id)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nodeReply{}, &notSentError{err}
		}
		return nodeReply{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit(path)))
	if err != nil {
		return nodeReply{}, err
	}
	return nodeReply{status: resp.StatusCode, header: resp.Header, body: answer}, nil
}

// nodeAt says where a node is and what it is asked with.
type nodeAt struct {
	name  fsm.NodeName
	addr  string
	token string
}

func at(n *fsm.Node) nodeAt { return nodeAt{name: n.Name, addr: n.Addr, token: n.Token} }

// stats asks a node how much it holds. Its errors are *httpserve.Error: 502.
func (c *nodeClient) stats(ctx context.Context, n nodeAt) (proto.NodeStats, error) {
	reply, err := c.call(ctx, http.MethodGet, n, "/_admin/stats", nil, nil)
	if err != nil {
		return proto.NodeStats{}, nodeError(proto.Status(fsm.CodeNodeUnreachable), fsm.CodeNodeUnreachable, n.name,
			"node %s does not answer at %s; is it running, and may this server reach it?", n.name, n.addr)
	}
	var stats struct {
		Tenants *uint64 `json:"tenants"`
		proto.NodeStats
	}
	switch {
	case reply.status == http.StatusUnauthorized || reply.status == http.StatusForbidden:
		return proto.NodeStats{}, nodeError(http.StatusBadGateway, fsm.CodeNodeRefused, n.name,
			"node %s at %s refuses the token; give its --admin-token", n.name, n.addr)
	case reply.status == http.StatusNotFound:
		return proto.NodeStats{}, nodeError(http.StatusBadGateway, fsm.CodeNodeRefused, n.name,
			"%s at %s does not speak the admin protocol; is it a node that was started with --admin-token?", n.name, n.addr)
	case reply.status != http.StatusOK || json.Unmarshal(reply.body, &stats) != nil || stats.Tenants == nil:
		return proto.NodeStats{}, nodeError(http.StatusBadGateway, fsm.CodeNodeRefused, n.name,
			"%s at %s answers with status %d and not as a node does", n.name, n.addr, reply.status)
	}
	stats.NodeStats.Tenants = *stats.Tenants
	return stats.NodeStats, nil
}

// sizes gives the bytes of each unit that a node holds.
func (c *nodeClient) sizes(ctx context.Context, n nodeAt) (map[fsm.UnitName]uint64, error) {
	reply, err := c.call(ctx, http.MethodGet, n, "/_admin/sizes", nil, nil)
	if err != nil {
		return nil, err
	}
	sizes := make(map[fsm.UnitName]uint64)
	if reply.status != http.StatusOK {
		return nil, fmt.Errorf("node %s answers with status %d", n.name, reply.status)
	}
	if err := json.Unmarshal(reply.body, &sizes); err != nil {
		return nil, fmt.Errorf("node %s: sizes: %w", n.name, err)
	}
	return sizes, nil
}

func nodeError(status int, code fsm.Code, n fsm.NodeName, format string, args ...any) error {
	e := httpserve.Errorf(status, code, format, args...)
	e.Fields = map[string]any{"node": n}
	return e
}

func unitPath(u fsm.UnitName) string { return "/_admin/tenants/" + url.PathEscape(string(u)) }
