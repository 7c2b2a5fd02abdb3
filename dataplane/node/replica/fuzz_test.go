package replica

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"domicile/dataplane/node/store"
)

// script reads fuzzed bytes as frames that verify, so that what they say is
// reached: kind, unit, length, payload.
func script(b []byte) (out []byte) {
	kinds := []frameType{frameFollow, frameUnfollow, frameAck, frameTook, framePromised, frameStart, frameEntry, frameImage,
		frameChunk, frameImaged, frameEnd, framePromise, frameBeat}
	for n := 0; len(b) >= 3 && n < 64; n++ {
		kind, unit, size := kinds[int(b[0])%len(kinds)], uint32(b[1]%5), min(int(b[2]), len(b)-3)
		out = appendFrame(out, kind, unit, b[3:3+size])
		b = b[3+size:]
	}
	return out
}

func seed(frames ...[]byte) (out []byte) {
	for _, f := range frames {
		out = append(out, f...)
	}
	return out
}

func say(kind byte, unit byte, p []byte) []byte {
	return append([]byte{kind, unit, byte(min(len(p), 255))}, p[:min(len(p), 255)]...)
}

// Whatever a follower says, the source ends in order and its unit is whole.
func FuzzSource(f *testing.F) {
	src := newNode(f, Config{}, store.Config{Sync: store.SyncNormal})
	src.create("acme")
	src.must("acme", "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
	m := src.mark("acme")
	ask := (&follow{id: 7, epoch: 1, mark: m, name: "acme"}).encode()
	img := (&follow{id: 7, epoch: 1, image: true, name: "acme"}).encode()
	f.Add(seed(say(0, 1, ask), say(2, 1, appendPosition(nil, m.Position)), say(1, 1, nil), say(0, 2, ask)))
	f.Add(seed(say(0, 1, img), say(3, 1, appendCount(4096)), say(0, 2, ask), say(0, 3, ask), say(12, 0, encodeBeat(0))))
	f.Add(seed(say(0, 1, ask), say(2, 1, appendPosition(nil, store.Position{Epoch: 1, Seq: 99}))))
	f.Add(seed(say(4, 0, (&promise{seq: 1, names: []string{"acme"}}).encode())))
	f.Fuzz(func(t *testing.T, b []byte) {
		c1, c2 := net.Pipe()
		go io.Copy(io.Discard, c2)
		go func() { c2.Write(script(b)); src.write("acme", insert(1)); c2.Close() }()
		src.r.ServeUpgrade(c1, "http://fuzz")
		if l := src.r.Followers("acme"); len(l) > 0 {
			t.Fatal(l)
		}
		src.r.mu.Lock()
		defer src.r.mu.Unlock()
		if len(src.r.sessions) > 0 {
			t.Fatal("a session is left")
		}
	})
}

// Whatever a source says, the follower's unit is what it was or another whole
// state of the source's, and the follower goes on.
func FuzzFollower(f *testing.F) {
	src := newNode(f, Config{}, store.Config{Sync: store.SyncNormal})
	src.create("acme")
	src.must("acme", "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
	said := make(chan []byte, 1)
	dst := newNode(f, Config{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		select {
		case b := <-said:
			c1, c2 := net.Pipe()
			go speakFor(c2, b)
			return c1, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, store.Config{Sync: store.SyncNormal})
	dst.follow("acme", src, "http://fuzz")
	m := src.mark("acme")
	on := (&start{startOn, m, store.Lineage{{Epoch: 1}}}).encode()
	f.Add(seed(say(5, 1, on), say(6, 1, testEntry(1, 2, 16, 1).payload), say(10, 1, (&end{endUnknown, "x"}).encode())))
	f.Add(seed(say(5, 1, (&start{startImage, m, store.Lineage{{Epoch: 1}}}).encode()),
		say(7, 1, (&image{8192, m, store.Lineage{{Epoch: 1}}, false}).encode()), say(8, 1, make([]byte, 200)), say(9, 1, make([]byte, 32))))
	f.Add(seed(say(5, 1, (&start{startAhead, m, store.Lineage{{Epoch: 1}}}).encode()), say(11, 0, (&promise{1, 5, []string{"acme"}}).encode())))
	f.Add(seed(say(12, 0, encodeBeat(5))))
	f.Fuzz(func(t *testing.T, b []byte) {
		said <- script(b)
		dst.r.links["http://fuzz"].nudge()
		said <- nil // it dials again: the one before has ended
		dst.r.links["http://fuzz"].nudge()
		if s := dst.r.Status("acme"); s.From != "http://fuzz" {
			t.Fatal(s)
		}
		if s := dst.r.Status("acme"); s.Lost != nil {
			t.Fatal("lost", s.Lost)
		}
	})
}

// speakFor upgrades, asks for nothing, and says b.
func speakFor(c net.Conn, b []byte) {
	defer c.Close()
	br := bufio.NewReader(c)
	if _, err := http.ReadRequest(br); err != nil {
		return
	}
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n")
	if f, err := readFrame(br); err != nil || f.kind != frameFollow {
		return
	}
	done := make(chan struct{})
	go func() { io.Copy(io.Discard, br); close(done) }()
	c.Write(b)
	c.Close()
	<-done
}
