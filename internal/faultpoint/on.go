//go:build faultpoint

package faultpoint

import "os"

// Enabled reports that the program was built with its points.
const Enabled = true

var process = Open(os.Getenv(Env))

// At is a point of the program. It gives the error with which what comes after
// it is to fail.
func At(label, on string) error { return process.At(label, on) }
