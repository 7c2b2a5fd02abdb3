package follow

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(time.Millisecond) // poll
	}
}

// sink counts what it was given.
type sink struct {
	mu       sync.Mutex
	begun    int
	aborted  int
	commits  []Position
	applied  []Position
	applyErr error
}

func (s *sink) Begin(at Position) (Loader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return &load{s, at}, nil
}

func (s *sink) Apply(_ fsm.Revision, at Position, _ []fsm.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = append(s.applied, at)
	return s.applyErr
}

func (s *sink) counts() (begun, aborted, commits, applied int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.aborted, len(s.commits), len(s.applied)
}

type load struct {
	s  *sink
	at Position
}

func (*load) Add([]fsm.Event) error { return nil }

func (l *load) Commit() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.commits = append(l.s.commits, l.at)
	return nil
}

func (l *load) Abort() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.aborted++
}

// script is a server that writes frames and then waits, or ends.
type script struct {
	t      *testing.T
	http   *httptest.Server
	frames []byte
	end    bool
	mu     sync.Mutex
	asked  []*http.Request
}

func serve(t *testing.T, end bool, frames ...[]byte) *script {
	s := &script{t: t, end: end}
	for _, f := range frames {
		s.frames = append(s.frames, f...)
	}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		w.Write(s.frames)
		http.NewResponseController(w).Flush()
		if !s.end {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.http.Close)
	return s
}

func (s *script) asks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func frame(t *testing.T, f proto.Frame) []byte {
	t.Helper()
	b, err := proto.EncodeFrame(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hello(t *testing.T, authority string, history uint64) []byte {
	return frame(t, &proto.Hello{Version: proto.StreamVersion, Authority: authority, History: history})
}

// whole gives the frames of a whole directory at a revision.
func whole(t *testing.T, rev fsm.Revision) [][]byte {
	t.Helper()
	s := fsm.New()
	s.Apply(fsm.Entry{Revision: 1, Term: 1, At: 1, Cmd: &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c1", History: 1}}})
	s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1, Cmd: &fsm.PutRegion{Region: fsm.Region{Name: "eu", Routers: []string{"http://eu"}}}})
	var frames [][]byte
	if err := proto.StreamSnapshot(s.Snapshot(), func(f []byte) error { frames = append(frames, f); return nil }); err != nil {
		t.Fatal(err)
	}
	return frames
}

func start(t *testing.T, s *sink, from Position, urls ...string) *Client {
	t.Helper()
	return startPatient(t, 50*time.Millisecond, s, from, urls...)
}

func startPatient(t *testing.T, silence time.Duration, s *sink, from Position, urls ...string) *Client {
	t.Helper()
	transport := &http.Transport{}
	c, err := New(Config{URLs: urls, Token: func() string { return "secret" }, From: from, Sink: s,
		Logger: hclog.NewNullLogger(), HTTP: &http.Client{Transport: transport},
		PauseLeast: time.Millisecond, PauseMost: 5 * time.Millisecond, Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		transport.CloseIdleConnections()
	})
	return c
}

var here = Position{Authority: "c1/global", History: 2, Revision: 50}

// What a follower holds is never replaced by an older or a foreign directory,
// or by one that did not come whole.
func TestR4OlderForeignAndShrunkenDirectoriesAreRefused(t *testing.T) {
	at := whole(t, 60)
	delta := func(prev, rev fsm.Revision) []byte { return frame(t, &proto.Delta{Prev: prev, Revision: rev}) }
	join := func(first []byte, rest ...[]byte) [][]byte { return append([][]byte{first}, rest...) }
	for name, frames := range map[string][][]byte{
		"foreign":               join(hello(t, "c2/global", 2), at...),
		"another level":         join(hello(t, "c1/eu", 2), at...),
		"older history":         join(hello(t, "c1/global", 1), at...),
		"older revision":        join(hello(t, "c1/global", 2), whole(t, 49)...),
		"no end":                join(hello(t, "c1/global", 2), at[:len(at)-1]...),
		"a part is missing":     join(hello(t, "c1/global", 2), at[0], at[len(at)-1]),
		"no greeting":           at,
		"two greetings":         {hello(t, "c1/global", 2), hello(t, "c1/global", 2)},
		"a gap":                 {hello(t, "c1/global", 2), delta(51, 52)},
		"a step back":           {hello(t, "c1/global", 2), delta(49, 50)},
		"a change of another":   {hello(t, "c1/global", 3), delta(50, 51)},
		"a beat from elsewhere": {hello(t, "c1/global", 2), frame(t, &proto.Heartbeat{Revision: 51})},
		"garbage":               {[]byte("HTTP/1.1 200 OK, not at all a frame")},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			server := serve(t, true, frames...)
			c := start(t, s, here, server.http.URL)
			eventually(t, "it was tried twice", func() bool { return server.asks() > 1 })
			if begun, aborted, commits, applied := s.counts(); commits+applied > 0 || begun > aborted+1 {
				t.Errorf("%d commits, %d changes, %d begun, %d dropped", commits, applied, begun, aborted)
			}
			if c.Position() != here || !c.Heard().IsZero() {
				t.Errorf("it holds %+v, heard %v", c.Position(), c.Heard())
			}
		})
	}
}

