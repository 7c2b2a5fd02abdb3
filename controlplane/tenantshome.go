package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Creates and deletes of tenants whose region keeps its own directory (G5): the global
// group has the name, and a job that has the region do the rest.

// mayBeMade asks the region of a tenant to be before its name is taken (G9): what cannot
// be done now changes nothing.
func (s *Server) mayBeMade(c *change, name fsm.TenantName, home fsm.RegionName) error {
	if _, taken := s.group.State().Tenant(name); taken {
		return nil // Apply says why it cannot be
	}
	return s.reaches(c, home, name)
}

// reaches asks a region's leader something small. Its error is to be answered, and says
// that nothing was done.
func (s *Server) reaches(c *change, region fsm.RegionName, name fsm.TenantName) error {
	o := owner{region: region}
	resp, _, err := s.question(c.Context(), o, c.Request, "/_shard/tasks?consistent=1&tenant="+url.QueryEscape(string(name)))
	switch {
	case err != nil:
		return unreachable(o, err)
	case resp.StatusCode == http.StatusUnauthorized:
		return tokenElsewhere(o)
	case resp.StatusCode != http.StatusOK:
		return unreachable(o, errLeaderless)
	}
	return nil
}

// createdElsewhere answers a create once the tenant can be written where it lives.
func (s *Server) createdElsewhere(w http.ResponseWriter, c *change, result fsm.Result) error {
	t := result.Tenant
	if told, ok := s.told.get(fsm.JobID(t.Claim), t.Home); ok && told.task.Done && told.task.Unit != nil {
		w.Header().Set(proto.HeaderAlso, told.at.String())
		u := told.task.Unit
		if !u.Writable {
			e := httpserve.Errorf(proto.Status(proto.CodeCreatePending), proto.CodeCreatePending,
				"tenant %s was created, and its node %s has not been given the lease yet under which it writes; ask again shortly", t.Name, u.Node)
			e.Fields = map[string]any{"tenant": t.Name, "node": u.Node, "region": t.Home}
			return e
		}
		httpserve.WriteJSON(w, http.StatusCreated, proto.TenantCreated{Tenant: t.Name, Node: u.Node, Region: t.Home, ReplicaOn: u.ReplicaOn, Unreplicated: u.Unreplicated})
		return nil
	}
	// Another leader heard the region, or it was long ago.
	now, err := s.tenantAt(c, t.Home, t.Name)
	if err != nil {
		return err
	}
	out := proto.TenantCreated{Tenant: t.Name, Node: now.Node, Region: t.Home, Unreplicated: now.Unreplicated}
	if out.Unreplicated == "" {
		out.ReplicaOn = now.Replica
	}
	httpserve.WriteJSON(w, http.StatusCreated, out)
	return nil
}

// tenantAt asks a region where it has a tenant.
func (s *Server) tenantAt(c *change, region fsm.RegionName, name fsm.TenantName) (*proto.Tenant, error) {
	o := owner{region: region}
	resp, body, err := s.question(c.Context(), o, c.Request, "/_shard/tenants/"+url.PathEscape(string(name))+"?consistent=1")
	var t proto.Tenant
	if err == nil && (resp.StatusCode != http.StatusOK || json.Unmarshal(body, &t) != nil) {
		err = errors.New("answered " + resp.Status)
	}
	if err != nil {
		// region_unreachable would say that nothing was done.
		e := httpserve.Errorf(proto.Status(proto.CodeCreatePending), proto.CodeCreatePending,
			"tenant %s was created in region %s, which is not reached now to tell where it is; ask again with the same Idempotency-Key", name, region)
		e.Cause, e.Fields = err, map[string]any{"tenant": name, "region": region}
		return nil, e
	}
	return &t, nil
}

// deleteTries bounds how often a delete begins anew that met the end of other work on the
// tenant: its create was being undone, and was not.
const deleteTries = 3

// deleteElsewhere deletes a tenant that lives in another directory.
func (s *Server) deleteElsewhere(w http.ResponseWriter, c *change, name fsm.TenantName) error {
	var last *fsm.Refusal
	for range deleteTries {
		result, err := s.beginDeleteElsewhere(w, c, name)
		if err != nil {
			return err
		}
		job := &fsm.Job{}
		if result.Job != 0 {
			if job, err = s.deletedElsewhere(w, c, name, result.Job); err != nil {
				return err
			}
		}
		t, there := s.group.State().Tenant(name)
		if !there || result.Tenant == nil || t.Claim != result.Tenant.Claim {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		if job.Kind == fsm.JobDelete && job.Refusal != nil {
			return refusal(job.Refusal)
		}
		last = job.Refusal
		c.key = "" // its answer is that of what has ended: this asks anew
	}
	if last == nil {
		last = &fsm.Refusal{Code: fsm.CodeBusy, Text: "other work on tenant " + string(name) + " is under way; try again when it is done"}
	}
	return refusal(last)
}

// beginDeleteElsewhere asks the tenant's region first, as a create does.
func (s *Server) beginDeleteElsewhere(w http.ResponseWriter, c *change, name fsm.TenantName) (fsm.Result, error) {
	if t, ok := s.group.State().Tenant(name); ok && t.HasHome && t.Job == 0 && !c.replayed {
		if err := s.reaches(c, t.Home, name); err != nil {
			return fsm.Result{}, err
		}
	}
	return s.propose(w, c, &fsm.DeleteTenant{Name: name})
}

// deletedElsewhere waits for the end of the job at which the tenant is gone, or not.
func (s *Server) deletedElsewhere(w http.ResponseWriter, c *change, name fsm.TenantName, id fsm.JobID) (*fsm.Job, error) {
	ctx, cancel := context.WithTimeout(c.Context(), deleteTimeout)
	defer cancel()
	job, revision, err := s.waitJob(ctx, id, func(j *fsm.Job) bool { return j.Ended != 0 })
	setRevision(w, revision)
	if err != nil {
		return nil, s.deletePending(name, id)
	}
	if told, ok := s.told.get(id, job.Home); ok && told.task.Done {
		w.Header().Set(proto.HeaderAlso, told.at.String())
	}
	return job, nil
}
