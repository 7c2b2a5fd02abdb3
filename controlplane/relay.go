package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// relayTimeout is longer than the leader's longest wait for a job.
	relayTimeout = jobTimeout + 30*time.Second
	// deposedWait is how long a leader that leads no more may take to answer.
	deposedWait = 2 * time.Second
	// ownWrites bounds how long a relaying server waits for its own directory
	// to have what the leader answered.
	ownWrites = 2 * time.Second
	// maxRelayedError bounds an answer that is looked at on its way.
	maxRelayedError = 64 << 10
)

// relayedHeaders go along with a relayed request, and those of answeredHeaders
// with its answer.
var (
	relayedHeaders  = []string{"Authorization", "Content-Type", proto.HeaderIdempotencyKey, proto.HeaderRelayedBetween, proto.HeaderOriginRegion}
	answeredHeaders = []string{"Content-Type", "Content-Length", proto.HeaderRevision, proto.HeaderDirectory, proto.HeaderAlso,
		proto.HeaderUnreachable, "Retry-After", "Link", "WWW-Authenticate", "Allow"}
)

// relay passes a request on to the leader, once, marked so that it goes no
// further.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, leader group.Leader) error {
	switch {
	case !leader.Known:
		return errNoLeader()
	case r.Header.Get(proto.HeaderRelayed) != "":
		name := leader.API
		if name == "" {
			name = string(leader.ID)
		}
		e := httpserve.Errorf(http.StatusConflict, proto.CodeNotLeader,
			"this was relayed to a server that does not lead any more; ask again")
		e.Fields = map[string]any{"leader": name}
		return e
	case leader.API == "":
		return errNoLeader() // it has not recorded yet where it is reached
	}
	ctx, cancel := context.WithTimeout(r.Context(), relayTimeout)
	defer cancel()
	defer s.whenDeposed(ctx, leader, cancel)()
	req, err := http.NewRequestWithContext(ctx, r.Method, leader.API+r.URL.RequestURI(), r.Body)
	if err != nil {
		return err
	}
	req.ContentLength = r.ContentLength
	if r.ContentLength == 0 {
		req.Body = http.NoBody
	}
	for _, name := range relayedHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	req.Header.Set(proto.HeaderRelayed, "1")
	req.Header.Set(proto.HeaderOriginPeer, httpserve.OriginPeer(r))
	req.Header.Set(proto.HeaderRequestID, httpserve.RequestID(r.Context()))
	resp, err := s.peers.Do(req)
	if err != nil {
		return relayError(err)
	}
	defer resp.Body.Close()
	return s.answerRelayed(w, r, resp)
}

// whenDeposed calls cancel some time after another server is known to lead: a
// leader that was paused would not answer at all, one that is well has that time
// for what it has begun. The function that it returns ends it.
func (s *Server) whenDeposed(ctx context.Context, leader group.Leader, cancel func()) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(leaderEvery)
		defer tick.Stop()
		deposed := time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := s.group.Leader()
			switch {
			case !now.Known || now.ID == leader.ID:
				deposed = time.Time{}
			case deposed.IsZero():
				deposed = time.Now()
			case time.Since(deposed) > deposedWait:
				cancel()
				return
			}
		}
	})
	return func() { stop(); watch.Wait() }
}

// relayError tells an error before anything was sent from one after.
func relayError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return errNoLeader()
	}
	return outcomeUnknown(err)
}

func outcomeUnknown(err error) error {
	return &httpserve.Error{Status: http.StatusServiceUnavailable, Code: proto.CodeOutcomeUnknown, Cause: err,
		Text: "the leader did not answer: the change may have been made, or may still be; " +
			"ask again with the same Idempotency-Key, or look at what is recorded"}
}

// awaitTold waits until what this server has of the directories that an answer names is as
// new as the answer. One that lags behind answers all the same: the change is made.
func (s *Server) awaitTold(ctx context.Context, answer http.Header) {
	ctx, cancel := context.WithTimeout(ctx, ownWrites)
	defer cancel()
	own, _ := s.ownName()
	wait := func(authority string, rev fsm.Revision) {
		switch {
		case authority == own.Authority:
			_ = s.group.WaitRevision(ctx, rev)
		case s.global != nil:
			_ = s.global.Wait(ctx, authority, rev)
		}
	}
	rev, err := strconv.ParseUint(answer.Get(proto.HeaderRevision), 10, 64)
	of, named := proto.ParseDirectoryName(answer.Get(proto.HeaderDirectory))
	if !named {
		of = own // a server from before directories were named
	}
	if err == nil {
		wait(of.Authority, fsm.Revision(rev))
	}
	if also, ok := proto.ParseAlso(answer.Get(proto.HeaderAlso)); ok {
		wait(also.Authority, also.Revision)
	}
}

// answerRelayed gives another server's answer, once this server's own directory, or its
// copy of the global one, has what it tells of.
func (s *Server) answerRelayed(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
	body := io.Reader(resp.Body)
	if resp.StatusCode == http.StatusConflict {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxRelayedError))
		if err != nil {
			return outcomeUnknown(err)
		}
		var e struct{ Code proto.Code }
		if json.Unmarshal(text, &e) == nil && e.Code == proto.CodeNotLeader {
			return errNoLeader() // the client did not relay; it is told to ask again
		}
		body = bytes.NewReader(text)
	}
	s.awaitTold(r.Context(), resp.Header)
	for _, name := range answeredHeaders {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	return nil
}