func TestNewerDirectoriesAreTaken(t *testing.T) {
	for name, history := range map[string]uint64{"same history": 2, "newer history": 3} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			rev := fsm.Revision(60)
			if history > here.History {
				rev = 5 // a recovery may have lost entries
			}
			server := serve(t, false, append([][]byte{hello(t, "c1/global", history)}, whole(t, rev)...)...)
			c := start(t, s, here, server.http.URL)
			want := Position{Authority: "c1/global", History: history, Revision: rev}
			eventually(t, "it is taken", func() bool { return c.Position() == want && !c.Heard().IsZero() })
		})
	}
}

// A server that falls silent, or ends, is left for another, which is asked for
// what comes after.
func TestSilentServerIsLeft(t *testing.T) {
	s := &sink{}
	silent := serve(t, false, hello(t, "c1/global", 2))
	other := serve(t, false, hello(t, "c1/global", 2), frame(t, &proto.Delta{Prev: 50, Revision: 51}))
	c := start(t, s, here, silent.http.URL, other.http.URL)
	eventually(t, "the other one's change came", func() bool { return c.Position().Revision == 51 })
	eventually(t, "the silent one was asked", func() bool { return silent.asks() > 0 })
	r := other.asked[0]
	q := r.URL.Query()
	if q.Get("since") != "50" || q.Get("authority") != "c1/global" || q.Get("history") != "2" ||
		r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/_shard/subscribe" {
		t.Errorf("asked %s", r.URL)
	}
}

// What the sink refuses ends the stream; nothing is skipped.
func TestSinkErrorsEndTheStream(t *testing.T) {
	s := &sink{applyErr: errors.New("no")}
	server := serve(t, false, hello(t, "c1/global", 2), frame(t, &proto.Delta{Prev: 50, Revision: 51}))
	c := start(t, s, here, server.http.URL)
	eventually(t, "it was tried twice", func() bool { return server.asks() > 1 })
	if c.Position() != here {
		t.Errorf("it holds %+v", c.Position())
	}
}

func TestNewRefusesBadAddresses(t *testing.T) {
	for _, u := range []string{"", "host:80", "ftp://host", "http://"} {
		if _, err := New(Config{URLs: []string{u}, Sink: &sink{}, Logger: hclog.NewNullLogger()}); err == nil || !strings.Contains(err.Error(), "http(s)://") {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := New(Config{Sink: &sink{}, Logger: hclog.NewNullLogger()}); err == nil {
		t.Error("no servers: taken")
	}
}

// TestR4TheAgeOfTheCopyIsThatOfTheLeadersWord: a server that has not heard its leader
// for a while makes nothing current, whether it gives a whole directory, a change or a
// heartbeat; what it said of itself last counts.
func TestR4TheAgeOfTheCopyIsThatOfTheLeadersWord(t *testing.T) {
	greet := func(age time.Duration) []byte {
		return frame(t, &proto.Hello{Version: proto.StreamVersion, Authority: "c1/global", History: 2, Age: age})
	}
	beat := func(rev fsm.Revision, age time.Duration) []byte {
		return frame(t, &proto.Heartbeat{Revision: rev, Age: age})
	}
	delta := frame(t, &proto.Delta{Prev: 50, Revision: 51})
	for name, c := range map[string]struct {
		frames [][]byte
		rev    fsm.Revision
		age    time.Duration
	}{
		"whole":                  {append([][]byte{greet(time.Hour)}, whole(t, 60)...), 60, time.Hour},
		"a change":               {[][]byte{greet(time.Hour), delta}, 51, time.Hour},
		"a heartbeat":            {[][]byte{greet(time.Hour), delta, beat(51, 2*time.Hour)}, 51, time.Hour},
		"in touch again":         {[][]byte{greet(time.Hour), delta, beat(51, time.Minute)}, 51, time.Minute},
		"one that does not tell": {[][]byte{hello(t, "c1/global", 2), delta}, 51, 0},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			server := serve(t, false, c.frames...)
			cl := start(t, &sink{}, here, server.http.URL)
			early, late := began.Add(-c.age-time.Second), func() time.Time { return time.Now().Add(-c.age) }
			eventually(t, "it is as old as that", func() bool {
				heard := cl.Heard()
				return cl.Position().Revision == c.rev && heard.After(early) && !heard.After(late())
			})
		})
	}
}

