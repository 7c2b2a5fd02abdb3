//go:build !faultpoint

package faultpoint

// Enabled reports that the program was built with its points.
const Enabled = false

// At is a point of the program, and nothing without the tag.
func At(_, _ string) error { return nil }
