package controlplane

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// moveParams are the query parameters of the list.
var moveParams = []string{"tenant", "node", "active", "kind", "after", "limit", "region"}

// moveQuery says which moves are asked for.
type moveQuery struct {
	tenant fsm.TenantName
	node   fsm.NodeName // from it or to it
	active bool
	kind   fsm.JobKind
	after  fsm.JobID // older than this one
	limit  int
}

func parseMoveQuery(values url.Values) (moveQuery, error) {
	q := moveQuery{tenant: fsm.TenantName(values.Get("tenant")), node: fsm.NodeName(values.Get("node")),
		kind: fsm.JobMove, after: math.MaxUint64, limit: defaultPage}
	if q.tenant != "" && !fsm.ValidName(string(q.tenant)) {
		return q, badName("tenant", string(q.tenant))
	}
	if q.node != "" && !fsm.ValidName(string(q.node)) {
		return q, badName("node", string(q.node))
	}
	switch kind := values.Get("kind"); kind {
	case "", proto.KindMove:
	case proto.KindRebalance:
		q.kind = fsm.JobRebalance
	default:
		return q, badRequest("kind is %s or %s, not %q", proto.KindMove, proto.KindRebalance, kind)
	}
	if values.Has("after") {
		id, ok := moveID(values.Get("after"))
		if !ok {
			return q, badRequest("after is the number of a move, not %q", values.Get("after"))
		}
		q.after = id
	}
	if values.Has("limit") {
		n, err := strconv.ParseUint(values.Get("limit"), 10, 31)
		if err != nil || n == 0 || n > maxPage {
			return q, badRequest("limit is a number from 1 to %d", maxPage)
		}
		q.limit = int(n)
	}
	var err error
	q.active, err = flag(values, "active")
	return q, err
}

// takes reports whether a job is one of those asked for.
func (q *moveQuery) takes(j *fsm.Job) bool {
	if j.Kind != q.kind && (q.kind != fsm.JobMove || !isBetween(j)) || q.active && j.Ended != 0 || q.tenant != "" && j.Tenant != q.tenant {
		return false
	}
	return q.node == "" || j.Source == q.node || j.Other != nil && j.Other.Node == q.node ||
		(j.Kind == fsm.JobMove || j.Kind == fsm.JobReceive) && j.Targets[0].Node == q.node
}

// isBetween reports whether a job is a move between directories, or a region's part of one.
func isBetween(j *fsm.Job) bool {
	return j.Kind == fsm.JobRelocate || j.Kind == fsm.JobDepart || j.Kind == fsm.JobReceive
}

// moveID reads the number of a move.
func moveID(text string) (fsm.JobID, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return fsm.JobID(id), err == nil && id > 0
}

// listMoves gives a page of moves, the newest first (M7).
func (s *Server) listMoves(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	values := r.URL.Query()
	q, err := parseMoveQuery(values)
	if err != nil {
		return err
	}
	page := []proto.Move{}
	if ofNowhere(r, state) {
		httpserve.WriteJSON(w, http.StatusOK, page)
		return nil
	}
	turns := turnsOf(state)
	for j := range state.JobsNewest(q.after) {
		if !q.takes(j) || j.Task != 0 && s.config.Region == "" { // the global group's own part of a move that is in the list
			continue
		}
		if len(page) == q.limit {
			values.Set("after", page[len(page)-1].ID.String())
			values.Del("consistent")
			w.Header().Set("Link", "</_shard/moves?"+values.Encode()+`>; rel="next"`)
			break
		}
		page = append(page, s.describe(state, j, turns))
	}
	httpserve.WriteJSON(w, http.StatusOK, page)
	return nil
}

// getMove tells of one move, or of a rebalance.
func (s *Server) getMove(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	id, ok := moveID(r.PathValue("move"))
	job, there := state.Job(id)
	if !ok || !there || ofNowhere(r, state) || job.Kind != fsm.JobMove && job.Kind != fsm.JobRebalance && !isBetween(job) {
		return unknownMove(r.PathValue("move"))
	}
	httpserve.WriteJSON(w, http.StatusOK, s.describeMove(state, job))
	return nil
}

func (s *Server) describeMove(state *fsm.State, j *fsm.Job) proto.Move {
	return s.describe(state, j, turnsOf(state))
}

