package controlplane

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	restoreTimeout = time.Minute
	maxBackup      = 4 << 30
)

// backup gives the directory as one stream, in the format of a snapshot: it carries
// its own length and checksums, and the tokens of the nodes. It holds every change
// that was acknowledged before it was asked for.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if leader := s.group.Leader(); !leader.Self {
		return s.relay(w, r, leader)
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	state := s.group.State()
	setRevision(w, state.Revision())
	w.Header().Set("Content-Type", "application/vnd.domicile.backup")
	w.Header().Set("Cache-Control", "no-store")
	if err := proto.WriteSnapshot(w, state); err != nil {
		panic(http.ErrAbortHandler) // half a backup must not look like a whole one
	}
	return nil
}

// restore makes a backup the directory of a group that was just begun; ?history
// names a history at least. ?lost takes the place of a backup that nobody has. It is not
// relayed: such a group is one server.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r, "history", "lost")
	if err != nil {
		return err
	}
	var history uint64
	if text := query.Get("history"); text != "" {
		if history, err = strconv.ParseUint(text, 10, 64); err != nil || history == 0 {
			return badRequest("history is a number from 1")
		}
	}
	backup, err := s.backupFor(w, r, query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restoreTimeout)
	defer cancel()
	defer context.AfterFunc(s.over, cancel)()
	if err := s.group.Restore(ctx, backup, history); err != nil {
		return s.groupError(err)
	}
	state := s.group.State()
	scope, _ := state.Scope()
	out := proto.Restored{Cluster: scope.Cluster, History: scope.History, Revision: state.Revision(), Tenants: state.CountTenants()}
	for range state.Nodes() {
		out.Nodes++
	}
	setRevision(w, state.Revision())
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// backupFor reads the backup that is restored. ?lost is an operator's word that the region's
// group of that name is gone with its directory, and that nobody has a backup: what is restored
// is that group's name with nothing in it, so that its nodes, the global group and the other
// regions take it for the same group, in a newer history. Tenants are adopted then. There is no
// such thing for the global group: with its directory the names are lost.
func (s *Server) backupFor(w http.ResponseWriter, r *http.Request, query url.Values) (*fsm.State, error) {
	body := http.MaxBytesReader(w, r.Body, maxBackup)
	if !query.Has("lost") {
		backup, err := proto.ReadSnapshot(body)
		if err != nil {
			return nil, badRequest("this is no backup of a directory, or not the whole of one: %v", err)
		}
		return backup, nil
	}
	if n, err := io.Copy(io.Discard, body); n > 0 || err != nil {
		return nil, badRequest("lost takes the place of a backup: send no body with it")
	}
	cluster, of, ok := strings.Cut(query.Get("lost"), "/")
	switch {
	case s.config.Region == "":
		return nil, badRequest("this server keeps the directory of the global group, with which the names of all tenants are lost: it is restored from a backup alone")
	case !ok || of != string(s.config.Region) || !fsm.ValidName(cluster):
		return nil, badRequest("lost is the name of this region's former group, <cluster>/%s: GET /_shard/regions/%s tells it as authority, and so does a node's 409", s.config.Region, s.config.Region)
	}
	empty := fsm.New()
	scope := fsm.Scope{Cluster: cluster, Region: s.config.Region, History: 1}
	empty.Apply(fsm.Entry{Revision: 1, Term: 1, At: s.now(), Cmd: &fsm.Bootstrap{Scope: scope, Settings: s.group.State().Settings()}})
	return empty, nil
}
