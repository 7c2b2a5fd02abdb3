package lease

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"domicile/fsm"
)

const benchNodes = "LEASE_BENCH_NODES"

// BenchmarkLeader1000Nodes measures the CPU that a leader spends on 1,000 nodes
// leased at 1 s, each on a socket of its own (quality §4.4: at most 0.3 core).
// The nodes are another process. One iteration is a lease.
func BenchmarkLeader1000Nodes(b *testing.B) {
	const count = 1000
	if at := os.Getenv(benchNodes); at != "" {
		serveGrants()
		return
	}
	nodes := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=Leader1000Nodes", "-test.benchtime=1x")
	nodes.Env = append(os.Environ(), benchNodes+"=1")
	out, err := nodes.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := nodes.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		nodes.Process.Kill()
		nodes.Wait()
	}()
	var port uint16
	if err := binary.Read(out, binary.LittleEndian, &port); err != nil {
		b.Fatal(err)
	}
	var all []*fsm.Node
	for i := range count {
		n := leased(fsm.NodeName(fmt.Sprintf("n%04d", i)))
		n.Addr = fmt.Sprintf("127.0.%d.%d:%d", i/250, 1+i%250, port)
		all = append(all, n)
	}
	m := &member{testLog: newTestLog(nil, 1000, all...), term: 1}
	k := New(Config{Group: m, Logger: quiet(), Servers: func() []string {
		return []string{"http://10.0.0.1:8070", "http://10.0.0.2:8070", "http://10.0.0.3:8070"}
	}})
	defer run(k, 1)()
	up := func() (up int) {
		for _, n := range all {
			if s, ok := k.Node(n.Name); ok && s.Answered && !s.Silent {
				up++
			}
		}
		return up
	}
	for up() < count {
		<-time.After(10 * time.Millisecond)
	}
	grants := func() (sum uint64) {
		for _, n := range all {
			l, _ := k.find(n.Name)
			l.mu.Lock()
			sum += l.ledger.number
			l.mu.Unlock()
		}
		return sum
	}
	sent := grants()
	began, cpu := time.Now(), spent()
	for b.Loop() {
		<-time.After(time.Second)
	}
	b.ReportMetric((spent()-cpu).Seconds()/time.Since(began).Seconds(), "cores")
	b.ReportMetric(float64(grants()-sent)/time.Since(began).Seconds(), "grants/s")
	b.ReportMetric(float64(up()), "up")
}

func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serveGrants answers grants, on every loopback address, until it is killed.
func serveGrants() {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		panic(err)
	}
	binary.Write(os.Stdout, binary.LittleEndian, uint16(l.Addr().(*net.TCPAddr).Port))
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				body := fmt.Sprintf(`{"epoch":"%s","left_ms":900,"grant":%s,"boot":"%p","ack":"replica"}`,
					field(buf[:n], `"epoch":"`), field(buf[:n], `"grant":`), c)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nServer: domicile\r\nDate: Mon, 30 Nov 2026 04:06:14 GMT\r\nContent-Type: application/json\r\nContent-Length: "+
					strconv.Itoa(len(body))+"\r\n\r\n"+body)
			}
		}()
	}
}

// field gives the digits behind key.
func field(b []byte, key string) []byte {
	b = b[bytes.Index(b, []byte(key))+len(key):]
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return b[:i]
}
