package lease

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/internal/boottime"
)

// TestO6AServerThatWasLeftBehindSaysSo: a group that was recovered without a server is
// known to it by its nodes' answers, and told once, as an error that says what to do.
func TestO6AServerThatWasLeftBehindSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := boottime.NewRuntime()
		record := leased("n1")
		node := newTestNode(clock)
		node.history = 7
		log := newTestLog(t, 600, []*fsm.Node{record}...)
		var said bytes.Buffer
		net := newNetwork(map[string]*testNode{record.Addr: node})
		k := New(Config{Group: &member{testLog: log, term: 1}, Clock: clock, Logger: hclog.New(&hclog.LoggerOptions{Output: &said}), lines: net.line})
		stop := run(k, 1)
		time.Sleep(5 * time.Second)
		stop()
		net.work.Wait()
		if n := strings.Count(said.String(), "this server was left behind"); n != 1 || !strings.Contains(said.String(), "recovered=7") {
			t.Errorf("told %d times:\n%s", n, said.String())
		}
	})
}
