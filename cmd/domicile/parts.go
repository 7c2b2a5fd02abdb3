package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"domicile/internal/listen"
	"domicile/internal/tlsconf"
)

// tlsFiles reads the files of the TLS flags; nil where none is given.
func tlsFiles(cert, key, ca string) (*tlsconf.Files, error) {
	cfg := tlsconf.Config{Cert: cert, Key: key, CA: ca}
	if !cfg.Enabled() {
		return nil, nil
	}
	return tlsconf.Load(cfg)
}

// partsTransport is for requests to other parts of the deployment, or nil for
// the default where no TLS file is given.
func partsTransport(cert, key, ca string) (http.RoundTripper, error) {
	files, err := tlsFiles(cert, key, ca)
	if err != nil || files == nil {
		return nil, err
	}
	return transportOf(files), nil
}

func transportOf(files *tlsconf.Files) *http.Transport {
	t := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	if files != nil {
		t.DialTLSContext = files.DialContext
	}
	return t
}

// listener opens a process's port by the rule of O5: what protects it, beside
// TLS, is told by hint where it is not --token. parts says that only the
// deployment's own parts and operators come here: with a CA they must show a
// certificate.
func (f *tlsFlags) listener(addr string, hasToken, parts bool, hint string) (net.Listener, *tlsconf.Files, error) {
	files, err := tlsFiles(f.TLSCert, f.TLSKey, f.TLSCA)
	if err != nil {
		return nil, nil, err
	}
	cfg := listen.Config{Addr: addr, HasToken: hasToken, Insecure: f.Insecure, Hint: hint}
	if cfg.TLS, err = serverTLS(files, parts); err != nil {
		return nil, nil, err
	}
	l, err := listen.Open(cfg)
	return l, files, err
}

func serverTLS(files *tlsconf.Files, parts bool) (*tls.Config, error) {
	switch {
	case files == nil || !files.HasCertificate():
		return nil, nil
	case parts && files.HasCA():
		return files.ForParts()
	default:
		return files.ForClients()
	}
}

// onHangup calls reload at each SIGHUP until ctx ends.
func (e *env) onHangup(ctx context.Context, reload func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.hangup:
			reload()
		}
	}
}
