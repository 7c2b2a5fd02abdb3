package main

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// baseURLs reads the addresses of a flag that names servers: http(s)://host:port, where
// the port may be the scheme's, or host:port for http.
func baseURLs(flag string, servers []string) ([]string, error) {
	urls := make([]string, 0, len(servers))
	for _, s := range servers {
		u, ok := serverURL(strings.TrimSpace(s))
		if !ok {
			return nil, usagef("--%s %q: this is no address of a server: use http://host:port or https://host:port, and commas between several", flag, s)
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// serverURL brings an address into the form http(s)://host:port.
func serverURL(s string) (string, bool) {
	bare := !strings.Contains(s, "://")
	if bare {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(u.Hostname(), ", ") ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	port := u.Port()
	if port == "" && !bare && !strings.HasSuffix(u.Host, ":") {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port), true
}