// TestServerOutOfTouchIsLeftForAnother: once it has given what it has. Where there is
// no other it is kept.
func TestServerOutOfTouchIsLeftForAnother(t *testing.T) {
	alone := [][]byte{
		frame(t, &proto.Hello{Version: proto.StreamVersion, Authority: "c1/global", History: 2, Age: time.Hour}),
		frame(t, &proto.Delta{Prev: 50, Revision: 51}), frame(t, &proto.Heartbeat{Revision: 51, Age: time.Hour}),
	}
	other := serve(t, false, hello(t, "c1/global", 2), frame(t, &proto.Delta{Prev: 51, Revision: 52}))
	first := serve(t, false, alone...)
	c := startPatient(t, time.Minute, &sink{}, here, first.http.URL, other.http.URL)
	eventually(t, "the other one's change came", func() bool { return c.Position().Revision == 52 })
	if got := first.asks(); got != 1 {
		t.Errorf("the one out of touch was asked %d times", got)
	}
	only := serve(t, false, append(alone, frame(t, &proto.Delta{Prev: 51, Revision: 52}))...)
	c = startPatient(t, time.Minute, &sink{}, here, only.http.URL)
	eventually(t, "the only one's later change came", func() bool { return c.Position().Revision == 52 })
}

// TestG2TheGlobalDirectoryIsAskedForByName: of a region's server, and what another
// directory's stream brings is not taken for it.
func TestG2TheGlobalDirectoryIsAskedForByName(t *testing.T) {
	own := serve(t, true, append([][]byte{hello(t, "c1/us", 1)}, whole(t, 60)...)...) // one that does not know the parameter
	copied := serve(t, false, append([][]byte{hello(t, "c0/global", 4)}, whole(t, 60)...)...)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s := &sink{}
	c, err := New(Config{URLs: []string{own.http.URL, copied.http.URL}, Directory: "global", Sink: s,
		Logger: hclog.NewNullLogger(), HTTP: &http.Client{Transport: transport}, PauseLeast: time.Millisecond, PauseMost: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	c.next = 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "the copy is taken", func() bool { return c.Position() == Position{Authority: "c0/global", History: 4, Revision: 60} })
	if _, _, commits, _ := s.counts(); commits != 1 {
		t.Errorf("%d directories were taken", commits)
	}
	copied.mu.Lock()
	asked := copied.asked[0].URL
	copied.mu.Unlock()
	if asked.Query().Get("directory") != "global" || own.asks() == 0 {
		t.Errorf("asked %s, and the first server %d times", asked, own.asks())
	}
	cancel()
	<-done
}

// TestR4TheHolderDecidesWhoseDirectoryItTakes: before anything of it is handed on.
func TestR4TheHolderDecidesWhoseDirectoryItTakes(t *testing.T) {
	server := serve(t, true, append([][]byte{hello(t, "c1/global", 1)}, whole(t, 60)...)...)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s := &sink{}
	var may atomic.Bool
	c, err := New(Config{URLs: []string{server.http.URL}, Sink: s, Logger: hclog.NewNullLogger(), HTTP: &http.Client{Transport: transport},
		Accept: func(at Position) error {
			if at != (Position{Authority: "c1/global", History: 1}) || !may.Load() {
				return errors.New("not this one")
			}
			return nil
		}, PauseLeast: time.Millisecond, PauseMost: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "it is refused", func() bool { return server.asks() > 1 && c.Trouble() != nil && c.Trouble().Error() == "not this one" })
	if begun, _, commits, _ := s.counts(); begun+commits != 0 {
		t.Errorf("%d begun, %d taken", begun, commits)
	}
	may.Store(true)
	eventually(t, "it is taken", func() bool { return c.Position().Revision == 60 })
	cancel()
	<-done
}
