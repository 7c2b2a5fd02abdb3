package stream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// maxWrite is how many frames one write takes together.
const maxWrite = 256

// ServeHTTP serves GET /_shard/subscribe?since=&authority=&history=. since is
// the revision that the follower has, with the authority and history that it
// was told with it; without them, or where they are not this directory's, or
// where the ring does not reach back that far, the stream begins with a
// snapshot. 400 for a since that is no number; 503 with Retry-After where there
// is no directory yet, and where the follower is ahead of this server.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var since uint64
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			refuse(w, http.StatusBadRequest, "bad_request", "since is a revision: a decimal number")
			return
		}
	}
	h.mu.Lock()
	state, epoch, closed := h.state, h.epoch, h.closed
	h.mu.Unlock()
	if state == nil || closed {
		refuse(w, http.StatusServiceUnavailable, "directory_unavailable", "this server has no directory yet; ask again")
		return
	}
	scope, known := state.Scope()
	if !known {
		refuse(w, http.StatusServiceUnavailable, "directory_unavailable", "this server has no directory yet; ask again")
		return
	}
	// A revision alone is taken as of this directory: curl's way in.
	same := (q.Get("authority") == "" || q.Get("authority") == scope.Authority()) &&
		(q.Get("history") == "" || q.Get("history") == strconv.FormatUint(scope.History, 10))
	if same && fsm.Revision(since) > state.Revision() {
		refuse(w, http.StatusServiceUnavailable, "behind", fmt.Sprintf("this server is at revision %d, before the one you have; ask again, or another server", state.Revision()))
		return
	}
	f := &follower{hub: h, epoch: epoch, w: w, rc: http.NewResponseController(w), done: r.Context().Done()}
	w.Header().Set("Content-Type", "application/x-domicile-stream")
	w.Header().Set("Cache-Control", "no-store")
	if !f.hello(scope) || !f.begin(fsm.Revision(since), same) {
		return
	}
	f.follow()
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text, "code": code})
}

// follower is one request: a cursor.
type follower struct {
	hub   *Hub
	epoch uint64
	at    fsm.Revision
	w     http.ResponseWriter
	rc    *http.ResponseController
	done  <-chan struct{}
}

// write sends frames at once; false where the follower is gone or too slow.
func (f *follower) write(frames ...[]byte) bool {
	for _, b := range frames {
		if err := f.rc.SetWriteDeadline(time.Now().Add(f.hub.cfg.WriteLimit)); err != nil {
			return false
		}
		if _, err := f.w.Write(b); err != nil {
			return false
		}
	}
	return f.rc.Flush() == nil
}

func (f *follower) hello(scope fsm.Scope) bool {
	b, err := proto.EncodeFrame(&proto.Hello{Version: proto.StreamVersion, Authority: scope.Authority(), History: scope.History})
	return err == nil && f.write(b)
}

// begin takes the follower to a place in the ring: where it stands, or by a
// snapshot.
func (f *follower) begin(since fsm.Revision, same bool) bool {
	h := f.hub
	h.mu.Lock()
	if h.epoch != f.epoch || h.closed {
		h.mu.Unlock()
		return false
	}
	if same && since > 0 && h.reachesLocked(since) {
		h.mu.Unlock()
		f.at = since
		return true
	}
	w := h.wholeLocked()
	h.mu.Unlock()
	frames, err := w.encode()
	if err != nil {
		h.cfg.Logger.Error("directory cannot be encoded for a follower", "revision", w.revision, "err", err)
		return false
	}
	f.at = w.revision
	return f.write(frames...)
}

// follow sends deltas as they come until the follower is gone, too slow, or the
// ring has left it behind.
func (f *follower) follow() {
	h := f.hub
	beat := time.NewTimer(h.cfg.Heartbeat)
	defer beat.Stop()
	buf := make([][]byte, 0, maxWrite)
	for {
		h.mu.Lock()
		frames, at, reached := h.afterLocked(f.at, buf[:0])
		changed, over := h.changed, h.closed || h.epoch != f.epoch
		h.mu.Unlock()
		if over || !reached {
			return
		}
		if len(frames) > 0 {
			if !f.write(frames...) {
				return
			}
			f.at = at
			beat.Reset(h.cfg.Heartbeat)
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			b, err := proto.EncodeFrame(&proto.Heartbeat{Revision: f.at})
			if err != nil || !f.write(b) {
				return
			}
			beat.Reset(h.cfg.Heartbeat)
		case <-f.done:
			return
		}
	}
}
