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
	_, err := fmt.Fprintln(e.stdout, versionLine())
	return err
}

func versionLine() string {
	return fmt.Sprintf("domicile %s (%s, %s %s/%s)", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
