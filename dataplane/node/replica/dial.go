package replica

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// connectPatience bounds connecting and the upgrade together.
const connectPatience = 5 * time.Second

// connectPause bounds the pause between two tries: a source that has just
// started takes no write before it has heard its copies (3.7.4).
const connectPause = 500 * time.Millisecond

// connect dials a source and upgrades the connection.
func (r *Replicator) connect(ctx context.Context, from, as, token string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn, err := r.cfg.Dial(ctx, from)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	br, err := upgrade(conn, from, as, token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &buffered{conn, br}, nil
}

// buffered is a connection of which some bytes were read already.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

func upgrade(conn net.Conn, from, as, token string) (*bufio.Reader, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: "GET", URL: &url.URL{Path: Path}, Host: u.Host, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {Protocol}, HeaderAs: {as}}}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(conn, 64<<10)
	res, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, fmt.Errorf("upgrade to %s: %w", Protocol, err)
	}
	if res.StatusCode == http.StatusSwitchingProtocols && res.Header.Get("Upgrade") == Protocol {
		return br, nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		return nil, &refusedError{fmt.Sprintf("the source refuses the token that it is shown (%s); compare the replication tokens of the group and of the two nodes", res.Status)}
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	return nil, &refusedError{fmt.Sprintf("the source answered %s to the upgrade to %s: %q", res.Status, Protocol, text)}
}

// refusedError says that a source answered, and is not to be followed: what does not
// pass by itself, as a wrong token does not.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// dial is Config.Dial where none was given.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("bad address %q: want http://host:port", addr)
	}
	host := u.Host
	var d net.Dialer
	switch u.Scheme {
	case "http":
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), "80")
		}
		return d.DialContext(ctx, "tcp", host)
	case "https":
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), "443")
		}
		return (&tls.Dialer{NetDialer: &d, Config: &tls.Config{NextProtos: []string{"http/1.1"}}}).DialContext(ctx, "tcp", host)
	}
	return nil, errors.New("bad address " + addr + ": want http:// or https://")
}
