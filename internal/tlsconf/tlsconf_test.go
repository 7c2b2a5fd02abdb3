package tlsconf_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"domicile/internal/tlsconf"
	"domicile/internal/tlsconf/certtest"
)

// load gives the files of a process that ca vouches for under hosts.
func load(t *testing.T, ca *certtest.CA, name string, hosts ...string) *tlsconf.Files {
	t.Helper()
	cert, key := ca.Issue(t, name, hosts...)
	f, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key, CA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// echo serves one byte back to whoever finishes the handshake.
func echo(t *testing.T, cfg *tls.Config, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(c, c, 1) // a refused handshake is the client's error to report
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// ask sends a byte and wants it back: in TLS 1.3 a client learns only with the
// first read that its certificate was refused.
func ask(f *tlsconf.Files, addr string) (*tls.ConnectionState, error) {
	c, err := f.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return nil, err
	}
	st := c.(*tls.Conn).ConnectionState()
	return &st, nil
}

func TestO5MutualTLSBetweenParts(t *testing.T) {
	ca, other := certtest.NewCA(t, "ours"), certtest.NewCA(t, "theirs")
	server := load(t, ca, "server", "127.0.0.1")
	cfg, err := server.ForParts()
	addr := echo(t, cfg, err)

	if _, err := ask(load(t, ca, "client", "client.test"), addr); err != nil {
		t.Errorf("a part with our CA's certificate: %v", err)
	}
	stranger, err := tlsconf.Load(tlsconf.Config{CA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(stranger, addr); err == nil {
		t.Error("a connection without a certificate was served")
	}
	cert, key := other.Issue(t, "client", "client.test")
	foreign, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key, CA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(foreign, addr); err == nil {
		t.Error("a certificate of another CA was served")
	}
	if _, err := ask(load(t, other, "x", "x"), addr); err == nil {
		t.Error("a client that trusts another CA took our server for its own")
	}
}

func TestO5WrongNameInTheCertificateIsRefused(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	cfg, err := load(t, ca, "server", "node1.test", "127.0.0.2").ForClients()
	addr := echo(t, cfg, err)
	_, err = ask(load(t, ca, "client"), addr)
	var verify *tls.CertificateVerificationError
	if !errors.As(err, &verify) {
		t.Fatalf("got %v, want the certificate refused: it names another host", err)
	}
}

func TestO5CertificatesAreReplacedWithoutARestart(t *testing.T) {
	oldCA, newCA := certtest.NewCA(t, "old"), certtest.NewCA(t, "new")
	cert, key := oldCA.Issue(t, "server", "127.0.0.1")
	caFile := t.TempDir() + "/ca.pem"
	copyFile(t, oldCA.File, caFile)
	server, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key, CA: caFile})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := server.ForParts()
	addr := echo(t, cfg, err)
	before := load(t, oldCA, "client")
	if _, err := ask(before, addr); err != nil {
		t.Fatal(err)
	}

	newCert, newKey := newCA.Issue(t, "server", "127.0.0.1")
	copyFile(t, newCert, cert)
	if err := server.Reload(); err == nil {
		t.Fatal("a certificate without its key was taken")
	}
	if _, err := ask(before, addr); err != nil {
		t.Fatalf("a reload that failed changed something: %v", err)
	}

	copyFile(t, newKey, key)
	copyFile(t, newCA.File, caFile)
	if err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(load(t, newCA, "client"), addr); err != nil {
		t.Errorf("a part of the new CA after the reload: %v", err)
	}
	cert, key = oldCA.Issue(t, "late", "client")
	trusting, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key, CA: newCA.File})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(trusting, addr); err == nil {
		t.Error("a certificate of the CA that was taken out is still served")
	}
}

func TestO5ClientsOfAnOldConfigTrustTheNewCA(t *testing.T) {
	oldCA, newCA := certtest.NewCA(t, "old"), certtest.NewCA(t, "new")
	caFile := t.TempDir() + "/ca.pem"
	copyFile(t, oldCA.File, caFile)
	client, err := tlsconf.Load(tlsconf.Config{CA: caFile})
	if err != nil {
		t.Fatal(err)
	}
	kept := client.Client("127.0.0.1")
	cfg, err := load(t, newCA, "server", "127.0.0.1").ForClients()
	addr := echo(t, cfg, err)
	if _, err := tls.Dial("tcp", addr, kept); err == nil {
		t.Fatal("a server of an unknown CA was trusted")
	}
	copyFile(t, newCA.File, caFile)
	if err := client.Reload(); err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr, kept)
	if err != nil {
		t.Fatalf("a configuration made before the reload: %v", err)
	}
	c.Close()
}

func TestO5ClientPortAsksForNoCertificate(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	cfg, err := load(t, ca, "server", "127.0.0.1").ForClients()
	addr := echo(t, cfg, err)
	plain, err := tlsconf.Load(tlsconf.Config{CA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	st, err := ask(plain, addr)
	if err != nil {
		t.Fatal(err)
	}
	if st.NegotiatedProtocol != "http/1.1" {
		t.Errorf("got protocol %q, want http/1.1", st.NegotiatedProtocol)
	}
}

func TestBadFilesAreRefusedWithWhatToDo(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	cert, key := ca.Issue(t, "server", "127.0.0.1")
	_, otherKey := ca.Issue(t, "other", "127.0.0.1")
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  tlsconf.Config
		want string
	}{
		"certificate alone": {tlsconf.Config{Cert: cert}, "--tls-key"},
		"another's key":     {tlsconf.Config{Cert: cert, Key: otherKey}, "private key does not match"},
		"no such file":      {tlsconf.Config{Cert: cert + "x", Key: key}, "no such file"},
		"empty CA":          {tlsconf.Config{CA: empty}, "no certificate"},
	} {
		if _, err := tlsconf.Load(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	onlyCA, err := tlsconf.Load(tlsconf.Config{CA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := onlyCA.ForClients(); !errors.Is(err, tlsconf.ErrNoCertificate) {
		t.Errorf("got %v, want ErrNoCertificate", err)
	}
	noCA, err := tlsconf.Load(tlsconf.Config{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := noCA.ForParts(); !errors.Is(err, tlsconf.ErrNoCA) {
		t.Errorf("got %v, want ErrNoCA", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
