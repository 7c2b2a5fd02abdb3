package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// headerAge tells how old a proxy's copy of the directory is, in seconds.
const headerAge = "Domicile-Directory-Age"

// serveHealth answers while the process runs.
func (h handler) serveHealth(w http1.ResponseWriter, r *http1.Request, _ io.Reader) {
	if readOnly(w, r) {
		writeJSON(w, http.StatusOK, proto.Health{Status: "ok"})
	}
}

// serveReady answers 200 once the proxy has a directory, of whatever age: with
// it, it forwards (R3). How old it is the answer says (R4).
func (h handler) serveReady(w http1.ResponseWriter, r *http1.Request, _ io.Reader) {
	if !readOnly(w, r) {
		return
	}
	t := h.dir.table()
	if t == nil {
		writeError(w, http.StatusServiceUnavailable, codeUnavailable, "the directory has not arrived at this proxy yet")
		return
	}
	age := h.dir.age(time.Now())
	setHeader(w, proto.HeaderRevision, strconv.FormatUint(uint64(t.position.Revision), 10))
	setHeader(w, headerAge, strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	ready := struct {
		proto.Health
		copyStatus
		Global *copyStatus `json:"global,omitempty"` // of a region's proxy
	}{proto.Health{Status: "ready"}, statusOf(t, age), nil}
	if global := h.global.table(); global != nil {
		s := statusOf(global, h.global.age(time.Now()))
		ready.Global = &s
	}
	writeJSON(w, http.StatusOK, ready)
}

// copyStatus is what /_ready tells of a copy of a directory.
type copyStatus struct {
	Revision fsm.Revision `json:"revision"`
	Age      float64      `json:"age_seconds"`
	Stale    bool         `json:"stale"`
}

func statusOf(t *table, age time.Duration) copyStatus {
	return copyStatus{t.position.Revision, age.Seconds(), age > staleAfter}
}

// serveMetrics asks for the proxy's token where it has one.
func (h handler) serveMetrics(w http1.ResponseWriter, r *http1.Request, _ io.Reader) {
	if !readOnly(w, r) {
		return
	}
	token := h.secrets.Load().Token
	if token != "" && !carries(r, token) {
		h.holdBack(r)
		setHeader(w, "WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, string(proto.CodeUnauthorized), "this needs the proxy's token: Authorization: Bearer <token>")
		return
	}
	if token != "" {
		h.refusals.accepted(h.client(r, time.Now()).addr, proxyName)
	}
	setHeader(w, "Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if err := h.metrics.write(w); err != nil {
		h.cfg.Logger.Debug("metrics were not written", "err", err)
	}
}

// proxyName is who refuses tokens at the proxy itself.
const proxyName = "@proxy"

// holdBack waits as long as a refused token has to.
func (h handler) holdBack(r *http1.Request) {
	delay := h.refuse(r, proxyName)
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Gone():
	}
}

// carries reports whether a request carries the bearer token, in a time that
// tells nothing of it.
func carries(r *http1.Request, token string) bool {
	scheme, given, ok := bytes.Cut(r.Header("Authorization"), []byte(" "))
	if !ok || !bytes.EqualFold(scheme, []byte("Bearer")) {
		return false
	}
	want, have := sha256.Sum256([]byte(token)), sha256.Sum256(bytes.TrimSpace(given))
	return subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

func readOnly(w http1.ResponseWriter, r *http1.Request) bool {
	if m := string(r.Method()); m == http.MethodGet || m == http.MethodHead {
		return true
	}
	setHeader(w, "Allow", "GET, HEAD")
	writeError(w, http.StatusMethodNotAllowed, string(proto.CodeMethodNotAllowed), "this is only read: use GET or HEAD")
	return false
}

func writeError(w http1.ResponseWriter, status int, code, text string) {
	if status == http.StatusServiceUnavailable {
		setHeader(w, "Retry-After", "1")
	}
	writeJSON(w, status, struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{text, code})
}

func writeJSON(w http1.ResponseWriter, status int, v any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // which ends it with a newline
		panic("BUG: encode an answer: " + err.Error())
	}
	setHeader(w, "Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // a client that has gone away is no concern of the handler
}

// setHeader sets a header whose name and value are ours.
func setHeader(w http1.ResponseWriter, name, value string) {
	if err := w.SetHeader(name, value); err != nil {
		panic("BUG: " + err.Error())
	}
}
