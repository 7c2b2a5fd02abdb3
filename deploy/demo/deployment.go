package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"domicile/internal/composefile"
)

// deployment is the Compose file's, in namespaces.
type deployment struct {
	file    *composefile.File
	program string
	deploy  string // the folder of the Compose file
	dir     string // data, secrets and logs
	net     *network
	client  *http.Client

	mu    sync.Mutex
	procs map[string]*proc
}

// proc is a service's process.
type proc struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// open reads the file and makes the network; nothing runs yet.
func open(deploy, program string) (*deployment, error) {
	d := &deployment{deploy: deploy, procs: map[string]*proc{}}
	var err error
	if d.program, err = filepath.Abs(program); err != nil {
		return d, err
	}
	if _, err := os.Stat(d.program); err != nil {
		return d, fmt.Errorf("%w: run make build first", err)
	}
	if d.file, err = composefile.Read(filepath.Join(deploy, "compose.yaml")); err != nil {
		return d, err
	}
	if d.dir, err = os.MkdirTemp("", prefix+"demo"); err != nil {
		return d, err
	}
	region := map[string]string{}
	var regions []string
	for name, s := range d.file.Services {
		region[name] = s.Networks[0]
		if !slices.Contains(regions, s.Networks[0]) {
			regions = append(regions, s.Networks[0])
		}
	}
	slices.Sort(regions)
	if d.net, err = newNetwork(regions, region); err != nil {
		return d, err
	}
	d.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: d.dial}}
	return d, os.Mkdir(filepath.Join(d.dir, "secrets"), 0o700)
}

// dial reaches services by their names.
func (d *deployment) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(d.net.addrs[host], port))
}

// close ends every process and takes everything away.
func (d *deployment) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.procs {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	var err error
	if d.net != nil {
		err = d.net.close()
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// start starts all services, and waits until each is ready; then the one that records
// regions and nodes, until it has.
func (d *deployment) start(ctx context.Context) error {
	if err := d.must(ctx, exec.Command("sh", filepath.Join(d.deploy, "secrets", "make"), filepath.Join(d.dir, "secrets"))); err != nil {
		return err
	}
	for name, s := range d.file.Services {
		if len(s.Entrypoint) == 0 {
			if err := d.begin(name); err != nil {
				return err
			}
		}
	}
	for name, s := range d.file.Services {
		if len(s.Entrypoint) == 0 {
			if err := d.awaitReady(ctx, name); err != nil {
				return err
			}
		}
	}
	setup := d.net.command("setup", "sh", filepath.Join(d.deploy, "setup"))
	setup.Env = append(os.Environ(), "PATH="+filepath.Dir(d.program)+":"+os.Getenv("PATH"))
	setup.Env = append(setup.Env, d.env("setup")...)
	return d.must(ctx, setup)
}

func (d *deployment) must(ctx context.Context, cmd *exec.Cmd) error {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// env gives a service's variables: secrets and data are in other folders here.
func (d *deployment) env(name string) (env []string) {
	at := strings.NewReplacer("/run/secrets/", filepath.Join(d.dir, "secrets")+"/", "/data", filepath.Join(d.dir, name))
	s := d.file.Services[name]
	for _, k := range sorted(s.Environment) {
		env = append(env, k+"="+at.Replace(s.Environment[k]))
	}
	return env
}

// begin starts a service's process.
func (d *deployment) begin(name string) error {
	log, err := os.OpenFile(filepath.Join(d.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := os.MkdirAll(filepath.Join(d.dir, name), 0o700); err != nil {
		return err
	}
	cmd := d.net.command(name, d.program, d.file.Services[name].Command...)
	cmd.Env = append(os.Environ(), d.env(name)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // Ctrl-C is for this program
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &proc{cmd: cmd, ended: make(chan struct{})}
	go func() { // ends with the process
		_ = cmd.Wait()
		close(p.ended)
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.procs[name] = p
	return nil
}

// kill ends a service's process, as a power cut does.
func (d *deployment) kill(name string) {
	d.mu.Lock()
	p := d.procs[name]
	d.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// awaitReady asks a service's health check until it is well.
func (d *deployment) awaitReady(ctx context.Context, name string) error {
	check := d.file.Services[name].Healthcheck.Test
	u, err := url.Parse(check[len(check)-1])
	if err != nil {
		return err
	}
	u.Host = name + ":" + u.Port()
	err = until(ctx, time.Minute, func() error {
		resp, err := d.client.Get(u.String())
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("%s: %s", resp.Status, text)
		}
		return nil
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(d.dir, name+".log"))
		return fmt.Errorf("%s is not ready: %w\n%s", name, err, log[max(0, len(log)-2000):])
	}
	return nil
}

// until asks f again until it gives nil, for no longer than limit.
func until(ctx context.Context, limit time.Duration, f func() error) error {
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
			return err
		case <-tick.C:
		}
	}
}

// running reports whether a service's process runs.
func (d *deployment) running(name string) bool {
	d.mu.Lock()
	p := d.procs[name]
	d.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
