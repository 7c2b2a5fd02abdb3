package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Config names the PEM files of a process. All empty: TLS is off.
type Config struct {
	Cert string // certificate, followed by its intermediates
	Key  string // private key of Cert
	CA   string // certificates that sign the other parts'; "" means the system's
}

// Enabled reports whether any file is named.
func (c Config) Enabled() bool { return c != Config{} }

// ErrNoCertificate says that a server's configuration was asked of files that
// hold no certificate.
var ErrNoCertificate = errors.New("a TLS server needs a certificate and its key: give --tls-cert and --tls-key")

// ErrNoCA says that a port for the other parts was asked of files without a CA.
var ErrNoCA = errors.New("mutual TLS needs the CA that signs the parts' certificates: give --tls-ca")

// Files is what the files of a Config hold at present. It is safe for
// concurrent use.
type Files struct {
	cfg     Config
	current atomic.Pointer[material]
}

// material is one reading of the files; immutable.
type material struct {
	cert  *tls.Certificate // nil without one
	roots *x509.CertPool   // nil: the system's
}

// Load reads the files of cfg. It fails where one cannot be read, where the key
// is not the certificate's, and where only one of the two is named.
func Load(cfg Config) (*Files, error) {
	f := &Files{cfg: cfg}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Reload reads the files again. Handshakes from then on use what they hold;
// open connections go on. On an error nothing changes.
func (f *Files) Reload() error {
	m, err := read(f.cfg)
	if err != nil {
		return err
	}
	f.current.Store(m)
	return nil
}

func read(cfg Config) (*material, error) {
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("--tls-cert and --tls-key go together: give both or neither")
	}
	m := &material{}
	if cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and key %s: %w", cfg.Cert, cfg.Key, err)
		}
		m.cert = &pair
	}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("read CA: %w", err)
		}
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA: %s holds no certificate in PEM", cfg.CA)
		}
	}
	return m, nil
}

// HasCertificate reports whether a certificate to serve with is named.
func (f *Files) HasCertificate() bool { return f.cfg.Cert != "" }

// HasCA reports whether a CA is named, so that the parts' ports can ask for
// certificates.
func (f *Files) HasCA() bool { return f.cfg.CA != "" }

// ForClients is the configuration of a port that clients connect to: TLS 1.2 or
// newer, no certificate asked of them.
func (f *Files) ForClients() (*tls.Config, error) {
	if !f.HasCertificate() {
		return nil, ErrNoCertificate
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.current.Load().cert, nil
		},
	}, nil
}

// ForParts is the configuration of a port that only the deployment's own parts
// connect to: TLS 1.3, and a certificate that the CA signed asked of each.
func (f *Files) ForParts() (*tls.Config, error) {
	if !f.HasCertificate() {
		return nil, ErrNoCertificate
	}
	if !f.HasCA() {
		return nil, ErrNoCA
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := f.current.Load()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				NextProtos:   []string{"http/1.1"},
				Certificates: []tls.Certificate{*m.cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    m.roots,
				// A resumed session would outlive the CA that vouched for it.
				SessionTicketsDisabled: true,
			}, nil
		},
	}, nil
}

// Client is the configuration of connections to host (a name or an address
// without a port; the server's certificate must name it). Each handshake uses
// what the files hold then, so it may be kept.
func (f *Files) Client(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := f.current.Load().cert; c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil // none to show: the server decides
		},
		// The standard verification takes the roots of the moment at which the
		// Config was made; verify does the same work with those of now.
		InsecureSkipVerify: true,
		VerifyConnection:   func(cs tls.ConnectionState) error { return f.verify(host, cs) },
	}
}

// verify does what crypto/tls does for a client without InsecureSkipVerify.
func (f *Files) verify(host string, cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the server showed no certificate")
	}
	opts := x509.VerifyOptions{
		Roots:         f.current.Load().roots,
		DNSName:       host,
		Intermediates: x509.NewCertPool(),
	}
	for _, c := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := cs.PeerCertificates[0].Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
	}
	return nil
}

// DialContext opens a TLS connection to addr (host:port) and finishes the
// handshake. Its signature is that of http.Transport.DialTLSContext.
func (f *Files) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{Config: f.Client(host)}
	return d.DialContext(ctx, network, addr)
}
