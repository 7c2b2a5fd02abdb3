package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Waits for jobs. A job goes on when the wait is over.
const (
	jobTimeout    = 30 * time.Second
	deleteTimeout = 5 * time.Second
)

// putTenant creates a tenant (T2): it takes the name, and waits until a node
// has made it.
func (s *Server) putTenant(w http.ResponseWriter, c *change) error {
	name := fsm.TenantName(c.PathValue("tenant"))
	var put proto.PutTenant
	if err := c.decode(&put); err != nil {
		return err
	}
	cmd, err := createCommand(name, &put)
	if err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !c.replayed {
		if err := s.weigh(c.Context(), cmd); err != nil {
			return err
		}
	}
	s.asked.begin(name, httpserve.RequestID(c.Context()))
	defer s.asked.end(name)
	result, err := s.propose(w, c, cmd)
	if err != nil {
		return err
	}
	if result.Job != 0 {
		if err := s.created(w, c, name, result.Job); err != nil {
			return err
		}
	}
	httpserve.WriteJSON(w, http.StatusCreated, describeCreated(s.group.State(), result))
	return nil
}

// createCommand checks the body of a create.
func createCommand(name fsm.TenantName, put *proto.PutTenant) (*fsm.CreateTenant, error) {
	cmd := &fsm.CreateTenant{Name: name, Region: put.Region, Node: put.Node, Buckets: put.Buckets,
		Pinned: put.Pinned, Schema: put.Schema}
	switch {
	case !fsm.ValidName(string(name)):
		return nil, badName("tenant", string(name))
	case put.Region != nil && *put.Region != "" && !fsm.ValidName(string(*put.Region)):
		return nil, badName("region", string(*put.Region))
	case put.Node != nil && !fsm.ValidName(string(*put.Node)):
		return nil, badName("node", string(*put.Node))
	case len(put.Schema) > fsm.MaxSchema:
		return nil, badRequest("the schema is longer than %d bytes; create the tenant, then run it there", fsm.MaxSchema)
	}
	switch put.Hash {
	case "":
	case "strcrc32":
		cmd.Hash = fsm.HashStrCRC32
	case "mpcrc32":
		cmd.Hash = fsm.HashMPCRC32
	default:
		return nil, badRequest("hash is strcrc32 or mpcrc32, not %q", put.Hash)
	}
	return cmd, nil
}

// created waits for a create's end. A refusal is answered as soon as it is
// recorded; undoing goes on behind it.
func (s *Server) created(w http.ResponseWriter, c *change, name fsm.TenantName, id fsm.JobID) error {
	ctx, cancel := context.WithTimeout(c.Context(), jobTimeout)
	defer cancel()
	job, revision, err := s.waitJob(ctx, id, func(j *fsm.Job) bool { return j.Ended != 0 || j.Refusal != nil })
	setRevision(w, revision)
	switch {
	case err != nil:
		e := httpserve.Errorf(proto.Status(proto.CodeCreatePending), proto.CodeCreatePending,
			"tenant %s is being created and its node has not answered yet; the work goes on, look again shortly", name)
		e.Fields = map[string]any{"tenant": name}
		return e
	case job.Refusal != nil:
		return refusal(job.Refusal)
	}
	return nil
}

// waitJob waits until done says so of a job, and gives the revision at which
// it does. A job that is not kept any more is one that ended.
func (s *Server) waitJob(ctx context.Context, id fsm.JobID, done func(*fsm.Job) bool) (*fsm.Job, fsm.Revision, error) {
	for {
		state := s.group.State()
		revision := state.Revision()
		job, ok := state.Job(id)
		switch {
		case ok && done(job):
			return job, revision, nil
		case !ok && revision >= fsm.Revision(id):
			return &fsm.Job{ID: id}, revision, nil
		}
		if err := s.group.WaitRevision(ctx, revision+1); err != nil {
			return nil, revision, fmt.Errorf("wait for job %d: %w", id, err)
		}
	}
}

func describeCreated(state *fsm.State, result fsm.Result) proto.TenantCreated {
	out := proto.TenantCreated{Tenant: result.Tenant.Name, Buckets: result.Tenant.Buckets}
	if p := result.Placed; p != nil {
		out.Node = p.Node
		if n, ok := state.Node(p.Node); ok {
			out.Region = n.Region
			out.Unreplicated = unreplicated(state, n)
		}
	}
	return out
}

// unreplicated says why a new unit on a node has no copy (C4).
func unreplicated(state *fsm.State, n *fsm.Node) string {
	if state.Settings().Replicas == 0 {
		return "no replicas are asked for (--replicas 0)"
	}
	for other := range state.Nodes() {
		if other.Name != n.Name && other.Region == n.Region {
			return "this version keeps no copies"
		}
	}
	if n.Region == "" {
		return "there is no other node in the unnamed region"
	}
	return "there is no other node in region " + string(n.Region)
}

// deleteTenant removes a tenant (T5). It is gone for clients once the job has
// begun, and gone altogether with 204.
func (s *Server) deleteTenant(w http.ResponseWriter, c *change) error {
	name := fsm.TenantName(c.PathValue("tenant"))
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !fsm.ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	s.asked.begin(name, httpserve.RequestID(c.Context()))
	defer s.asked.end(name)
	result, err := s.propose(w, c, &fsm.DeleteTenant{Name: name})
	if err != nil {
		return err
	}
	if result.Job != 0 {
		ctx, cancel := context.WithTimeout(c.Context(), deleteTimeout)
		defer cancel()
		_, revision, err := s.waitJob(ctx, result.Job, func(j *fsm.Job) bool { return j.Ended != 0 })
		setRevision(w, revision)
		if err != nil {
			return s.deletePending(name, result.Job)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) deletePending(name fsm.TenantName, id fsm.JobID) error {
	why := "its node has not answered yet"
	if job, ok := s.group.State().Job(id); ok && job.Problem != "" {
		why = job.Problem
	}
	e := httpserve.Errorf(proto.Status(proto.CodeDeletePending), proto.CodeDeletePending,
		"tenant %s takes no more requests and is being removed: %s; the work goes on, ask again shortly", name, why)
	e.Fields = map[string]any{"tenant": name}
	return e
}

// putPin pins a tenant, deletePin lets it go (T7).
func (s *Server) putPin(w http.ResponseWriter, c *change) error    { return s.setPin(w, c, true) }
func (s *Server) deletePin(w http.ResponseWriter, c *change) error { return s.setPin(w, c, false) }

func (s *Server) setPin(w http.ResponseWriter, c *change, pinned bool) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	name := fsm.TenantName(c.PathValue("tenant"))
	if !fsm.ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	if _, err := s.propose(w, c, &fsm.SetPin{Tenant: name, Pinned: pinned}); err != nil {
		return err
	}
	httpserve.WriteJSON(w, http.StatusOK, proto.Pin{Tenant: name, Pinned: pinned})
	return nil
}