func (s *Server) describe(state *fsm.State, j *fsm.Job, turns map[fsm.NodeName]int) proto.Move {
	out := proto.Move{ID: j.ID, Kind: j.Kind.String(), Started: timeOf(j.Started), Cause: j.Cause.String(), Group: j.Group, Problem: j.Problem}
	if j.Ended != 0 {
		ended := timeOf(j.Ended)
		out.Ended, out.Outcome = &ended, outcomeOf(j)
		if out.Problem == "" && j.Refusal != nil {
			out.Problem = j.Refusal.Text
		}
	}
	if j.Kind == fsm.JobRebalance {
		s.describeRebalance(&out, state, j)
		return out
	}
	out.Kind = proto.KindMove
	switch j.Kind {
	case fsm.JobRelocate:
		s.describeRelocation(&out, j)
		return out
	case fsm.JobDepart, fsm.JobReceive:
		s.describePart(&out, j)
		return out
	}
	t := j.Targets[0]
	out.Tenant, out.From, out.To, out.PauseMS = j.Tenant, j.Source, t.Node, pauseOf(j)
	if n, ok := state.Node(t.Node); ok {
		out.Region = &n.Region
	}
	out.Bytes, out.BytesTotal = j.Bytes, j.Bytes
	out.Step = stepOf(j)
	if j.Ended == 0 {
		s.describeProgress(&out, state, j, turns)
	}
	return out
}

// describeProgress tells how far a running move is, as far as this server knows: the
// leader, which the target tells.
func (s *Server) describeProgress(out *proto.Move, state *fsm.State, j *fsm.Job, turns map[fsm.NodeName]int) {
	t := j.Targets[0]
	if j.Step == fsm.StepQueue {
		out.Waiting = whyWaiting(state, j, turns)
		return
	}
	if out.Problem == "" && j.Step == fsm.StepCopy {
		out.Problem = s.known.why(t.Unit)
	}
	p, ok := s.moveProgress(j.ID)
	if !ok || j.Step == fsm.StepClean && j.Bytes > 0 {
		return
	}
	out.Bytes, out.BytesTotal = p.Bytes, p.Total
	if j.Step != fsm.StepCopy {
		return
	}
	if p.Total > 0 && p.Bytes >= p.Total {
		out.Step = proto.MoveCatchingUp
		return
	}
	out.Rate = uint64(p.Rate)
	if left, ok := p.left(); ok {
		end := p.At.Add(left).UTC()
		out.ExpectedEnd = &end
	}
}

// stepOf names a move's step to people.
func stepOf(j *fsm.Job) proto.MoveStep {
	switch j.Step {
	case fsm.StepQueue, fsm.StepCopy:
		return proto.MoveCopying
	case fsm.StepRelease, fsm.StepThaw:
		return proto.MoveFrozen
	case fsm.StepSent:
		return proto.MoveReleased
	case fsm.StepPromote:
		return proto.MoveFlipped
	case fsm.StepClean, fsm.StepRemove:
		return proto.MoveCleaning
	case fsm.StepUndo:
		return proto.MoveUndoing
	}
	return proto.MoveDone
}

// outcomeOf tells what became of a job that has ended.
func outcomeOf(j *fsm.Job) proto.MoveOutcome {
	switch {
	case j.Refusal == nil:
		return proto.MoveWasDone
	case j.Refusal.Code == fsm.CodeCancelled:
		return proto.MoveWasCancelled
	case j.Refusal.Code == fsm.CodeDeleted:
		return proto.MoveHasFailed
	}
	return proto.MoveWasUndone
}

// turnsOf counts, by node, the moves that copy to or from it.
func turnsOf(state *fsm.State) map[fsm.NodeName]int {
	turns := make(map[fsm.NodeName]int)
	for j := range state.RunningJobs() {
		if j.Kind == fsm.JobMove && j.Step != fsm.StepQueue && j.Step != fsm.StepClean {
			turns[j.Source]++
			turns[j.Targets[0].Node]++
		}
	}
	return turns
}

// whyWaiting says why a move has not begun to copy.
func whyWaiting(state *fsm.State, j *fsm.Job, turns map[fsm.NodeName]int) string {
	limit := movesPerNode(state.Settings())
	for _, n := range []fsm.NodeName{j.Source, j.Targets[0].Node} {
		if turns[n] >= int(limit) {
			return fmt.Sprintf("for its turn: node %s takes part in %d moves, and may in %d at once (moves_per_node)", n, turns[n], limit)
		}
	}
	if p, ok := state.Placed(j.Targets[0].Unit); ok && (p.State == fsm.UnitMoving || !p.Promoted()) {
		return "the tenant is being given to another node; the move goes on from there"
	}
	return "it is about to begin"
}

// movesPerNode is the limit that holds.
func movesPerNode(s fsm.Settings) uint32 {
	if s.MovesPerNode != 0 {
		return s.MovesPerNode
	}
	return fsm.DefaultMovesPerNode
}

func timeOf(ms fsm.Millis) time.Time { return time.UnixMilli(int64(ms)).UTC() }
