package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logFlags are every server's flags for its log and audit log.
type logFlags struct {
	LogLevel string `enum:"trace,debug,info,warn,error" default:"info" help:"Least level that is logged: ${enum}."`
	LogJSON  bool   `name:"log-json" help:"Log JSON lines."`
	Audit    string `placeholder:"FILE" help:"Append a JSON line for each refused token and each change to FILE."`
}

func (f *logFlags) logger(e *env, name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       name,
		Level:      hclog.LevelFromString(f.LogLevel),
		Output:     e.stderr,
		JSONFormat: f.LogJSON,
	})
}

// auditFile opens the audit log, or gives nil where none is asked for.
func (f *logFlags) auditFile() (io.WriteCloser, error) {
	if f.Audit == "" {
		return nil, nil
	}
	file, err := os.OpenFile(f.Audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return file, nil
}

// tlsFlags are every server's flags for TLS.
type tlsFlags struct {
	TLSCert  string `name:"tls-cert" placeholder:"FILE" help:"PEM certificate to serve with; reloaded on SIGHUP."`
	TLSKey   string `name:"tls-key" placeholder:"FILE" help:"PEM key of --tls-cert."`
	TLSCA    string `name:"tls-ca" placeholder:"FILE" help:"PEM certificates that other parts must be signed by (mutual TLS between parts)."`
	Insecure bool   `help:"Listen beyond loopback without TLS or a token. Only on a network that you trust."`
}

// secret gives the value of a secret flag: its own, or what its file holds,
// without the line end.
func secret(flag, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", usagef("--%s and --%s-file are given; give one", flag, flag)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the secret of --%s-file: %w", flag, err)
	}
	s := strings.TrimRight(string(data), "\r\n")
	if s == "" {
		return "", usagef("the file of --%s-file is empty: %s", flag, filepath.Base(file))
	}
	return s, nil
}
