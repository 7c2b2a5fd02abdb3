package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const bodySize = 1 << 30

// bodies sends a large body through each system in both directions, in turns.
func bodies(ctx context.Context, all []*contender, path string, rounds int) error {
	type figures struct{ down, up, downCPU, upCPU sample }
	by := map[string]*figures{}
	for range rounds {
		for _, s := range all {
			if by[s.name] == nil {
				by[s.name] = &figures{}
			}
			f := by[s.name]
			for _, dir := range []struct {
				rate, cpu *sample
				f         func(context.Context, string) error
			}{{&f.down, &f.downCPU, download}, {&f.up, &f.upCPU, upload}} {
				before := time.Duration(0)
				if s.proc != nil {
					before, _ = s.proc.cpu()
				}
				begin := time.Now()
				if err := dir.f(ctx, "http://"+s.addr+path); err != nil {
					return fmt.Errorf("a body through %s: %w", s.name, err)
				}
				*dir.rate = append(*dir.rate, bodySize/time.Since(begin).Seconds()/(1<<20))
				if s.proc != nil {
					after, _ := s.proc.cpu()
					*dir.cpu = append(*dir.cpu, (after - before).Seconds())
				}
			}
		}
	}
	d, h := by["domicile"], by["haproxy"]
	fmt.Println("A body of 1 GiB, Domicile's proxy against HAProxy, round by round")
	table([]string{"direction", "MB/s, ratio", "CPU, ratio"}, [][]string{
		{"from the node", ratio(d.down, h.down).String(), ratio(d.downCPU, h.downCPU).String()},
		{"to the node", ratio(d.up, h.up).String(), ratio(d.upCPU, h.upCPU).String()},
	})
	var rows [][]string
	for _, s := range all {
		f := by[s.name]
		rows = append(rows, []string{s.name, f.down.String(), f.downCPU.String(), f.up.String(), f.upCPU.String()})
	}
	table([]string{"system", "MB/s from the node", "CPU s", "MB/s to the node", "CPU s"}, rows)
	return nil
}

func download(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?size=%d", url, bodySize), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && n != bodySize {
		err = fmt.Errorf("%d bytes arrived", n)
	}
	return err
}

func upload(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &zeros{left: bodySize, block: make([]byte, 256<<10)})
	if err != nil {
		return err
	}
	req.ContentLength = bodySize
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// idle opens connections that each ask once and then keep still, and tells what
// one costs each system.
func idle(all []*contender, path string, connections int) error {
	var rows [][]string
	for _, s := range all {
		if s.proc == nil || s.name == "forwarder" {
			continue
		}
		before := s.proc.rss()
		conns := make([]net.Conn, 0, connections)
		for range connections {
			c, err := net.Dial("tcp", s.addr)
			if err != nil {
				return fmt.Errorf("idle connection to %s: %w", s.name, err)
			}
			conns = append(conns, c)
			if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
				return err
			}
			if err := readAnswer(c); err != nil {
				return fmt.Errorf("idle connection to %s: %w", s.name, err)
			}
		}
		time.Sleep(2 * time.Second) // the systems give buffers back on their own time
		rows = append(rows, []string{s.name, fmt.Sprint(connections), short(float64(s.proc.rss()-before) / float64(connections) / 1024)})
		for _, c := range conns {
			c.Close()
		}
	}
	fmt.Println("Idle client connections")
	table([]string{"system", "connections", "KB each"}, rows)
	return nil
}

func readAnswer(c net.Conn) error {
	buf, n := make([]byte, 4096), 0
	for !strings.HasSuffix(string(buf[:n]), answer) {
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
	return nil
}
