package node

import (
	"context"
	"errors"
	"strings"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Codes of answers that more than one place gives.
const (
	codeBadRequest     = "bad_request"
	codeInternal       = "internal"
	codeTransfer       = "transfer_in_progress"
	codeOutcomeUnknown = "outcome_unknown"
	codeUnknownTenant  = "unknown_tenant"
	codeUnitExists     = "unit_exists"
	codeHolderNewer    = "holder_newer"
	codeUnreplicated   = "replica_unreachable"
	codeWrongState     = "wrong_state"
	codeWrongID        = "wrong_unit_id"
	codeNeedsImage     = "needs_image"
	codeEpochPassed    = "epoch_passed"
	codeJobConflict    = "job_conflict"
	codeInUse          = "in_use"
)

func badRequest(format string, args ...any) *httpserve.Error {
	return httpserve.Errorf(400, codeBadRequest, format, args...)
}

// Errors of statements that the engine does not find.
var (
	errManyStatements = &hrana.Error{Message: "the text holds more than one statement: send one, or several by POST …/batch, or a text of several by a sequence request of POST …/v2/pipeline", Code: "SQL_MANY_STATEMENTS"}
	errNoStatement    = &hrana.Error{Message: "the text holds no statement", Code: "SQL_NO_STATEMENT"}
	errNUL            = &hrana.Error{Message: "the statement holds a NUL character", Code: "SQL_PARSE_ERROR"}
)

// sqlError is the statement's own fault in err, or nil.
func sqlError(err error) *hrana.Error {
	if e, ok := errors.AsType[*hrana.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, store.ErrNoStatement):
		return errNoStatement
	case errors.Is(err, store.ErrNotAllowed):
		return &hrana.Error{Message: err.Error(), Code: "BLOCKED"}
	}
	e, ok := errors.AsType[*store.SQLError](err)
	if !ok || nodesFault(err) {
		return nil
	}
	code := e.Name
	switch {
	case code != "SQLITE_ERROR":
	case strings.HasSuffix(e.Message, "syntax error") || strings.Contains(e.Message, "unrecognized token") || strings.HasSuffix(e.Message, "incomplete input"):
		code = "SQL_PARSE_ERROR"
	case e.Offset >= 0:
		code = "SQL_INPUT_ERROR"
	}
	return &hrana.Error{Message: e.Message, Code: code}
}

// nodesFault tells that an error of SQLite is not about the statement.
func nodesFault(err error) bool {
	for _, target := range []error{store.ErrOutcomeUnknown, store.ErrDiskFull, store.ErrIO, store.ErrDamaged, store.ErrInterrupted, store.ErrKilled, store.ErrFrozen, store.ErrUnreplicated, store.ErrFollowing} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// refusals maps the engine's errors to answers, in order: an error may match several.
var refusals = []struct {
	err    error
	status int
	code   proto.Code
}{
	{store.ErrUnreplicated, 503, codeUnreplicated},
	{store.ErrOutcomeUnknown, 503, codeOutcomeUnknown},
	{store.ErrFrozen, 503, codeTransfer},
	{store.ErrUnknownUnit, 404, codeUnknownTenant},
	{store.ErrBadName, 400, codeBadRequest},
	{store.ErrTooManyOpen, 503, "too_many_open"},
	{store.ErrGone, 503, "unit_gone"},
	{store.ErrClosed, 503, "shutting_down"},
	{store.ErrDiskFull, 507, "disk_full"},
	{store.ErrDamaged, 500, "unit_damaged"},
	{store.ErrIO, 500, "disk_error"},
	{store.ErrBadImage, 400, "bad_image"},
	{store.ErrWrongID, 409, codeWrongID},
	{store.ErrWrongState, 409, codeWrongState},
	{store.ErrNeedsImage, 409, codeNeedsImage},
	{store.ErrConflict, 409, codeEpochPassed},
	{store.ErrFollowing, 421, "misdirected"},
	{context.DeadlineExceeded, 504, "timeout"},
	{store.ErrKilled, 503, codeTransfer},
	{store.ErrInterrupted, 503, "interrupted"},
	{context.Canceled, 503, "shutting_down"},
}

// failure is the answer that an error gets. A statement's fault is 400 with sqld's
// code; what is not known is 500, and the text goes to the log alone.
func failure(err error) *httpserve.Error {
	if e, ok := errors.AsType[*httpserve.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*hrana.ProtocolError](err); ok {
		// Hrana's clients look for message.
		return &httpserve.Error{Status: 400, Code: proto.Code(e.Code), Text: e.Message, Fields: map[string]any{"message": e.Message}}
	}
	if e := sqlError(err); e != nil {
		return httpserve.Errorf(400, proto.Code(e.Code), "%s", e.Message)
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return &httpserve.Error{Status: r.status, Code: r.code, Text: err.Error(), Cause: err}
		}
	}
	return &httpserve.Error{Status: 500, Code: codeInternal, Cause: err,
		Text: "the node failed; its log has the reason under this request id"}
}

// hranaError is how an error of a session reaches package hrana: the statement's own
// faults as they are, everything else as a refusal, which is final where what was
// done is not known.
func hranaError(err error) error {
	if err == nil {
		return nil
	}
	if e := sqlError(err); e != nil {
		return e
	}
	if errors.Is(err, store.ErrKilled) {
		return &hrana.Refused{Err: hrana.ErrExpired, Code: hrana.CodeStreamExpired, Final: true}
	}
	e := failure(err)
	if e.Status == 500 && e.Code == codeInternal {
		return err
	}
	return &hrana.Refused{Err: e, Code: string(e.Code), Final: e.Code == codeOutcomeUnknown || e.Code == codeUnreplicated}
}
