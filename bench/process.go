package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program under measurement.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *bytes.Buffer
}

// start runs a program with its output kept for error messages.
func start(ctx context.Context, name string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.CommandContext(ctx, program, args...), out: &bytes.Buffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the program and waits for it.
func (p *process) stop() {
	if p == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// cpu is the processor time that the program and its children used so far.
func (p *process) cpu() (time.Duration, error) {
	total := time.Duration(0)
	for _, pid := range append([]int{p.cmd.Process.Pid}, children(p.cmd.Process.Pid)...) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// Fields after the name in parentheses; utime and stime are 14 and 15.
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+2:]))
		for _, field := range f[11:13] {
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return total, nil
}

// switches are the voluntary context switches of all of the program's threads.
func (p *process) switches() (n int64) {
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, _ := os.ReadDir(dir)
	for _, t := range tasks {
		data, _ := os.ReadFile(dir + "/" + t.Name() + "/status")
		for line := range strings.Lines(string(data)) {
			if v, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				c, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				n += c
			}
		}
	}
	return n
}

// rss is the resident memory of the program and its children in bytes.
func (p *process) rss() int64 {
	total := int64(0)
	for _, pid := range append([]int{p.cmd.Process.Pid}, children(p.cmd.Process.Pid)...) {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if f := strings.Fields(string(data)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			total += pages * int64(os.Getpagesize())
		}
	}
	return total
}

func children(pid int) (pids []int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for f := range strings.FieldsSeq(string(data)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// freePort gives an address that nobody uses. Its port lies below the range
// that the kernel takes for outgoing connections, so that it stays free.
func freePort() (string, error) {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no free port between 15000 and 30000")
}

// await asks again and again until f gives nil, for no longer than limit.
func await(ctx context.Context, what string, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}

// awaitPort waits until something listens.
func awaitPort(ctx context.Context, addr string) error {
	return await(ctx, "nothing listens on "+addr, 20*time.Second, func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// awaitOK waits until a URL answers 200.
func awaitOK(ctx context.Context, url string, limit time.Duration) error {
	return await(ctx, url+" is not ready", limit, func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// awaitReady waits until a process says that it can do its work; at a million
// tenants that takes a while.
func awaitReady(ctx context.Context, url string) error {
	return awaitOK(ctx, url+"/_ready", 3*time.Minute)
}

// awaitRoute waits until a proxy forwards to the backend.
func awaitRoute(ctx context.Context, addr string) error {
	return awaitOK(ctx, "http://"+addr+"/t/"+tenantName(0)+"/", time.Minute)
}
