package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// loadResult is what wrk says of one run.
type loadResult struct {
	perSecond float64
	p50, p99  time.Duration
	requests  float64
	failed    bool // answers that were no success, or sockets that failed
}

var (
	wrkRate     = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkP50      = regexp.MustCompile(`50%\s+([0-9.]+)(us|ms|s)`)
	wrkP99      = regexp.MustCompile(`99%\s+([0-9.]+)(us|ms|s)`)
	wrkFailed   = regexp.MustCompile(`Non-2xx|Socket errors`)
)

// wrk puts load on url with that many connections.
func wrk(ctx context.Context, url string, connections int, d time.Duration, extra ...string) (r loadResult, err error) {
	args := append([]string{"-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%ds", int(d.Seconds())), "--latency"}, extra...)
	out, err := exec.CommandContext(ctx, "wrk", append(args, url)...).CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("wrk (Debian's package wrk): %w: %s", err, out)
	}
	number := func(re *regexp.Regexp) float64 {
		m := re.FindSubmatch(out)
		if m == nil {
			return 0
		}
		v, _ := strconv.ParseFloat(string(m[1]), 64)
		return v
	}
	latency := func(re *regexp.Regexp) time.Duration {
		m := re.FindSubmatch(out)
		if m == nil {
			return 0
		}
		unit := map[string]time.Duration{"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second}[string(m[2])]
		return time.Duration(number(re) * float64(unit))
	}
	r = loadResult{perSecond: number(wrkRate), requests: number(wrkRequests), p50: latency(wrkP50), p99: latency(wrkP99), failed: wrkFailed.Match(out)}
	if r.failed {
		return r, fmt.Errorf("%s gave failed answers: %s", url, out)
	}
	return r, nil
}
