package main

import (
	"testing"

	"domicile/internal/testcluster"
)

// TestMain: as many tests as there are cores run at a time, as half of what they do is to wait. Those that
// want no request to fail, with leases of a second or two, do not: a machine that others take may
// fail one.
func TestMain(m *testing.M) { testcluster.Main(m) }
