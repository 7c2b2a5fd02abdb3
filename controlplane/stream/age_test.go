package stream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"domicile/proto"
)

// TestR4TheStreamTellsHowOldTheServersCopyIs: in its greeting, and each second also
// while changes come all the time.
func TestR4TheStreamTellsHowOldTheServersCopyIs(t *testing.T) {
	d := newDirectory(t, "c1")
	var age atomic.Int64
	age.Store(int64(time.Minute))
	s := newServer(t, d, Config{Heartbeat: time.Millisecond, Age: func() time.Duration { return time.Duration(age.Load()) }})
	s.publishAll()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(s.http.URL + "/_shard/subscribe")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	frames, err := proto.NewFrameReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	next := func() proto.Frame {
		t.Helper()
		f, err := frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if h, ok := next().(*proto.Hello); !ok || h.Age != time.Minute {
		t.Errorf("the greeting is %+v", h)
	}
	changes := 0
	for latest := time.Duration(0); latest != time.Hour; { // a change is there whenever the subscriber is looked at
		d.random()
		s.publishAll()
		switch f := next().(type) {
		case *proto.Delta:
			changes++
		case *proto.Heartbeat:
			if latest = f.Age; latest != time.Minute && latest != time.Hour {
				t.Fatalf("a heartbeat of age %v", latest)
			}
			age.Store(int64(time.Hour))
		}
	}
	if changes == 0 {
		t.Error("no changes came: the test tests nothing")
	}
}
