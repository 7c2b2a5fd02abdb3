package fsm

// Code says why a command was refused, in the words of the admin API (the
// `code` of an error; proto maps each to a status).
type Code string

// Codes of refusals. The texts are on the wire and never change.
const (
	CodeBadRequest        Code = "bad_request"         // 400
	CodeNodeUnknown       Code = "unknown_node"        // 404
	CodeTenantUnknown     Code = "unknown_tenant"      // 404
	CodeRegionUnknown     Code = "unknown_region"      // 404
	CodeStandbyUnknown    Code = "unknown_standby"     // 404
	CodeMemberUnknown     Code = "unknown_server"      // 404
	CodeTenantExists      Code = "tenant_exists"       // 409
	CodeAddressTaken      Code = "address_taken"       // 409 another node is recorded at that address, or is that process
	CodeNodeInUse         Code = "node_in_use"         // 409 N3, N6
	CodeRegionInUse       Code = "region_in_use"       // 409
	CodeRegionMismatch    Code = "region_mismatch"     // 409 T2, C5
	CodeNodeIsStandby     Code = "node_is_standby"     // 409
	CodePairConflict      Code = "pair_conflict"       // 409
	CodeNoNode            Code = "no_node"             // 409 nothing to place on
	CodeBusy              Code = "tenant_busy"         // 409 other work on it is under way
	CodeRegionElsewhere   Code = "region_elsewhere"    // 409 the region keeps its own directory (G2)
	CodeServerTooOld      Code = "server_too_old"      // 409 a member that does not know the directory's commands
	CodeStale             Code = "stale_decision"      // decided in another term or at another step
	CodeKeyReused         Code = "key_reused"          // 422
	CodeScope             Code = "wrong_scope"         // bootstrap over a directory that has one
	CodeNodeRefused       Code = "node_refused"        // 502 a node answered a job's step with an error
	CodeNodeUnreachable   Code = "node_unreachable"    // 502 a node did not answer
	CodeSchemaRefused     Code = "schema_refused"      // 400 the schema's SQL failed on the node
	CodeDeleted           Code = "deleted"             // 409 the create was undone by a delete
	CodeNoCopy            Code = "nothing_to_promote"  // 409 no unit of the node has a copy that may take over (L6)
	CodeNodeLeased        Code = "node_leased"         // 409 the node writes only under a lease, and the group gives none
	CodeNodeUnleased      Code = "node_unleased"       // 409 the node takes no lease (L5)
	CodeNodeLost          Code = "node_lost"           // 409 the node was failed over and has not answered since
	CodeAlreadyThere      Code = "already_there"       // 409 the tenant is where it was to go (M1), or where it was to be read (C8)
	CodeReaderUnknown     Code = "unknown_reader"      // 404 no read replica was asked for in that region
	CodePinned            Code = "pinned"              // 409 T7
	CodeNodeDraining      Code = "node_draining"       // 409 nothing is placed on a node that is drained
	CodeNodeFull          Code = "node_full"           // 409 the node's disk has no room for the tenant
	CodeNoRoom            Code = "no_room"             // 409 the other nodes cannot hold what is to leave (N7)
	CodeMoveUnknown       Code = "unknown_move"        // 404
	CodeMoveEnded         Code = "move_ended"          // 409
	CodeMoveReleased      Code = "move_released"       // 409 too late to cancel (M7)
	CodeCancelled         Code = "cancelled"           // a move that was cancelled
	CodeMoveUndone        Code = "move_undone"         // 502 a move was undone, as a node failed
	CodeNotOwner          Code = "not_owner"           // 409 another group changes that (G4)
	CodeRegionUnreachable Code = "region_unreachable"  // 503 of changes; 502 at a proxy (G9)
	CodeTaskOver          Code = "task_over"           // 409 the job of the global group has ended
	CodeTaskForgone       Code = "task_forgone"        // 409 it was given up
	CodeTaskUnknown       Code = "unknown_task"        // 404
	CodeHandingOver       Code = "region_handing_over" // 503 the region is on its way to another directory (G2)
	CodeRegionNotReady    Code = "region_not_ready"    // 409 the region cannot be handed over as it is (G2)
	CodeRecovering        Code = "recovering"          // 503 the directory is being recovered (architecture §3.8.3)
)

// Refusal is a command's or a job's negative answer. It has no effect (I7).
type Refusal struct {
	Code Code
	Text string // what happened and what to do
	// Fields help the reader: "node", "tenant", "region" …
	Fields map[string]string
}

// Error makes a Refusal an error.
func (r *Refusal) Error() string { return r.Text }

// Result is Apply's answer to a command. Exactly one of its shapes is used:
// a refusal, or what the command yields.
type Result struct {
	Refusal *Refusal
	Created bool    // PutNode, PutRegion, SetReader: it was not there before
	Node    *Node   // PutNode, SetDrain
	Tenant  *Tenant // CreateTenant, SetPin, SetReader, DeleteTenant of one with a home: as it was
	Placed  *Placed // CreateTenant, SetReader of a whole tenant: its unit
	// Job is what to wait for, 0 for nothing. CreateTenant: its outcome, a
	// Refusal or none, is the answer. DeleteTenant: the tenant is gone when it
	// has ended, whatever its Refusal.
	Job   JobID      // also BeginHandover, BeginMove, BeginRebalance
	Flips []Flip     // FailOver, EndRelease
	Left  []UnitName // FailOver, EndRelease: units that did not flip; they stay
	Added []CopyRef  // AddCopies
	Task  *Task      // BeginTask, TellTask, ForgoTask
	// Replayed: the entry's Key was known, this is its first answer.
	Replayed bool
}
