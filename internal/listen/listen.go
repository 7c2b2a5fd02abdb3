package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// Config says where to listen and what protects the port.
type Config struct {
	Addr     string      // host:port; an empty host is every interface, port 0 a free one
	TLS      *tls.Config // nil: plain TCP
	OwnTLS   bool        // whoever takes the listener speaks TLS on it: the port is protected, Open adds nothing
	HasToken bool        // requests must carry a token
	Insecure bool        // the operator allows an unprotected port (--insecure)
	Hint     string      // the flags that would protect this port, for the refusal; "" for DefaultHint
}

// DefaultHint is what protects a port that asks for one token.
const DefaultHint = "--token, or --tls-cert and --tls-key"

// OpenError says that a port would have been open to a network with nothing to
// protect it.
type OpenError struct{ Addr, Hint string }

func (e *OpenError) Error() string {
	return fmt.Sprintf("refusing to listen on %s: nothing protects this port, and anyone on that network could use it; "+
		"give %s, listen on 127.0.0.1, or allow it with --insecure", e.Addr, cmp.Or(e.Hint, DefaultHint))
}

// Open listens on cfg.Addr. Without TLS it is a *net.TCPListener. An unprotected
// port anywhere but on loopback is an *OpenError, unless cfg.Insecure.
func Open(cfg Config) (net.Listener, error) {
	if err := Check(cfg); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	if cfg.TLS != nil {
		return tls.NewListener(ln, cfg.TLS), nil
	}
	return ln, nil
}

// Check applies the rule of Open without opening anything, for ports that
// someone else opens.
func Check(cfg Config) error {
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen address %q: %w; give host:port", cfg.Addr, err)
	}
	if cfg.TLS != nil || cfg.OwnTLS || cfg.HasToken || cfg.Insecure {
		return nil
	}
	local, err := loopback(host)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", cfg.Addr, err)
	}
	if !local {
		return &OpenError{Addr: cfg.Addr, Hint: cfg.Hint}
	}
	return nil
}

// loopback reports whether every address of host is on loopback.
func loopback(host string) (bool, error) {
	if host == "" {
		return false, nil
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(context.Background(), host)
	if err != nil {
		return false, err
	}
	for _, a := range addrs {
		if !a.IP.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}
