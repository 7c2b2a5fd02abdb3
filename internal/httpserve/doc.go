// Package httpserve is what every net/http listener of Domicile shares:
// routes with names, request ids, bearer tokens, error bodies, body limits,
// strict JSON, and one place where a request is counted and logged.
//
// A handler returns an error instead of writing one; *Error carries status and
// code, everything else is answered 500 and logged. The package starts no
// goroutine.
package httpserve
