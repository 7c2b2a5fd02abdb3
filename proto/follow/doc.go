// Package follow follows the directory's stream: it connects to a server of a
// group, checks that what comes is what the holder may take, hands it to a
// Sink, and begins again at another server when a stream ends, stalls or does
// not add up.
//
// What is never handed on (R4): the directory of another authority, of an
// older history, of an older revision of the same history, or one that came
// incompletely (the end of a whole directory tells its count and checksum, and
// nothing of it counts before). A change that does not follow on what the
// holder has ends the stream, too. A newer whole directory counts however small
// it is: within one history it is the log's, and only an operator's recovery
// begins another.
//
// # Goroutines
//
// Run works on its caller's goroutine and, while a stream is open, starts one
// that ends the stream when nothing has come for a while. It has ended when
// Run returns.
package follow
