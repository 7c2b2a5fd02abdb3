package controlplane

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// readTimeout bounds how long a consistent read waits for the leader's word.
const readTimeout = 5 * time.Second

// read serves a request from this server's own directory; params are the
// query parameters that it takes. With ?consistent it sees every change that
// was acknowledged before it began.
func (s *Server) read(h func(http.ResponseWriter, *http.Request, *fsm.State) error, params ...string) httpserve.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		query, err := parseQuery(r, append(params, "consistent")...)
		if err != nil {
			return err
		}
		consistent, err := flag(query, "consistent")
		if err != nil {
			return err
		}
		if consistent {
			if leader := s.group.Leader(); !leader.Self {
				return s.relay(w, r, leader)
			}
			ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
			defer cancel()
			if err := s.readIndex(ctx); err != nil {
				return err
			}
		}
		if !s.group.HasDirectory() {
			return errNoDirectory()
		}
		state := s.group.State()
		setRevision(w, state.Revision())
		err = h(w, r, state)
		if refused := new(httpserve.Error); errors.As(err, &refused) && refused.Status == http.StatusNotFound && !s.inTouch() {
			return errOutOfTouch()
		}
		return err
	}
}

// inTouch reports whether this server has heard lately what its leader knows, so that
// what it does not have is not there (T4).
func (s *Server) inTouch() bool { return s.group.Leader().Known && s.group.Age() <= freshFor }

// ledRead is read for what the leader knows best: it is asked where it can be,
// and where it cannot, this server answers by the directory alone.
func (s *Server) ledRead(h func(http.ResponseWriter, *http.Request, *fsm.State) error, params ...string) httpserve.HandlerFunc {
	local := s.read(h, params...)
	return func(w http.ResponseWriter, r *http.Request) error {
		leader := s.group.Leader()
		if leader.Self || !leader.Known || leader.API == "" || r.Header.Get(proto.HeaderRelayed) != "" {
			return local(w, r)
		}
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		if err := s.relay(w, r.WithContext(ctx), leader); err != nil {
			return local(w, r)
		}
		return nil
	}
}

// readOf is a read by h where it is this group's, and relayed to the group whose it is
// elsewhere.
func (s *Server) readOf(whose ownerFunc, h httpserve.HandlerFunc) httpserve.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if o, err := whose(r, nil); err != nil {
			return err
		} else if o != s.own() {
			return s.relayBetween(w, r, o, nil)
		}
		return h(w, r)
	}
}

// parseQuery reads the query strictly: one that is not encoded as it should
// be, a parameter that is not known or is given twice is 400.
func parseQuery(r *http.Request, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is not encoded as it should be")
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			return nil, badRequest("unknown query parameter %q", name)
		}
		if len(values) > 1 {
			return nil, badRequest("query parameter %q is given twice", name)
		}
	}
	return query, nil
}

// flag reads a parameter that is on or off: ?name and ?name=1 are on.
func flag(query url.Values, name string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	switch v := query.Get(name); v {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return false, badRequest("query parameter %q is 1 or 0, not %q", name, v)
	}
}

// readIndex waits until this leader's State holds every acknowledged change.
func (s *Server) readIndex(ctx context.Context) error {
	err := s.group.ReadIndex(ctx)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errNoLeader() // no majority answered: somebody else may lead
	}
	return s.groupError(err)
}
