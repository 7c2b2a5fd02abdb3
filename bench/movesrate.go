package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// copyRate moves the greatest tenant without load and under it, beside what a user would
// do instead: stop the writes, copy the file, go on.
func (b *movesBench) copyRate(ctx context.Context) error {
	mb := b.sizes[len(b.sizes)-1]
	c, err := startCopies(ctx, b.bin, b.dir, copyOptions{controls: 3, nodes: 3, lease: 3 * time.Second})
	defer c.stop()
	if err != nil {
		return err
	}
	if err := c.create(ctx, 1, 0); err != nil {
		return err
	}
	if err := c.fill(ctx, 0, mb<<20); err != nil {
		return err
	}
	if err := b.rates(ctx, c, mb, min(b.runs, 5)); err != nil {
		return err
	}
	writes, reads := c.startLoad(ctx, 0, "w", b.rate, true), c.startLoad(ctx, 0, "r", readsPerSecond, false)
	defer writes.stop()
	defer reads.stop()
	var rate sample
	var grown [4]sample
	for range min(b.runs, 5) {
		m, err := c.rateOnce(ctx)
		if err != nil {
			return err
		}
		rate = append(rate, m.rate)
		for i, g := range m.grown {
			grown[i] = append(grown[i], g)
		}
	}
	b.row(fmt.Sprintf("at %d writes a second: MB/s from the image's first to its last byte", b.rate), rate.String(), "")
	for i, name := range []string{"source", "target", "proxy", "leader"} {
		b.row("greatest memory of the "+name+" meanwhile, more than before, MB", grown[i].String(), "≤ 64")
	}
	what, err := b.tally(ctx, writes, reads)
	b.row("failed / lost / doubled", what, "0 / 0 / 0")
	return err
}

// rates takes turns: a move without load, the file copied with cp, and over TCP.
func (b *movesBench) rates(ctx context.Context, c *copyCluster, mb int64, runs int) error {
	var move, whole, cpu, cp, tcp, pause, cpuTCP sample
	for range runs {
		m, err := c.rateOnce(ctx)
		if err != nil {
			return err
		}
		move, whole, cpu = append(move, m.rate), append(whole, m.whole), append(cpu, m.cpu)
		node, _, err := c.whereIs(ctx, 0)
		if err != nil {
			return err
		}
		file, size, err := greatestFile(filepath.Join(c.dir, nodeID(node)))
		if err != nil {
			return err
		}
		took, err := copyWithCp(ctx, file, filepath.Join(c.dir, "copied"))
		if err != nil {
			return err
		}
		cp, pause = append(cp, size/1e6/took.Seconds()), append(pause, millis(took))
		before := ownCPU()
		if took, err = copyOverTCP(file, filepath.Join(c.dir, "copied")); err != nil {
			return err
		}
		tcp = append(tcp, size/1e6/took.Seconds())
		cpuTCP = append(cpuTCP, (ownCPU()-before).Seconds()*1e9/size)
	}
	b.row(fmt.Sprintf("%d MB without load: MB/s from the image's first to its last byte", mb), move.String(), "≥ 400")
	b.row("MB/s from the request until it is written at its new node", whole.String(), "")
	b.row("CPU seconds of source and target a GB", cpu.String(), "")
	b.row("instead, writes stopped: cp and fsync, MB/s", cp.String(), "")
	b.row("instead, writes stopped: over TCP and fsync, MB/s", tcp.String(), "")
	b.row("CPU seconds a GB over TCP", cpuTCP.String(), "")
	b.row("the move beside cp / beside TCP, MB/s, ratio", ratio(move, cp).String()+" / "+ratio(move, tcp).String(), "")
	b.row("for so long writes are stopped with cp, ms", pause.String(), "")
	return nil
}

// rateRun is one move's copying: MB/s of the image alone, and of the whole move, CPU
// seconds a GB, and by how many MB processes grew: source, target, proxy, leader.
type rateRun struct {
	rate, whole, cpu float64
	grown            [4]float64
}

func (c *copyCluster) rateOnce(ctx context.Context) (r rateRun, err error) {
	source, _, err := c.whereIs(ctx, 0)
	if err != nil {
		return r, err
	}
	to, err := c.other(ctx, 0, false)
	if err != nil {
		return r, err
	}
	leader, _, err := c.leader(ctx)
	if err != nil {
		return r, err
	}
	procs := []*process{c.nodes[source], c.nodes[to], c.proxy, c.controls[leader]}
	var before [4]int64
	for i, p := range procs {
		before[i] = p.resetPeak()
	}
	cpu := cpuOf(procs[:2]...)
	watching, stop := context.WithCancel(ctx)
	seen := make(chan imageSeen, 1)
	go func() { seen <- c.watchImage(watching, to) }()
	m, err := c.move(ctx, 0, to, "")
	used := cpuOf(procs[:2]...) - cpu
	stop()
	image := <-seen
	if err != nil {
		return r, err
	}
	for i, p := range procs {
		r.grown[i] = float64(p.peak()-before[i]) / 1e6
	}
	gone := image.last.Sub(image.first).Seconds()
	if gone <= 0 {
		return r, fmt.Errorf("no image was seen under way: %d bytes", m.Bytes)
	}
	r.rate = float64(image.to-image.from) / 1e6 / gone
	r.whole = float64(m.Bytes) / 1e6 / (float64(m.MS) / 1000)
	r.cpu = used.Seconds() * 1e9 / float64(m.Bytes)
	return r, c.awaitMoved(ctx, m)
}

// imageSeen is how far an image was when it was first and last seen under way.
type imageSeen struct {
	from, to    int64
	first, last time.Time
}

// watchImage looks at the image that a node takes in until ctx ends.
func (c *copyCluster) watchImage(ctx context.Context, node int) (s imageSeen) {
	for ctx.Err() == nil {
		bytes, _, ok, err := c.image(ctx, node, 0)
		if now := time.Now(); err == nil && ok && bytes > s.to {
			if s.first.IsZero() {
				s.from, s.first = bytes, now
			}
			s.to, s.last = bytes, now
		}
		time.Sleep(5 * time.Millisecond)
	}
	return s
}

// resetPeak has the kernel count a process's greatest memory anew, and gives its present.
func (p *process) resetPeak() int64 {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
	return p.rss()
}

// peak is a process's greatest memory since then.
func (p *process) peak() int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func greatestFile(dir string) (file string, size float64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if i, err := d.Info(); err == nil && float64(i.Size()) > size {
			file, size = path, float64(i.Size())
		}
		return nil
	})
	return file, size, err
}

func copyWithCp(ctx context.Context, from, to string) (time.Duration, error) {
	defer os.Remove(to)
	begin := time.Now()
	if out, err := exec.CommandContext(ctx, "cp", from, to).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cp: %w: %s", err, bytes.TrimSpace(out))
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	err = f.Sync()
	return time.Since(begin), err
}

// copyOverTCP sends a file over the loopback to one who writes and syncs it.
func copyOverTCP(from, to string) (took time.Duration, err error) {
	defer os.Remove(to)
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	begin := time.Now()
	source, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer target.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(source, in)
		source.Close()
		sent <- err
	}()
	if _, err := io.Copy(out, target); err != nil {
		return 0, err
	}
	err = out.Sync()
	return time.Since(begin), errors.Join(err, <-sent)
}
