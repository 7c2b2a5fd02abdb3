package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var tortureUnits = []string{"a", "b", "c"}

// tortureConfig makes checkpoints, restarts of the WAL and closing of units
// happen all the time.
func tortureConfig(dir string) Config {
	maxOpen, _ := strconv.Atoi(os.Getenv("STORE_TORTURE_OPEN"))
	return Config{Dir: dir, MaxOpen: max(2, maxOpen), CheckpointBytes: 40 << 10}
}

// tortureChild writes until it is killed, and says what was acknowledged.
func tortureChild(dir string) {
	s, err := Open(tortureConfig(dir))
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	var out sync.Mutex
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := tortureUnits[rand.IntN(len(tortureUnits))]
				key := rand.Int64()
				pos, err := tortureWrite(s, name, key)
				if err != nil {
					fmt.Println("write:", w, err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println("ack", name, key, pos)
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

func tortureWrite(s *Store, name string, key int64) (Position, error) {
	u, release, err := s.Acquire(context.Background(), name)
	if err != nil {
		return Position{}, err
	}
	defer release()
	return u.Write(context.Background(), func(c *Conn) error {
		_, _, err := c.Exec("INSERT INTO t(k, pad) VALUES(?, randomblob(?))", []Value{IntValue(key), IntValue(key & 0xfff)}, nil)
		return err
	})
}

// TestKilledProcessLosesNothing kills a process that writes, again and again:
// each acknowledged write is there, and the position counts each commit once.
func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, tortureConfig(dir))
	for _, name := range tortureUnits {
		if _, err := s.Create(ctx, name, 1); err != nil {
			t.Fatal(err)
		}
		u, release, err := s.Acquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, u, "CREATE TABLE t(k INTEGER, pad BLOB)")
		release()
	}
	s.Close()
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		// By turns: units are closed and opened all the time, or stay open.
		maxOpen, acks := 2, 40+rand.IntN(80)
		if round%2 == 1 {
			maxOpen, acks = 8, 500+rand.IntN(1000)
		}
		t.Setenv("STORE_TORTURE_OPEN", fmt.Sprint(maxOpen))
		acked := tortureRound(t, dir, acks)
		s := open(t, tortureConfig(dir))
		for _, name := range tortureUnits {
			tortureCheck(t, s, name, acked[name])
		}
		if t.Failed() {
			t.FailNow()
		}
		s.Close()
	}
}

type ack struct {
	key int64
	pos Position
}

// tortureRound kills the child after some acknowledgements and gives them.
func tortureRound(t *testing.T, dir string, acks int) map[string][]ack {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "STORE_TORTURE_DIR="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := map[string][]ack{}
	lines := bufio.NewScanner(stdout)
	for n := 0; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[0] != "ack" {
			t.Error(lines.Text())
			break
		}
		key, _ := strconv.ParseInt(f[2], 10, 64)
		pos, err := ParsePosition(f[3])
		if err != nil {
			t.Error(err)
		}
		acked[f[1]] = append(acked[f[1]], ack{key, pos})
		if n == acks {
			cmd.Process.Kill()
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	return acked
}

func tortureCheck(t *testing.T, s *Store, name string, acked []ack) {
	t.Helper()
	u, release, err := s.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	pos := u.Position()
	rows, _ := strconv.ParseUint(one(t, u, "SELECT count(*) FROM t"), 10, 64)
	if pos != (Position{1, rows + 1}) {
		t.Errorf("unit %s is at %s after %d commits", name, pos, rows+1)
	}
	for _, a := range acked {
		if a.pos.Compare(pos) > 0 {
			t.Errorf("unit %s went back from %s to %s", name, a.pos, pos)
		}
		if n := one(t, u, "SELECT count(*) FROM t WHERE k=?", IntValue(a.key)); n != "1" {
			t.Errorf("unit %s: the write acknowledged at %s is there %s times", name, a.pos, n)
		}
	}
	if v := one(t, u, "PRAGMA integrity_check"); v != "ok" {
		t.Errorf("unit %s: %s", name, v)
	}
}
