package node

import (
	"bytes"
	"net"

	"domicile/dataplane/node/replica"
	"domicile/internal/httpserve"
)

// replication is GET /_replication: a follower's connection becomes one of package
// replica's. It shows the replication token, or where the node has none its admin
// token; a node with neither has no followers.
func (r *request) replication() error {
	want := digest(r.s.cfg.ReplicationToken)
	if want == nil {
		want = r.s.guard.Load().admin
	}
	switch {
	case want == nil:
		return errUnknownRoute()
	case !same(bearer(r.authorization), want):
		return errUnauthorized("this needs the header Authorization: Bearer <token> with the replication token, or where the node has none its admin token")
	case !r.ctx.IsGet():
		return r.methodNotAllowed("GET")
	}
	as := string(r.ctx.Request.Header.Peek(replica.HeaderAs))
	upgrade := r.ctx.Request.Header.Peek("Upgrade")
	if !bytes.EqualFold(upgrade, []byte(replica.Protocol)) {
		r.ctx.Response.Header.Set("Upgrade", replica.Protocol)
		r.ctx.Response.Header.Set("Connection", "Upgrade")
		return httpserve.Errorf(426, "upgrade_required", "this path speaks %s alone: nodes follow each other here", replica.Protocol)
	}
	if !isAddress(as) {
		return badRequest("%s, the follower's own address, http://host:port, is needed", replica.HeaderAs)
	}
	if r.s.draining.Load() {
		return httpserve.Errorf(503, "shutting_down", "the node is being stopped")
	}
	s, socket := r.s, r.ctx.Conn()
	r.ctx.Response.SetStatusCode(101)
	r.ctx.Response.Header.Set("Connection", "Upgrade")
	r.ctx.Response.Header.Set("Upgrade", replica.Protocol)
	r.ctx.Hijack(func(c net.Conn) {
		s.bodies.Add(1) // only here: a connection that broke before is not served
		defer s.bodies.Done()
		s.replica.ServeUpgrade(upgraded{c, socket}, as)
	})
	return nil
}

// upgraded is a connection that fasthttp has given away, which it closes only once its
// handler has returned: closing it here ends what reads from it.
type upgraded struct {
	net.Conn
	socket net.Conn
}

func (u upgraded) Close() error { return u.socket.Close() }
