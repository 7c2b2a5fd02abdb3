package httpserve

import (
	"io"
	"net/http"
	"time"
)

const (
	// bodyWait bounds how long a request's body may take to arrive.
	bodyWait = 30 * time.Second
	// writeWait bounds how long a client may take to take an answer. A handler
	// that streams sets a time for each write.
	writeWait = time.Minute
)

// limit sets the times of a request, which net/http does not: it would wait for
// ever for a body, and reads it to its end before it answers even where no
// handler has asked for it. r is the handler's own copy.
func (h *Handler) limit(rec *recorder, r *http.Request) {
	_ = rec.control.SetWriteDeadline(time.Time{}) // the last request's
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	if rec.control.SetReadDeadline(time.Now().Add(h.bodyWait)) == nil {
		r.Body = &body{r.Body, rec.control}
	}
}

// body is a request's body; once it has come, its time has no meaning more.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// recorder remembers the status that was sent, and gives the answer its time.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	wait    time.Duration
	status  int
}

func (rec *recorder) begin(status int) {
	if rec.status == 0 {
		rec.status = status
		_ = rec.control.SetWriteDeadline(time.Now().Add(rec.wait)) // a writer without deadlines has none to set
	}
}

func (rec *recorder) WriteHeader(status int) {
	if status >= 200 {
		rec.begin(status)
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) Write(p []byte) (int, error) {
	rec.begin(http.StatusOK)
	return rec.ResponseWriter.Write(p)
}

// Flush lets stream handlers that ask for an http.Flusher have one.
func (rec *recorder) Flush() {
	rec.begin(http.StatusOK)
	_ = rec.control.Flush() // a writer that cannot flush sends at the end
}

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }
