package hrana

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is a Session that executes nothing but transaction control. It stands for the
// node in tests of what a stream keeps and for how long; package node tests the
// protocol on SQLite.
type script struct {
	mu     sync.Mutex // streams expire in goroutines of their own
	open   bool
	closed int
	ran    []string
	fail   map[string]error
}

func (s *script) Session() Session { return s }

func (s *script) Execute(_ context.Context, st *Stmt, w RowWriter) (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = append(s.ran, st.SQL)
	if err := s.fail[st.SQL]; err != nil {
		return Outcome{}, err
	}
	switch st.SQL {
	case "begin":
		s.open = true
	case "commit", "rollback":
		s.open = false
	case "insert":
		return Outcome{Affected: 1, Committed: !s.open}, nil
	}
	return Outcome{}, nil
}

func (s *script) Sequence(ctx context.Context, sql string) (Outcome, error) {
	return s.Execute(ctx, &Stmt{SQL: sql}, nil)
}

func (s *script) Describe(context.Context, string) (Description, error) { return Description{}, nil }
func (s *script) Autocommit() bool                                      { return !s.inTx() }

func (s *script) inTx() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *script) closings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *script) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
	s.closed++
}

// client is one stream of tests.
type client struct {
	t     *testing.T
	s     *Streams
	db    DB
	unit  string
	baton string
}

func newStreams(t *testing.T, cfg Config) *Streams {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (c *client) send(requests string) (string, error) {
	c.t.Helper()
	body := `{"requests":[` + requests + `]}`
	if c.baton != "" {
		body = `{"baton":"` + c.baton + `","requests":[` + requests + `]}`
	}
	req, err := ParsePipeline(V3, []byte(body))
	if err != nil {
		return "", err
	}
	defer req.Release()
	out, err := c.s.Pipeline(c.t.Context(), c.unit, c.db, req, nil)
	if err != nil {
		return "", err
	}
	var answer struct {
		Baton *string
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	c.baton = ""
	if answer.Baton != nil {
		c.baton = *answer.Baton
	}
	return string(out), nil
}

func (c *client) must(requests string) string {
	c.t.Helper()
	out, err := c.send(requests)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func ex(sql string) string { return fmt.Sprintf(`{"type":"execute","stmt":{"sql":%q}}`, sql) }

func TestTransactionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &script{}
		c := &client{t: t, s: newStreams(t, Config{}), db: db, unit: "u"}
		c.must(ex("begin"))
		time.Sleep(4 * time.Second)
		c.must(ex("insert")) // the clock starts again
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if !db.inTx() {
			t.Fatal("rolled back before its time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if db.inTx() || db.closings() != 1 || c.s.Kept() != 0 {
			t.Fatalf("not rolled back: %+v, %d kept", db, c.s.Kept())
		}
		if _, err := c.send(ex("commit")); !errors.Is(err, ErrExpired) {
			t.Errorf("%v", err)
		}
		if last := db.ran[len(db.ran)-1]; last != "insert" {
			t.Errorf("%s was executed on an expired stream", last)
		}
	})
}

func TestIdleStreamExpiresAfterMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{t: t, s: newStreams(t, Config{}), db: &script{}, unit: "u"}
		c.must(ex("select"))
		stored := &client{t: t, s: c.s, db: &script{}, unit: "u"}
		stored.must(`{"type":"store_sql","sql_id":1,"sql":"select"}`)
		if c.s.Kept() != 1 {
			t.Errorf("%d kept: a stream with nothing to keep is", c.s.Kept())
		}
		time.Sleep(4 * time.Minute)
		c.must(ex("select"))
		stored.must(`{"type":"execute","stmt":{"sql_id":1}}`)
		time.Sleep(5*time.Minute + 2*time.Second)
		synctest.Wait()
		for _, c := range []*client{c, stored} {
			if _, err := c.send(ex("select")); !errors.Is(err, ErrExpired) {
				t.Errorf("%v", err)
			}
		}
		if c.s.Kept() != 0 {
			t.Errorf("%d kept", c.s.Kept())
		}
	})
}

