package follow

import (
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
)

var (
	errToken       = errors.New("the server refuses the token: --token must be that of the control servers")
	errUnavailable = errors.New("the server has no directory yet, or cannot serve it (503)")
)

// tellAgain is how often a refused token, which somebody has to mend, is logged while
// it lasts.
const tellAgain = time.Minute

// starting is how long a server may have no directory yet, as when all parts of a
// deployment start at once, before it is worth a warning.
const starting = 5 * time.Second

// troubles is what was logged of streams that ended: each trouble of a server once.
type troubles struct {
	began time.Time
	told  map[string]string // by server
	token time.Time         // when a refused token was logged
}

func newTroubles(now time.Time) *troubles {
	return &troubles{began: now, told: make(map[string]string)}
}

// level is how loudly the end of a stream is to be logged; NoLevel: not at all.
// unheard tells that no server has been heard yet.
func (t *troubles) level(server string, err error, now time.Time, unheard bool) hclog.Level {
	if errors.Is(err, errToken) {
		if !t.token.IsZero() && now.Sub(t.token) < tellAgain {
			return hclog.NoLevel
		}
		t.token = now
		return hclog.Warn
	}
	level := hclog.Warn
	if errors.Is(err, errUnavailable) && unheard && now.Sub(t.began) < starting {
		level = hclog.Debug
	}
	text := level.String() + err.Error()
	if t.told[server] == text {
		return hclog.NoLevel
	}
	t.told[server] = text
	return level
}
