// Package certtest makes certificate authorities and certificates for tests:
// real keys, in files of the test's own folder. It starts no goroutine.
package certtest
