package proto

import (
	"net/http"
	"slices"

	"domicile/fsm"
)

// Code is the `code` of an error answer. The codes of refused commands are
// fsm's; those below are of what happens around a command. Texts are on the
// wire and never change.
type Code = fsm.Code

// Codes that no command gives, and CodeBadRequest, which both give.
const (
	CodeBadRequest           Code = fsm.CodeBadRequest      // 400
	CodeUnauthorized         Code = "unauthorized"          // 401
	CodeUnknownRoute         Code = "unknown_route"         // 404 no such path
	CodeMethodNotAllowed     Code = "method_not_allowed"    // 405
	CodeNotLeader            Code = "not_leader"            // 409 relayed already, and this server does not lead
	CodeNotDraining          Code = "not_draining"          // 404 no drain of the node is under way
	CodeGroupConflict        Code = "group_conflict"        // 409 the group cannot be changed so
	CodeBodyTooLarge         Code = "body_too_large"        // 413
	CodeInternal             Code = "internal"              // 500
	CodeNoLeader             Code = "no_leader"             // 503 nothing happened
	CodeDirectoryUnavailable Code = "directory_unavailable" // 503 this server has no directory yet
	CodeOutcomeUnknown       Code = "outcome_unknown"       // 503 it may have happened
	CodeCreatePending        Code = "create_pending"        // 503 the job goes on
	CodeDeletePending        Code = "delete_pending"        // 503 gone for clients; its removal from the node goes on
	CodeOverloaded           Code = "overloaded"            // 503 nothing happened
	CodeNotReady             Code = "not_ready"             // 503 of /_ready
	CodeGroupUnsettled       Code = "group_unsettled"       // 503 the group cannot be changed just now
	CodeNodeElsewhere        Code = "node_elsewhere"        // 409 the node belongs to another group
	CodeGlobalUnreachable    Code = "global_unreachable"    // 503 nothing happened
)

// statuses maps each code of the admin API to its HTTP status (spec §2.3).
var statuses = map[Code]int{
	fsm.CodeBadRequest:        http.StatusBadRequest,
	fsm.CodeNodeUnknown:       http.StatusNotFound,
	fsm.CodeTenantUnknown:     http.StatusNotFound,
	fsm.CodeRegionUnknown:     http.StatusNotFound,
	fsm.CodeStandbyUnknown:    http.StatusNotFound,
	fsm.CodeMemberUnknown:     http.StatusNotFound,
	fsm.CodeTenantExists:      http.StatusConflict,
	fsm.CodeAddressTaken:      http.StatusConflict,
	fsm.CodeNodeInUse:         http.StatusConflict,
	fsm.CodeRegionInUse:       http.StatusConflict,
	fsm.CodeRegionMismatch:    http.StatusConflict,
	fsm.CodeNodeIsStandby:     http.StatusConflict,
	fsm.CodePairConflict:      http.StatusConflict,
	fsm.CodeNoNode:            http.StatusConflict,
	fsm.CodeBusy:              http.StatusConflict,
	fsm.CodeRegionElsewhere:   http.StatusConflict,
	fsm.CodeNotOwner:          http.StatusConflict,
	fsm.CodeTaskOver:          http.StatusConflict,
	fsm.CodeTaskForgone:       http.StatusConflict,
	fsm.CodeTaskUnknown:       http.StatusNotFound,
	fsm.CodeRegionUnreachable: http.StatusServiceUnavailable,
	fsm.CodeServerTooOld:      http.StatusConflict,
	fsm.CodeStale:             http.StatusConflict,
	fsm.CodeScope:             http.StatusConflict,
	fsm.CodeDeleted:           http.StatusConflict,
	fsm.CodeKeyReused:         http.StatusUnprocessableEntity,
	fsm.CodeSchemaRefused:     http.StatusBadRequest,
	fsm.CodeNoCopy:            http.StatusConflict,
	fsm.CodeNodeLeased:        http.StatusConflict,
	fsm.CodeNodeUnleased:      http.StatusConflict,
	fsm.CodeNodeLost:          http.StatusConflict,
	fsm.CodeAlreadyThere:      http.StatusConflict,
	fsm.CodePinned:            http.StatusConflict,
	fsm.CodeNodeDraining:      http.StatusConflict,
	fsm.CodeNodeFull:          http.StatusConflict,
	fsm.CodeNoRoom:            http.StatusConflict,
	fsm.CodeMoveUnknown:       http.StatusNotFound,
	fsm.CodeMoveEnded:         http.StatusConflict,
	fsm.CodeMoveReleased:      http.StatusConflict,
	fsm.CodeCancelled:         http.StatusConflict,
	fsm.CodeMoveUndone:        http.StatusBadGateway,
	fsm.CodeHandingOver:       http.StatusServiceUnavailable,
	fsm.CodeRegionNotReady:    http.StatusConflict,
	fsm.CodeRecovering:        http.StatusServiceUnavailable,
	fsm.CodeNodeRefused:       http.StatusBadGateway,
	fsm.CodeNodeUnreachable:   http.StatusBadGateway,
	fsm.CodeReaderUnknown:     http.StatusNotFound,

	CodeUnauthorized:         http.StatusUnauthorized,
	CodeUnknownRoute:         http.StatusNotFound,
	CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	CodeNotLeader:            http.StatusConflict,
	CodeNotDraining:          http.StatusNotFound,
	CodeGroupConflict:        http.StatusConflict,
	CodeNotReady:             http.StatusServiceUnavailable,
	CodeGroupUnsettled:       http.StatusServiceUnavailable,
	CodeBodyTooLarge:         http.StatusRequestEntityTooLarge,
	CodeInternal:             http.StatusInternalServerError,
	CodeNoLeader:             http.StatusServiceUnavailable,
	CodeDirectoryUnavailable: http.StatusServiceUnavailable,
	CodeOutcomeUnknown:       http.StatusServiceUnavailable,
	CodeCreatePending:        http.StatusServiceUnavailable,
	CodeDeletePending:        http.StatusServiceUnavailable,
	CodeOverloaded:           http.StatusServiceUnavailable,
	CodeNodeElsewhere:        http.StatusConflict,
	CodeGlobalUnreachable:    http.StatusServiceUnavailable,
}

// Status gives the HTTP status of a code. A code that this binary does not
// know (a newer server's) is 500.
func Status(c Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Codes lists every code of the admin API, sorted; the OpenAPI file lists the
// same ones.
func Codes() []Code {
	all := make([]Code, 0, len(statuses))
	for c := range statuses {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}
