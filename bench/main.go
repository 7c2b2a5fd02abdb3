package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// programs are the sub-commands; each prints its own table.
var programs = map[string]func(ctx context.Context, args []string) error{
	"proxy":     benchProxy,
	"directory": benchDirectory,
	"node":      benchNode,
	"scale":     benchScale,
	"failover":  benchFailover,
	"moves":     benchMoves,
	"regions":   benchRegions,
	"backend":   runBackend,
	"forwarder": runForwarder,
	"stream":    runStream,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		var names []string
		for n := range programs {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: bench PROGRAM [flags]; programs: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	if err := programs[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
