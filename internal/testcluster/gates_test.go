package testcluster

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestGateKnowsWhoDialled: a gate tells the process at the other end of a
// connection, and cuts its way alone.
func TestGateKnowsWhoDialled(t *testing.T) {
	g := newGates(t)
	listen, reach := g.listener("n1")
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	g.cut([]string{"p1"}, []string{"n1"})
	echoes := func(within time.Duration) bool {
		c, err := net.Dial("tcp", reach)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(within))
		_, err = c.Read(make([]byte, 1))
		return err == nil
	}
	if !echoes(30 * time.Second) {
		t.Error("the test itself is cut off, as p1 is")
	}
	g.diallers.Runs("p1", os.Getpid())
	if echoes(300 * time.Millisecond) {
		t.Error("this process is p1 now, and is not cut off")
	}
	g.heal([]string{"p1"}, []string{"n1"})
	if !echoes(30 * time.Second) {
		t.Error("still cut off after heal")
	}
}
