package replica

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// losses is the durable record of what was given up: a file to which a line of
// JSON is added for each loss. Losses are few: one for each unit of a node that
// comes back after a failover, at most.
type losses struct {
	path string

	mu sync.Mutex
	m  map[string]Lost
}

type lossLine struct {
	Unit string `json:"unit"`
	Lost
	Chain uint64 `json:"chain"`
}

func openLosses(path string) (*losses, error) {
	l := &losses{path: path, m: map[string]Lost{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of lost commits: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		var e lossLine
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line, cut by a crash: nobody was told of it
		}
		e.Lost.chain = e.Chain
		l.m[e.Unit] = e.Lost
	}
	return l, nil
}

// of gives a unit's last loss, nil if there was none.
func (l *losses) of(unit string) *Lost {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.m[unit]; ok {
		return &e
	}
	return nil
}

// put records a loss durably.
func (l *losses) put(unit string, e Lost) error {
	line, err := json.Marshal(lossLine{unit, e, e.chain})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// The newline in front ends what a crash may have cut.
	_, err = f.Write(append(append([]byte("\n"), line...), '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return err
	}
	l.m[unit] = e
	return nil
}
