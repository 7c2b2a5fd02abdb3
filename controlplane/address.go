package controlplane

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// errAddress says what an address must look like.
var errAddress = errors.New("want host:port, or http:// or https:// and host:port")

// nodeAddress brings the address of a node into the one form that is recorded:
// host:port or http(s)://host:port, in lower case, without a closing slash.
func nodeAddress(s string) (string, error) {
	scheme, rest := "", s
	if i := strings.Index(s, "://"); i >= 0 {
		scheme, rest = strings.ToLower(s[:i]), strings.TrimSuffix(s[i+3:], "/")
		if scheme != "http" && scheme != "https" {
			return "", fmt.Errorf("%q: %w", s, errAddress)
		}
		scheme += "://"
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil || !hostOK(host) || net.JoinHostPort(host, port) != rest {
		return "", fmt.Errorf("%q: %w", s, errAddress)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
		return "", fmt.Errorf("%q: the port is not a number from 1 to 65535", s)
	}
	return scheme + net.JoinHostPort(strings.ToLower(host), port), nil
}

// hostOK reports whether host is an IP address or looks like a DNS name.
func hostOK(host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	if host == "" || len(host) > 253 {
		return false
	}
	for i := 0; i < len(host); i++ {
		c := host[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// nodeURL gives the base URL of a recorded address.
func nodeURL(addr string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	return "http://" + addr
}

// routerAddress brings a router's base URL into the form that is recorded.
func routerAddress(s string) (string, error) {
	if !strings.Contains(s, "://") {
		return "", fmt.Errorf("%q: want http:// or https:// and host:port", s)
	}
	return nodeAddress(s)
}
