package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"domicile/controlplane/group"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// maxBody bounds a body: twice the longest schema, which may double when
	// it is written as JSON.
	maxBody = 2*fsm.MaxSchema + 64<<10
	// proposeTimeout bounds how long a proposal may wait for its outcome.
	proposeTimeout = 10 * time.Second
	// replayMargin keeps away from the instant at which a key expires: near
	// it a request is treated as a new one before it is proposed, and Apply
	// decides.
	replayMargin fsm.Millis = 60_000
)

// change is a request that changes something, on the server that leads.
type change struct {
	*http.Request
	body        []byte
	key         string
	fingerprint string
	// replayed: the key is known and what was asked is the same: Apply will
	// give the first answer, and nothing that comes before it may refuse.
	replayed bool
}

// change serves a request that changes something of the group that is asked; see
// changeOf.
func (s *Server) change(h func(http.ResponseWriter, *change) error) httpserve.HandlerFunc {
	return s.changeOf(s.byGroup, h)
}

// changeOf serves a request that changes something: on the leader of the group whose it
// is by h, anywhere else by relaying it there. What h does goes on when the client goes
// away.
func (s *Server) changeOf(whose ownerFunc, h func(http.ResponseWriter, *change) error) httpserve.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		key, err := idempotencyKey(r)
		if err != nil {
			return err
		}
		body, err := httpserve.ReadBody(r, maxBody)
		if err != nil {
			return err
		}
		if o, err := whose(r, body); err != nil {
			return err
		} else if o != s.own() {
			return s.relayBetween(w, r, o, body)
		}
		if leader := s.group.Leader(); !leader.Self {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return s.relay(w, r, leader)
		}
		if !s.group.HasDirectory() {
			return errNoDirectory()
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(s.over, cancel)()
		c := &change{Request: r.WithContext(ctx), body: body, key: key}
		if key != "" {
			c.fingerprint = fingerprint(r, body)
			if c.replayed, err = s.replayed(c); err != nil {
				return err
			}
		}
		return h(w, c)
	}
}

// idempotencyKey gives the request's key, or "".
func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values(proto.HeaderIdempotencyKey)
	if len(keys) == 0 {
		return "", nil
	}
	ok := len(keys) == 1 && len(keys[0]) > 0 && len(keys[0]) <= fsm.MaxKey
	for i := 0; ok && i < len(keys[0]); i++ {
		ok = keys[0][i] >= 0x20 && keys[0][i] < 0x7f
	}
	if !ok {
		return "", badRequest("the Idempotency-Key must be one of 1 to %d printable ASCII characters", fsm.MaxKey)
	}
	return keys[0], nil
}

// fingerprint says what was asked under a key.
func fingerprint(r *http.Request, body []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Method), []byte(r.URL.Path), []byte(r.URL.RawQuery), body} {
		h.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		h.Write([]byte{':'})
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// replayed reports whether the key was used for this same request: 422 if for
// another one. It is a hint that spares calls; Apply decides.
func (s *Server) replayed(c *change) (bool, error) {
	q, ok := s.group.State().Request(c.key)
	if !ok || s.now()-q.At > fsm.RequestAge-replayMargin {
		return false, nil
	}
	if q.Fingerprint != c.fingerprint {
		return false, refusal(&fsm.Refusal{Code: fsm.CodeKeyReused,
			Text: "this Idempotency-Key was used for another request; use a new one for each change"})
	}
	return true, nil
}

// decode reads the body into v, strictly.
func (c *change) decode(v any) error { return httpserve.DecodeObject(c.body, v) }

// none refuses a body with fields where none is known.
func (c *change) none() error { return c.decode(&struct{}{}) }

// propose proposes what a client asked and sets the revision of the answer.
// The error is to be answered.
func (s *Server) propose(w http.ResponseWriter, c *change, cmd fsm.Command) (fsm.Result, error) {
	ctx, cancel := context.WithTimeout(c.Context(), proposeTimeout)
	defer cancel()
	result, revision, err := s.group.Propose(ctx, group.Proposal{Key: c.key, Fingerprint: c.fingerprint, Cmd: cmd})
	if err != nil {
		return result, s.groupError(err)
	}
	setRevision(w, revision)
	if result.Refusal != nil {
		return result, refusal(result.Refusal)
	}
	return result, nil
}

func setRevision(w http.ResponseWriter, r fsm.Revision) {
	w.Header().Set(proto.HeaderRevision, strconv.FormatUint(uint64(r), 10))
}

// groupError makes an answer of an error of the group. Only outcome_unknown
// leaves open whether something happened.
func (s *Server) groupError(err error) error {
	answer := func(code proto.Code, text string) error {
		e := httpserve.Errorf(proto.Status(code), code, "%s", text)
		e.Cause = err
		return e
	}
	var notLeader *group.NotLeaderError
	var level *group.LevelError
	var member *group.MembershipError
	switch {
	case errors.Is(err, group.ErrUnknownOutcome):
		return answer(proto.CodeOutcomeUnknown, "the outcome is unknown: the change may have been made, or may still be; "+
			"ask again with the same Idempotency-Key, or look at what is recorded")
	case errors.Is(err, group.ErrNoLeader), errors.Is(err, group.ErrTransferring), errors.As(err, &notLeader):
		return errNoLeader()
	case errors.Is(err, group.ErrBusy):
		return answer(proto.CodeOverloaded, "too many changes are waiting; nothing was done, try again shortly")
	case errors.Is(err, group.ErrClosed):
		return answer(proto.CodeNoLeader, "this server is stopping; nothing was done, ask another one")
	case errors.Is(err, group.ErrTooBig):
		return answer(proto.CodeBodyTooLarge, "the change is too large for one entry of the log; nothing was done")
	case errors.As(err, &level):
		return answer(fsm.CodeServerTooOld, level.Error())
	case errors.As(err, &member) && member.Retry:
		return answer(proto.CodeGroupUnsettled, member.Text)
	case errors.As(err, &member):
		return answer(proto.CodeGroupConflict, member.Text)
	}
	return err
}

// refusal makes an answer of a refused command or an undone job.
func refusal(r *fsm.Refusal) error {
	e := httpserve.Errorf(proto.Status(r.Code), r.Code, "%s", r.Text)
	e.Fields = make(map[string]any, len(r.Fields))
	for k, v := range r.Fields {
		e.Fields[k] = v
		if id, ok := moveID(v); ok && k == "move" {
			e.Fields[k] = id // as answers about moves name it
		}
	}
	return e
}

func badRequest(format string, args ...any) error {
	return httpserve.Errorf(http.StatusBadRequest, proto.CodeBadRequest, format, args...)
}

func errNoLeader() error {
	return httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeNoLeader,
		"the group has no leader at the moment; nothing was done, try again shortly")
}

func errOutOfTouch() error {
	return httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeDirectoryUnavailable,
		"this server's directory does not have that, but the server has not heard the leader of its group lately, so that it may be there; try again shortly, or ask another server")
}

func errNoDirectory() error {
	return httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeDirectoryUnavailable,
		"this server does not have the directory yet; try again shortly")
}