func TestBatonsCannotBeForged(t *testing.T) {
	s := newStreams(t, Config{Secret: []byte("secret")})
	c := &client{t: t, s: s, db: &script{}, unit: "u"}
	c.must(ex("begin"))
	kept := c.baton
	raw, err := batonEncoding.DecodeString(kept)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for _, bit := range []byte{1, 0x80} {
			forged := bytes.Clone(raw)
			forged[i] ^= bit
			c.baton = batonEncoding.EncodeToString(forged)
			if _, err := c.send(ex("insert")); !errors.Is(err, errInvalidBaton) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
	for _, other := range []string{kept[:len(kept)-1], kept + "A", kept + "=", base64.StdEncoding.EncodeToString(raw), "x"} {
		c.baton = other
		if _, err := c.send(ex("insert")); !errors.Is(err, errInvalidBaton) {
			t.Errorf("%s: %v", other, err)
		}
	}
	c.baton, c.unit = kept, "u2"
	if _, err := c.send(ex("insert")); !errors.Is(err, errInvalidBaton) {
		t.Errorf("another unit: %v", err)
	}
	c.baton, c.unit = kept, "u"
	c.must(ex("insert"))
	c.baton = kept
	if _, err := c.send(ex("insert")); !errors.Is(err, errUsedBaton) {
		t.Errorf("twice: %v", err)
	}
}

func TestBatonsAreNew(t *testing.T) {
	c := &client{t: t, s: newStreams(t, Config{}), db: &script{}, unit: "u"}
	seen := map[string]bool{}
	for range 100 {
		c.must(ex("select"))
		if seen[c.baton] {
			t.Fatal("a baton came twice")
		}
		seen[c.baton] = true
	}
}

func TestRefusalAnswersTheWholeRequestWhereNothingWasDone(t *testing.T) {
	frozen := errors.New("frozen")
	refused := &Refused{Err: frozen, Code: "transfer_in_progress"}
	unknown := &Refused{Err: errors.New("unknown"), Code: "outcome_unknown", Final: true}
	for _, c := range []struct {
		name, requests string
		err            error
		whole          bool
	}{
		{"at once", ex("refused"), refused, true},
		{"after a read", ex("select") + "," + ex("refused"), refused, true},
		{"in a new transaction", ex("begin") + "," + ex("insert") + "," + ex("refused"), refused, true},
		{"in a batch", `{"type":"batch","batch":{"steps":[{"stmt":{"sql":"refused"}}]}}`, refused, true},
		{"after a commit", ex("insert") + "," + ex("refused"), refused, false},
		{"final after a commit", ex("insert") + "," + ex("refused"), unknown, true},
	} {
		db := &script{fail: map[string]error{"refused": c.err}}
		cl := &client{t: t, s: newStreams(t, Config{}), db: db, unit: "u"}
		out, err := cl.send(c.requests)
		if c.whole != (err != nil) {
			t.Errorf("%s: %v %s", c.name, err, out)
		}
		if !c.whole && !strings.Contains(out, `"code":"transfer_in_progress"`) {
			t.Errorf("%s: %s", c.name, out)
		}
		if c.whole && (db.inTx() || cl.s.Kept() != 0) {
			t.Errorf("%s: something was kept", c.name)
		}
	}
	db := &script{fail: map[string]error{"refused": refused}}
	cl := &client{t: t, s: newStreams(t, Config{}), db: db, unit: "u"}
	cl.must(ex("begin"))
	if out := cl.must(ex("refused")); !strings.Contains(out, "transfer_in_progress") || !db.inTx() {
		t.Errorf("a transaction of an earlier request was given up for a refusal: %s", out)
	}
}

func TestEndUnitAndClose(t *testing.T) {
	s := newStreams(t, Config{})
	a, b := &client{t: t, s: s, db: &script{}, unit: "a"}, &client{t: t, s: s, db: &script{}, unit: "b"}
	a.must(ex("begin"))
	b.must(ex("begin"))
	s.EndUnit("a")
	if a.db.(*script).inTx() || !b.db.(*script).inTx() {
		t.Error("not the streams of the unit were ended")
	}
	s.Close()
	if b.db.(*script).inTx() {
		t.Error("Close leaves a transaction open")
	}
	c := &client{t: t, s: s, db: &script{}, unit: "c"}
	c.must(ex("begin"))
	if c.baton != "" || c.db.(*script).inTx() {
		t.Error("a closed Streams keeps a transaction")
	}
}

func TestNoMoreStreamsThanAllowed(t *testing.T) {
	s := newStreams(t, Config{MaxStreams: 1})
	a, b := &client{t: t, s: s, db: &script{}, unit: "u"}, &client{t: t, s: s, db: &script{}, unit: "u"}
	a.must(ex("begin"))
	b.must(ex("begin"))
	if b.baton != "" || b.db.(*script).inTx() || a.baton == "" {
		t.Error("one stream too many is kept")
	}
}

func TestStoredStatements(t *testing.T) {
	c := &client{t: t, s: newStreams(t, Config{}), db: &script{}, unit: "u"}
	store := func(id int) string { return fmt.Sprintf(`{"type":"store_sql","sql_id":%d,"sql":"select"}`, id) }
	c.must(store(1))
	if _, err := c.send(store(1)); err == nil {
		t.Error("a number was stored twice")
	}
	c.baton = ""
	var all []string
	for i := range maxStored + 1 {
		all = append(all, store(i))
	}
	out := c.must(strings.Join(all, ","))
	if got := strings.Count(out, CodeStoreTooMany); got != 1 {
		t.Errorf("%d are too many", got)
	}
	out = c.must(`{"type":"close_sql","sql_id":3},` + store(3) + `,{"type":"close"},` + ex("select"))
	if strings.Count(out, `"type":"error"`) != 1 || !strings.Contains(out, CodeStreamClosed) || c.baton != "" {
		t.Errorf("%s", out)
	}
}

func TestFirstWord(t *testing.T) {
	for sql, want := range map[string]string{
		"": "", "begin": "begin", " \t\n;; BEGIN x": "BEGIN", "-- c\nbegin": "begin", "/* c */savepoint a": "savepoint",
		"/* begin": "", "--begin": "", "\ufeffbegin": "begin", "select": "select", "(select": "",
	} {
		if got := firstWord(sql); got != want {
			t.Errorf("%q: %q", sql, got)
		}
	}
}
