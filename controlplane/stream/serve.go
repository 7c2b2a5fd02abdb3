package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// behindWait is how long a server that has not yet what a subscriber holds
// waits for it before it sends the subscriber elsewhere.
const behindWait = time.Second

// held is what a subscriber says that it holds; nothing when authority is "".
type held struct {
	authority string
	history   uint64
	rev       fsm.Revision
}

// parseHeld reads since, authority and history. since alone means nothing: a
// revision counts within an authority's history only.
func parseHeld(q url.Values) (held, error) {
	var h held
	var err error
	number := func(name string) uint64 {
		text := q.Get(name)
		if text == "" {
			return 0
		}
		n, e := strconv.ParseUint(text, 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("%s is not a number", name)
		}
		return n
	}
	h.authority, h.history = q.Get("authority"), number("history")
	h.rev = fsm.Revision(number("since"))
	return h, err
}

// ServeHTTP answers GET /_shard/subscribe?since=…&authority=…&history=…: 200
// and the stream, 503 with Retry-After where there is no directory yet or it is
// behind what the subscriber holds, 400 for parameters that are no numbers.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	has, err := parseHeld(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	authority, history, epoch, ok := h.owner()
	if !ok {
		unavailable(w, "this server does not have the directory yet")
		return
	}
	resumes := has.rev > 0 && has.authority == authority && has.history == history
	if resumes && !h.reaches(r.Context(), has.rev) {
		unavailable(w, "this server is behind what the subscriber holds; ask another")
		return
	}
	h.subscribers.Add(1)
	defer h.subscribers.Add(-1)
	s := &subscription{hub: h, w: w, control: http.NewResponseController(w), ctx: r.Context(), epoch: epoch}
	w.Header().Set("Content-Type", "application/vnd.domicile.stream")
	w.Header().Set("Cache-Control", "no-store")
	hello := &proto.Hello{Version: proto.StreamVersion, Authority: authority, History: history, Age: h.cfg.Age()}
	err = s.run(hello, has.rev, resumes)
	if errors.Is(err, errLagging) {
		h.cfg.Logger.Info("subscriber cut off: it does not keep up", "peer", r.RemoteAddr)
	}
}

func unavailable(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "directory_unavailable", text)
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"error\":%q,\"code\":%q}\n", text, code)
}

// owner says whose directory this is; false while there is none that may be shown. The
// answer holds as long as the epoch.
func (h *Hub) owner() (authority string, history, epoch uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == nil {
		return "", 0, h.epoch, false
	}
	authority, history, ok = h.state.Owner()
	return authority, history, h.epoch, ok
}

// reaches waits a moment until this server holds rev.
func (h *Hub) reaches(ctx context.Context, rev fsm.Revision) bool {
	ctx, cancel := context.WithTimeout(ctx, behindWait)
	defer cancel()
	for {
		h.mu.Lock()
		there, changed := h.state.Revision() >= rev, h.changed
		h.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-h.closed:
			return false
		}
	}
}

// errLagging ends the stream of a subscriber that the ring has overtaken.
var errLagging = errors.New("the subscriber does not keep up")

// errReplaced ends the stream of a subscriber that was greeted for a directory that
// another one has replaced since.
var errReplaced = errors.New("the directory was replaced by another one")

// subscription is one subscriber's stream.
type subscription struct {
	hub     *Hub
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context
	epoch   uint64 // the hub's, when the directory was named in the greeting
}

// run writes the stream until it ends. The subscriber holds rev if it resumes.
func (s *subscription) run(hello *proto.Hello, rev fsm.Revision, resumes bool) error {
	first, err := proto.EncodeFrame(hello)
	if err != nil {
		return err
	}
	if err := s.write(first); err != nil {
		return err
	}
	var at cursor
	if resumes {
		s.hub.mu.Lock()
		at, _, resumes = s.hub.seek(rev)
		s.hub.mu.Unlock()
	}
	if !resumes {
		if at, err = s.all(); err != nil {
			return err
		}
	} else if at.epoch != s.epoch {
		return errReplaced
	} else if err := s.control.Flush(); err != nil {
		return err
	}
	return s.changes(at)
}

// all writes a whole directory.
func (s *subscription) all() (cursor, error) {
	w, at := s.hub.wholeFor()
	defer s.hub.leave(w)
	if at.epoch != s.epoch {
		return at, errReplaced
	}
	for sent := 0; ; {
		frames, done, changed, err := w.from(sent)
		if err != nil {
			return at, err
		}
		for _, f := range frames {
			if err := s.write(f); err != nil {
				return at, err
			}
		}
		sent += len(frames)
		if done {
			return at, s.control.Flush()
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return at, s.ctx.Err()
		case <-s.hub.closed:
			return at, errClosed
		}
	}
}

// changes writes what is published after at, and heartbeats.
func (s *subscription) changes(at cursor) error {
	beat := time.NewTicker(s.hub.cfg.Heartbeat)
	defer beat.Stop()
	for {
		frames, next, changed, lost := s.hub.after(at)
		if lost {
			return errLagging
		}
		at = next
		if len(frames) > 0 {
			if err := s.write(frames...); err != nil {
				return err
			}
			if err := s.control.Flush(); err != nil {
				return err
			}
			select {
			case <-beat.C:
			default:
				continue
			}
			if err := s.heartbeat(at.rev); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := s.heartbeat(at.rev); err != nil {
				return err
			}
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-s.hub.closed:
			return errClosed
		}
	}
}

func (s *subscription) heartbeat(rev fsm.Revision) error {
	frame, err := proto.EncodeFrame(&proto.Heartbeat{Revision: rev, Age: s.hub.cfg.Age()})
	if err != nil {
		return err
	}
	if err := s.write(frame); err != nil {
		return err
	}
	return s.control.Flush()
}

// write writes frames; a subscriber that does not take them in time is cut off.
func (s *subscription) write(frames ...[]byte) error {
	err := s.control.SetWriteDeadline(time.Now().Add(s.hub.cfg.WriteWait))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, f := range frames {
		if _, err := s.w.Write(f); err != nil {
			return err
		}
	}
	return nil
}
