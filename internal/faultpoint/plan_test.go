package faultpoint

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, file string, rules ...Rule) {
	t.Helper()
	var text []byte
	for _, r := range rules {
		text = append(text, r.String()+"\n"...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRulesTakeEffectWhileTheyAreThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "points")
	p := Open(file)
	check := func(label, on string, want error) {
		t.Helper()
		if err := p.At(label, on); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("at %s %s: got %v, want %v", label, on, err, want)
		}
	}
	check("sync", "a", nil)
	fail := Rule{Fail, "sync", "a", 0}
	write(t, file, fail, Rule{Full, "sync", Any, 0})
	check("sync", "a", syscall.EIO)
	check("sync", "b", syscall.ENOSPC)
	check("rename", "a", nil)
	write(t, file)
	check("sync", "a", nil)
	if n := Hits(file)[fail]; n != 1 {
		t.Errorf("the rule took effect once, hits say %d times", n)
	}
}

// TestSpentOverRestarts: what has happened as often as it should does not happen
// to the next process, which would otherwise never come up.
func TestSpentOverRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "points")
	write(t, file, Rule{Fail, "sync", Any, 2})
	for i, want := range []bool{true, true, false, false} {
		if got := Open(file).At("sync", "a") != nil; got != want {
			t.Errorf("process %d: failed %v, want %v", i, got, want)
		}
	}
}

func TestHangEndsWithItsRule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "points")
	write(t, file, Rule{Hang, "sync", Any, 0})
	synctest.Test(t, func(t *testing.T) {
		done := make(chan error, 1)
		go func() { done <- Open(file).At("sync", "a") }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it did not hang")
		default:
		}
		write(t, file)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestParseRefusesWhatIsNoRule(t *testing.T) {
	for _, text := range []string{"fail sync\n", "explode sync * 1\n", "fail sync * often\n"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// TestPointsAreNothingWithoutTheTag: this test is built as the program is shipped.
func TestPointsAreNothingWithoutTheTag(t *testing.T) {
	if Enabled {
		t.Skip("built with the tag")
	}
	file := filepath.Join(t.TempDir(), "points")
	write(t, file, Rule{Fail, "sync", Any, 0})
	t.Setenv(Env, file)
	if err := At("sync", "a"); err != nil {
		t.Error(err)
	}
}
