package httpserve

import (
	"net"
	"net/http"
	"net/netip"

	"domicile/proto"
)

// peer is the address of the other end of a request's connection, without port.
func peer(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// origin is who asked the server that relayed r, "" where it is not said. It is an
// address, and counts for as much as the token beside it.
func origin(r *http.Request) string {
	addr, err := netip.ParseAddr(r.Header.Get(proto.HeaderOriginPeer))
	if err != nil {
		return ""
	}
	return addr.String()
}

// OriginPeer is the address of who asked first: what a server that relays r says of it.
func OriginPeer(r *http.Request) string {
	if first := origin(r); first != "" {
		return first
	}
	return peer(r)
}
