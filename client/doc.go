// Package client is the Go client of the admin API. One Client serves any
// number of goroutines and needs no closing; it starts no goroutine.
//
// Every change carries an Idempotency-Key of its own, so that it may be asked
// again without being done twice. A Client asks again when the answer is 503
// with Retry-After, and when a connection breaks or cannot be made; then it goes
// on to the next server. It stops after Config.RetryFor, or when the context
// ends, with the last error. Any other answer is final: it is returned as an
// *Error. Redirects are not followed.
package client
