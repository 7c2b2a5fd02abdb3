package listen_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"domicile/internal/listen"
)

func TestO5UnprotectedServerListensOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "127.9.9.9:0"} {
		if err := listen.Check(listen.Config{Addr: addr}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "10.1.2.3:80", "[2001:db8::1]:80", "[::ffff:10.0.0.1]:80"} {
		var open *listen.OpenError
		if _, err := listen.Open(listen.Config{Addr: addr}); !errors.As(err, &open) {
			t.Errorf("%s: got %v, want it refused", addr, err)
		}
		for _, protected := range []listen.Config{
			{Addr: addr, HasToken: true}, {Addr: addr, Insecure: true}, {Addr: addr, TLS: &tls.Config{}}, {Addr: addr, OwnTLS: true},
		} {
			if err := listen.Check(protected); err != nil {
				t.Errorf("%+v: %v", protected, err)
			}
		}
	}
}

// The refusal of a port names what would protect that port.
func TestO5TheRefusalSaysWhatWouldHelp(t *testing.T) {
	for hint, want := range map[string]string{
		"": "give " + listen.DefaultHint + ", ",
		"the three TLS flags (--tls-cert, --tls-key, --tls-ca)": "give the three TLS flags (--tls-cert, --tls-key, --tls-ca), ",
		"--http-token or --jwt-key":                             "give --http-token or --jwt-key, ",
	} {
		err := listen.Check(listen.Config{Addr: "10.1.2.3:80", Hint: hint})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "10.1.2.3:80") {
			t.Errorf("hint %q: %v", hint, err)
		}
	}
}

func TestOpenGivesAListener(t *testing.T) {
	ln, err := listen.Open(listen.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, ok := ln.(*net.TCPListener); !ok {
		t.Errorf("got %T, want *net.TCPListener: its connections are used raw", ln)
	}
	if _, err := listen.Open(listen.Config{Addr: "127.0.0.1"}); err == nil {
		t.Error("an address without a port was taken")
	}
}
