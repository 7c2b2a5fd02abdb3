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
	namedTimeout  = 10 * time.Second // of a new tenant's node, until it may write it
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
	if from := fsm.RegionName(c.Header.Get(proto.HeaderOriginRegion)); c.Header.Get(proto.HeaderRelayedBetween) != "" && fsm.ValidName(string(from)) {
		cmd.Origin = &from // what a client says of itself counts for nothing
	}
	home, homed := s.group.State().HomeFor(cmd)
	switch {
	case c.replayed:
	case homed:
		err = s.mayBeMade(c, name, home)
	default:
		err = s.weigh(c.Context(), cmd)
	}
	if err != nil {
		return err
	}
	s.asked.begin(name, httpserve.RequestID(c.Context()))
	defer s.asked.end(name)
	result, err := s.propose(w, c, cmd)
	if err == nil && result.Job != 0 {
		err = s.created(w, c, name, result.Job)
	}
	switch {
	case err != nil && put.Region != nil:
		return s.ofAnotherRegion(w, c, wanted{tenant: name, node: put.Node, region: put.Region}, err)
	case err != nil:
		return err
	}
	if result.Tenant.HasHome {
		return s.createdElsewhere(w, c, result)
	}
	if err := s.writable(c, name); err != nil {
		return err
	}
	out := describeCreated(s.group.State(), result)
	if out.ReplicaOn != "" && sameZone(s.group.State(), fsm.UnitName(name), out.ReplicaOn) && !result.Replayed {
		// Accepted all the same (C3): a zone that is lost takes both with it.
		s.logger.Warn("a tenant's copy is in its primary's own zone, as no node in another is free", "tenant", name,
			"node", out.Node, "replica", out.ReplicaOn)
	}
	httpserve.WriteJSON(w, http.StatusCreated, out)
	return nil
}

// writable waits until a new tenant's node may write it: it was granted a lease
// that names it.
func (s *Server) writable(c *change, name fsm.TenantName) error {
	state := s.group.State()
	ctx, cancel := context.WithTimeout(c.Context(), namedTimeout)
	defer cancel()
	for u := range state.TenantUnits(name) {
		if err := s.keeper.AwaitNamed(ctx, u.Node, state.Revision()); err != nil {
			e := httpserve.Errorf(proto.Status(proto.CodeCreatePending), proto.CodeCreatePending,
				"tenant %s was created, and its node %s has not been given the lease yet under which it writes; ask again shortly", name, u.Node)
			e.Fields, e.Cause = map[string]any{"tenant": name, "node": u.Node}, err
			return e
		}
	}
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
	job, revision, err := s.waitJob(ctx, id, func(j *fsm.Job) bool {
		return j.Ended != 0 || j.Refusal != nil || j.Home != "" && j.Problem != ""
	})
	setRevision(w, revision)
	switch {
	case err == nil && job.Ended == 0 && job.Refusal == nil:
		e := httpserve.Errorf(proto.Status(proto.CodeCreatePending), proto.CodeCreatePending,
			"tenant %s is being created: %s; the name is kept and the work goes on, look again shortly", name, job.Problem)
		e.Fields = map[string]any{"tenant": name, "region": job.Home}
		return e
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

// describeCreated tells where a new tenant and its copy are. A replayed answer
// tells of the tenant as it is now, where it is still there.
func describeCreated(state *fsm.State, result fsm.Result) proto.TenantCreated {
	out := proto.TenantCreated{Tenant: result.Tenant.Name, Buckets: result.Tenant.Buckets}
	p := result.Placed
	if p == nil {
		return out
	}
	if now, ok := state.Placed(p.Unit); ok && now.ID == p.ID {
		p = now
	}
	out.Node = p.Node
	if n, ok := state.Node(p.Node); ok {
		out.Region = n.Region
	}
	if out.ReplicaOn = replicaOf(p); out.ReplicaOn == "" {
		out.Unreplicated = state.Unreplicated(p)
	}
	return out
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
	if t, ok := s.group.State().Tenant(name); ok && t.HasHome {
		return s.deleteElsewhere(w, c, name)
	}
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
