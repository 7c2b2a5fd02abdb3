package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"domicile/proto"
)

// Config says whom to ask. Servers is needed.
type Config struct {
	// Servers are base URLs of control servers or proxies. The one that
	// answered last is asked first.
	Servers []string
	Token   string // bearer token, or ""
	// RetryFor bounds how long one call asks again. Default 15 s; negative:
	// each server is asked once.
	RetryFor time.Duration
	// Transport for the requests; default http.DefaultTransport's settings
	// without proxies from the environment.
	Transport http.RoundTripper
}

// defaultRetryFor is longer than an election and shorter than a person waits.
const defaultRetryFor = 15 * time.Second

// maxAnswer bounds an answer that is read into memory.
const maxAnswer = 256 << 20

// Client asks the admin API.
type Client struct {
	servers    []*url.URL
	token      string
	retryFor   time.Duration
	http       *http.Client
	consistent bool
	region     *string        // see InRegion
	preferred  *atomic.Uint32 // index in servers of the one that answered last
}

// New makes a Client. It asks nothing yet.
func New(config Config) (*Client, error) {
	if len(config.Servers) == 0 {
		return nil, errors.New("client: no server given")
	}
	c := &Client{token: config.Token, retryFor: config.RetryFor, preferred: new(atomic.Uint32)}
	if c.retryFor == 0 {
		c.retryFor = defaultRetryFor
	}
	for _, s := range config.Servers {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("client: server %q is not http(s)://host:port", s)
		}
		c.servers = append(c.servers, &url.URL{Scheme: u.Scheme, Host: u.Host})
	}
	transport := config.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.Proxy = nil // a token is not for whoever the environment names
		transport = own
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c, nil
}

// Consistent returns a client whose reads see every change that was
// acknowledged before they began, whichever server answers.
func (c *Client) Consistent() *Client {
	d := *c
	d.consistent = true
	return &d
}

// InRegion returns a client for which names of nodes and numbers of moves are those of a
// region that keeps its own directory, whichever server is asked (G4).
func (c *Client) InRegion(region string) *Client {
	d := *c
	d.region = &region
	return &d
}

// inRegion adds the region to the query of a call that is about one directory's names.
func (c *Client) inRegion(q request) url.Values {
	if c.region == nil || !strings.HasPrefix(q.path, "/_shard/nodes") && !strings.HasPrefix(q.path, "/_shard/moves") && !strings.HasPrefix(q.path, "/_shard/tasks") {
		return q.query
	}
	query := url.Values{"region": {*c.region}}
	for name, values := range q.query {
		query[name] = values
	}
	return query
}

// Error is a negative answer.
type Error struct {
	Status    int
	Code      proto.Code     // "" where the answer was not the admin API's
	Text      string         // what happened and what to do
	Fields    map[string]any // the other fields of the answer
	RequestID string
	// RetryAfter is the time the server asked to be left alone for, or 0.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	status := strconv.Itoa(e.Status)
	if e.Code != "" {
		status += " " + string(e.Code)
	}
	return fmt.Sprintf("%s (%s, request %s)", e.Text, status, e.RequestID)
}

// request is one logical call.
type request struct {
	method string
	path   string // escaped
	query  url.Values
	body   any    // encoded as JSON, or nil
	key    string // Idempotency-Key of a change that may be asked again
	once   bool   // a change without a key: not sent again once it may have arrived
}

// answer is a positive answer.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	revision uint64
}

func (c *Client) read(ctx context.Context, path string, query url.Values, into any) (answer, error) {
	if c.consistent {
		if query == nil {
			query = url.Values{}
		}
		query.Set("consistent", "")
	}
	return c.do(ctx, request{method: http.MethodGet, path: path, query: query}, into)
}

func (c *Client) change(ctx context.Context, method, path string, body, into any) (answer, error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return c.do(ctx, request{method: method, path: path, body: body, key: hex.EncodeToString(b[:])}, into)
}

// do asks until there is a final answer, and decodes it.
func (c *Client) do(ctx context.Context, q request, into any) (answer, error) {
	var text []byte
	if q.body != nil {
		var err error
		if text, err = json.Marshal(q.body); err != nil {
			return answer{}, fmt.Errorf("client: encode the request: %w", err)
		}
	}
	q.query = c.inRegion(q)
	until := time.Now().Add(max(c.retryFor, 0))
	at := c.preferred.Load()
	for tries := 1; ; tries++ {
		a, err := c.ask(ctx, c.servers[at%uint32(len(c.servers))], q, text)
		if err == nil {
			c.preferred.Store(at % uint32(len(c.servers)))
			return a, decode(a, into)
		}
		wait, again := retry(q, err, tries, len(c.servers))
		if !again || wait > 0 && time.Now().Add(wait).After(until) {
			return answer{}, err
		}
		at++ // it gave no answer, or is cut off from its group: try another
		if err := pause(ctx, wait); err != nil {
			return answer{}, err
		}
	}
}

// retry says whether a call that failed may be sent again, and when.
func retry(q request, err error, tries, servers int) (time.Duration, bool) {
	var said *Error
	if errors.As(err, &said) {
		again := said.Status == http.StatusServiceUnavailable && said.RetryAfter > 0
		return said.RetryAfter, again && !(q.once && said.Code == proto.CodeOutcomeUnknown)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return 0, false
	}
	if q.once && !notSent(err) {
		return 0, false
	}
	if tries < servers {
		return 0, true // not each server was tried yet
	}
	return time.Duration(min(tries, 10)) * 100 * time.Millisecond, true
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a request once.
func (c *Client) ask(ctx context.Context, server *url.URL, q request, text []byte) (answer, error) {
	target := server.String() + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, bytes.NewReader(text))
	if err != nil {
		return answer{}, fmt.Errorf("client: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if q.key != "" {
		req.Header.Set(proto.HeaderIdempotencyKey, q.key)
	}
	if text != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("ask %s: %w", server.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("ask %s: %w", server.Host, err)
	}
	if len(body) > maxAnswer {
		return answer{}, &Error{Status: resp.StatusCode, Text: "the answer is too large to be read into memory"}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return answer{}, negative(resp, body)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: body}
	a.revision, _ = strconv.ParseUint(resp.Header.Get(proto.HeaderRevision), 10, 64)
	return a, nil
}

func negative(resp *http.Response, body []byte) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get(proto.HeaderRequestID),
		Text: "the server answered " + resp.Status}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	fields := make(map[string]any)
	if json.Unmarshal(body, &fields) != nil {
		return e
	}
	if text, ok := fields["error"].(string); ok {
		e.Text = text
	}
	if code, ok := fields["code"].(string); ok {
		e.Code = proto.Code(code)
	}
	delete(fields, "error")
	delete(fields, "code")
	e.Fields = fields
	return e
}

func decode(a answer, into any) error {
	if into == nil || len(a.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("client: the answer is not what this client knows (is it an admin API of this version?): %w", err)
	}
	return nil
}
