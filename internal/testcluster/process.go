package testcluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/wait"
)

// The program under test: as it is shipped, and with its labelled points, which
// is built when the first process needs it.
var (
	built     string
	buildOnce sync.Once
	buildErr  error
)

func withPoints() string { return built + "-points" }

func build(out string, tags string) error {
	cmd := exec.Command("go", "build", "-tags", tags, "-o", out, "domicile/cmd/domicile")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return nil
}

// Main builds the program, runs the tests and removes what it built. A
// package's TestMain hands over to it.
func Main(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "domicile-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		built = filepath.Join(dir, "domicile")
		if err := build(built, "hashicorpmetrics"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// Binary gives the path of the program that Main built.
func Binary() string { return built }

// Process is one of the deployment's processes, kept over its restarts.
type Process struct {
	ID   string // c1, n1, p1 …; of a node, its name in the directory
	Name string
	URL  string // of its listener, for the test
	Via  string // of its listener, as the others reach it
	Data string // its data folder; of a proxy, its cache file

	t    testing.TB
	net  network
	args []string
	disk bool // its data folder is on a disk of its own

	points points

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	log   *tail
}

// givenAddrs are those that FreeAddr gave: nothing may listen on one for a while.
var givenAddrs sync.Map

// FreeAddr gives a loopback address that nothing listens on. Its port lies
// below the range that the kernel takes for outgoing connections, so that it
// stays free while its process is down; no other test of this run is given it.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))
		if _, given := givenAddrs.LoadOrStore(addr, true); given {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port between 15000 and 30000")
	return ""
}

// Spawn starts a process of the program with args that listens on addr.
func Spawn(t testing.TB, name, addr, data string, args ...string) *Process {
	t.Helper()
	return spawn(t, loopback{t}, &Process{Name: name, URL: "http://" + addr, Via: "http://" + addr, Data: data, args: args}, nil)
}

func spawn(t testing.TB, n network, p *Process, whole *os.File) *Process {
	t.Helper()
	p.t, p.net, p.log = t, n, &tail{whole: whole}
	p.args = append(p.args, n.flags()...)
	name := p.Name
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.log)
		}
	})
	p.Start()
	return p
}

// Start runs the process again with the arguments it had.
func (p *Process) Start() {
	p.t.Helper()
	program := built
	if p.points.file != "" {
		if buildOnce.Do(func() { buildErr = build(withPoints(), "hashicorpmetrics,faultpoint") }); buildErr != nil {
			p.t.Fatal(buildErr)
		}
		program = withPoints()
	}
	cmd := p.net.command(p.ID, program, p.args)
	cmd.Env = append(os.Environ(), faultpoint.Env+"="+p.points.file)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.Name, err)
	}
	if g, ok := p.net.(*gates); ok {
		g.diallers.Runs(p.ID, cmd.Process.Pid)
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	go func() { // ends with the process, which Kill sees to
		_ = cmd.Wait()
		close(ended)
	}()
}

// Kill ends the process with SIGKILL: nothing is flushed, nothing is said.
func (p *Process) Kill() { p.signal(syscall.SIGKILL, true) }

// Stop ends the process with SIGTERM and waits for it.
func (p *Process) Stop() { p.signal(syscall.SIGTERM, true) }

// Hangup has the process read its certificates and secrets again.
func (p *Process) Hangup() { p.signal(syscall.SIGHUP, false) }

// Pause stops the process with SIGSTOP until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP, false) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT, false) }

func (p *Process) signal(s syscall.Signal, wait bool) {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.Name, err)
	}
	if wait {
		<-ended
	}
}

// Ended reports whether the process has ended, and its exit status.
func (p *Process) Ended() (code int, ended bool) {
	p.mu.Lock()
	cmd, done := p.cmd, p.ended
	p.mu.Unlock()
	select {
	case <-done:
		return cmd.ProcessState.ExitCode(), true
	default:
		return 0, false
	}
}

// Log gives the end of what the process wrote.
func (p *Process) Log() string { return p.log.String() }

// AwaitReady waits until the process says that it can do its work.
func (p *Process) AwaitReady() {
	p.t.Helper()
	wait.For(p.t, p.Name+" is ready", func() error {
		if code, ended := p.Ended(); ended {
			return fmt.Errorf("it ended with status %d: %s", code, p.log)
		}
		return p.ready()
	})
}

// AwaitRevived waits until the process can do its work, and has it start again, or go
// on, whenever it has ended or stopped itself meanwhile, as what supervises it would:
// a point that it came to just before its rule was taken out takes effect late. ended is
// called with each status.
func (p *Process) AwaitRevived(ended func(code int)) {
	p.t.Helper()
	wait.For(p.t, p.Name+" is ready again", func() error {
		if code, over := p.Ended(); over {
			ended(code)
			p.Start()
		}
		p.Resume()
		return p.ready()
	})
}

func (p *Process) ready() error {
	resp, err := quick.Get(p.URL + "/_ready")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// quick is for questions that are asked again when they are not answered.
var quick = &http.Client{Timeout: 5 * time.Second}

// tail keeps the last of what is written to it.
type tail struct {
	whole *os.File // gets all of it too; may be nil
	mu    sync.Mutex
	buf   bytes.Buffer
}

const tailSize = 256 << 10

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > tailSize {
		l.buf.Next(l.buf.Len() / 2)
	}
	if l.whole != nil {
		if _, err := l.whole.Write(b); err != nil {
			return 0, err
		}
	}
	return l.buf.Write(b)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
