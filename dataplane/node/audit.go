package node

import (
	"time"

	"domicile/internal/httpserve"
)

// auditEntry is a line of the audit log. It holds no body and no token.
type auditEntry struct {
	At        time.Time `json:"at"`
	Event     string    `json:"event"` // refused_token, change
	Method    string    `json:"method"`
	Path      string    `json:"path"` // without the query
	Status    int       `json:"http_status"`
	Peer      string    `json:"peer"`          // the client's address
	Via       string    `json:"via,omitempty"` // the connection's, where it named another client in Domicile-Client
	RequestID string    `json:"request_id"`
}

// audit writes the request's line, if it is one that gets one.
func (r *request) audit() {
	status := r.ctx.Response.StatusCode()
	event := ""
	switch {
	case status == 401 || status == 403:
		event = "refused_token"
	case r.admin && !r.ctx.IsGet() && !r.ctx.IsHead():
		event = "change"
	}
	w := r.s.cfg.Audit
	if event == "" || w == nil {
		return
	}
	e := auditEntry{
		At: time.Now().UTC(), Event: event, Method: string(r.ctx.Method()), Path: string(r.path),
		Status: status, Peer: r.ctx.RemoteIP().String(), RequestID: string(r.id),
	}
	if len(r.client) > 0 {
		e.Peer, e.Via = string(r.client), e.Peer
	}
	line, err := httpserve.EncodeJSON(e)
	if err == nil {
		_, err = w.Write(line)
	}
	if err != nil {
		r.s.log.Error("audit log could not be written", "err", err)
	}
}
