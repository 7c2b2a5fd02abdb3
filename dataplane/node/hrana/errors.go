package hrana

import (
	"errors"

	"domicile/dataplane/node/jsonscan"
)

// Codes of this package, which are sqld's. A Session adds those of its engine:
// SQL_PARSE_ERROR, SQL_NO_STATEMENT, SQL_MANY_STATEMENTS, ARGS_INVALID,
// SQL_INPUT_ERROR, BLOCKED, TRANSACTION_TIMEOUT, SQLITE_<primary code>.
const (
	CodeStreamExpired    = "STREAM_EXPIRED"
	CodeStreamClosed     = "STREAM_CLOSED"
	CodeBatonInvalid     = "BATON_INVALID"
	CodeBatonUsed        = "BATON_REUSED"
	CodeBadRequest       = "PROTOCOL_ERROR"
	CodeResponseTooLarge = "RESPONSE_TOO_LARGE"
	CodeStoreTooMany     = "SQL_STORE_TOO_MANY"
	CodeStoreTooLarge    = "SQL_STORE_TOO_LARGE"
	CodeStoreMissing     = "SQL_NOT_FOUND"
	CodeArgsBoth         = "ARGS_BOTH_POSITIONAL_AND_NAMED"
	codeInternal         = "INTERNAL_ERROR"
)

// Error is a failure inside a result: of a statement, or of a stream's request.
type Error struct{ Message, Code string }

func (e *Error) Error() string { return e.Message }

// ProtocolError answers a whole request. Nothing of it was executed, and the stream
// that it named is as it was, or gone.
type ProtocolError struct {
	Message string
	Code    string
}

func (e *ProtocolError) Error() string { return e.Message }

func protocolError(message string) *ProtocolError {
	return &ProtocolError{Message: message, Code: CodeBadRequest}
}

var (
	errInvalidBaton = &ProtocolError{Message: "Received an invalid baton: begin a new stream", Code: CodeBatonInvalid}
	errUsedBaton    = &ProtocolError{Message: "Received a baton that has already been used", Code: CodeBatonUsed}

	errTooLarge     = &Error{Message: "The response is too large: ask for fewer rows, or use a cursor", Code: CodeResponseTooLarge}
	errStreamClosed = &Error{Message: "The stream was closed by an earlier request", Code: CodeStreamClosed}
	errArgsBoth     = &Error{Message: "Specifying both positional and named arguments is not supported", Code: CodeArgsBoth}
	errStoreMissing = &Error{Message: "The stored statement does not exist: storing it failed", Code: CodeStoreMissing}
)

// ErrExpired answers a baton whose stream is gone, and a request whose transaction was
// ended by the node.
var ErrExpired = &ProtocolError{
	Message: "The stream has expired due to inactivity, or was ended by the node: what its transaction had not committed is undone; begin it again",
	Code:    CodeStreamExpired,
}

// statementError is how an error of a Session stands in a result.
func statementError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if r, ok := errors.AsType[*Refused](err); ok {
		return &Error{Message: r.Error(), Code: r.Code}
	}
	return &Error{Message: err.Error(), Code: codeInternal}
}

func appendError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"message":`...)
	dst = jsonscan.AppendString(dst, e.Message)
	if e.Code == "" {
		return append(dst, '}')
	}
	dst = append(dst, `,"code":`...)
	dst = jsonscan.AppendString(dst, e.Code)
	return append(dst, '}')
}
