package main

import (
	"fmt"
	"runtime"
)

// version is the release; commit is set by the linker.
const version = "0.1.0"

var commit = "unknown"

type versionCmd struct{}

// Run prints version, commit and toolchain on one line.
func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintf(e.stdout, "domicile %s (%s, %s %s/%s)\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
