package follow

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestTroublesAreLoggedOnceAndARefusedTokenEachMinute goes by times that it makes up.
func TestTroublesAreLoggedOnceAndARefusedTokenEachMinute(t *testing.T) {
	began := time.Unix(1000, 0)
	told := newTroubles(began)
	broken := errors.New("broken")
	for i, c := range []struct {
		server  string
		err     error
		after   time.Duration
		unheard bool
		want    hclog.Level
	}{
		{"a", errUnavailable, 0, true, hclog.Debug},
		{"a", errUnavailable, time.Second, true, hclog.NoLevel},
		{"b", errUnavailable, time.Second, true, hclog.Debug},
		{"a", errUnavailable, 6 * time.Second, true, hclog.Warn},
		{"a", errUnavailable, 7 * time.Second, true, hclog.NoLevel},
		{"b", errUnavailable, 2 * time.Second, false, hclog.Warn},
		{"a", broken, 8 * time.Second, true, hclog.Warn},
		{"b", broken, 8 * time.Second, true, hclog.Warn},
		{"a", broken, 9 * time.Second, true, hclog.NoLevel},
		{"b", broken, 9 * time.Second, true, hclog.NoLevel},
		{"a", errToken, 10 * time.Second, true, hclog.Warn},
		{"b", errToken, 11 * time.Second, true, hclog.NoLevel},
		{"a", errToken, 69 * time.Second, true, hclog.NoLevel},
		{"b", errToken, 70 * time.Second, true, hclog.Warn},
	} {
		if got := told.level(c.server, c.err, began.Add(c.after), c.unheard); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
}

// TestStatusesOfASubscriptionAreTold: a refused token names its flag.
func TestStatusesOfASubscriptionAreTold(t *testing.T) {
	for status, want := range map[int]error{http.StatusUnauthorized: errToken, http.StatusServiceUnavailable: errUnavailable} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		c, err := New(Config{URLs: []string{s.URL}, Sink: &sink{}, Logger: hclog.NewNullLogger(), HTTP: s.Client()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ask(context.Background(), s.URL); !errors.Is(err, want) {
			t.Errorf("%d: %v", status, err)
		}
	}
	if !strings.Contains(errToken.Error(), "--token") {
		t.Error(errToken)
	}
}
