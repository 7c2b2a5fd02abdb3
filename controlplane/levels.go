package controlplane

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"domicile/controlplane/global"
	"domicile/controlplane/group"
	"domicile/controlplane/stream"
	"domicile/fsm"
	"domicile/proto"
)

const (
	// globalFile, in the data folder, is the cache of the copy of the global directory.
	globalFile = "global"
	// bindWait bounds the wait until a region's own directory says which global group it
	// belongs to. It is shorter than a stream's silence may be.
	bindWait = 3 * time.Second
)

// openGlobal makes a region's copy of the global directory, which Run keeps.
func (s *Server) openGlobal() {
	if s.config.Region == "" {
		return
	}
	s.globalStream = stream.New(stream.Config{Logger: s.logger.Named("global"), Age: func() time.Duration { return s.global.Age() }})
	s.global = global.New(global.Config{
		URLs: s.config.Global, Token: func() string { return *s.token.Load() }, HTTP: s.peers,
		Path: filepath.Join(s.config.DataDir, globalFile), Logger: s.logger.Named("global"),
		Started: s.awaitDirectory, Bound: s.belongsTo, Bind: s.bindTo, Feed: &globalFeed{stream: s.globalStream},
	})
}

// globalFeed streams the copy of the global directory on.
type globalFeed struct{ stream *stream.Hub }

func (f *globalFeed) Publish(prev fsm.Revision, events []fsm.Event, d *global.Directory) {
	f.stream.Publish(prev, events, d)
}

func (f *globalFeed) Reset(d *global.Directory) { f.stream.Reset(d) }

// awaitDirectory returns once this server has its group's directory.
func (s *Server) awaitDirectory(ctx context.Context) error {
	tick := time.NewTicker(leaderEvery)
	defer tick.Stop()
	for !s.group.HasDirectory() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// belongsTo gives the global group that this region belongs to, as its directory says.
func (s *Server) belongsTo() (proto.DirectoryName, bool) {
	up, ok := s.group.State().Upstream()
	return proto.DirectoryName{Authority: up.Authority, History: up.History}, ok
}

// bindTo has it recorded that this region belongs to a global group: by the leader, for
// whose entry the others wait.
func (s *Server) bindTo(ctx context.Context, to proto.DirectoryName) error {
	ctx, cancel := context.WithTimeout(ctx, bindWait)
	defer cancel()
	if s.group.Leader().Self {
		result, _, err := s.group.Propose(ctx, group.Proposal{Cmd: &fsm.BindGlobal{Authority: to.Authority, History: to.History}})
		switch {
		case err != nil:
			return err
		case result.Refusal != nil:
			return errors.New(result.Refusal.Text)
		}
		s.logger.Info("this region belongs to a global group", "authority", to.Authority, "history", to.History)
		return nil
	}
	for {
		state := s.group.State()
		if up, ok := state.Upstream(); ok && up.Authority == to.Authority && up.History >= to.History {
			return nil
		}
		if err := s.group.WaitRevision(ctx, state.Revision()+1); err != nil {
			return errors.New("the leader of this region's group has not recorded yet which global group the region belongs to")
		}
	}
}

// globalCopy is a region's copy of the global directory; nil while it has none, and on a
// server of the global group.
func (s *Server) globalCopy() *global.Directory {
	if s.global == nil {
		return nil
	}
	return s.global.Directory()
}

// describeGlobal tells of the copy, nil on a server of the global group.
func (s *Server) describeGlobal() *proto.GroupCopy {
	if s.global == nil {
		return nil
	}
	bound, _ := s.belongsTo()
	out := &proto.GroupCopy{Authority: bound.Authority, History: bound.History, Servers: s.config.Global, Problem: s.global.Problem()}
	if d := s.global.Directory(); d != nil {
		out.Revision, out.AgeMS = d.Revision(), s.global.Age().Milliseconds()
	}
	return out
}

// subscribe serves the directory's stream, or that of the copy of the global directory.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) error {
	hub := s.stream
	switch which := r.URL.Query().Get(proto.DirectoryParam); {
	case which != "" && which != proto.GlobalScope:
		return badRequest("%s is %s, or left out for the directory of this server's group; it is not %q", proto.DirectoryParam, proto.GlobalScope, which)
	case which == proto.GlobalScope && s.global != nil:
		hub = s.globalStream // says itself where there is no copy
	case !s.group.HasDirectory():
		return errNoDirectory()
	}
	s.streams.Add(1)
	defer s.streams.Add(-1)
	hub.ServeHTTP(w, r)
	return nil
}

// ownName names the group's directory; false while there is none.
func (s *Server) ownName() (proto.DirectoryName, bool) {
	scope, ok := s.group.State().Scope()
	return proto.DirectoryName{Authority: scope.Authority(), History: scope.History}, ok
}
