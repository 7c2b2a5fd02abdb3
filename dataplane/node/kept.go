package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"domicile/internal/durable"
)

// kept is what the node itself keeps in its data folder, beside its units: the file
// node.json. It is lease.Mark.
type kept struct {
	path string

	mu  sync.Mutex
	now keptFields
}

type keptFields struct {
	// As is the node's own address, as the directory records it.
	As string `json:"as,omitempty"`
	// Tokens are what this node shows to the nodes that it follows, by address, so that
	// it follows them again at its start without the control plane (3.5.10, L10).
	Tokens map[string]string `json:"tokens,omitempty"`
	// PromisedMS is the longest promise that may still run (architecture §3.5.10).
	PromisedMS int64 `json:"promised_ms,omitempty"`
}

func openKept(dir string) (*kept, error) {
	k := &kept{path: filepath.Join(dir, "node.json")}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k.now)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k.path, err)
	}
	return k, nil
}

func (k *kept) address() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now.As
}

func (k *kept) tokens() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.now.Tokens)
}

// keepSource keeps the node's own address, and what it shows to a node that it follows.
func (k *kept) keepSource(s source) error {
	return k.change(func(f *keptFields) {
		f.As = s.as
		if f.Tokens == nil {
			f.Tokens = make(map[string]string)
		}
		f.Tokens[s.from] = s.token
	})
}

// keepSources forgets what is shown to nodes that are not followed.
func (k *kept) keepSources(followed map[string]bool) error {
	return k.change(func(f *keptFields) {
		maps.DeleteFunc(f.Tokens, func(from, _ string) bool { return !followed[from] })
		if len(f.Tokens) == 0 {
			f.Tokens = nil
		}
	})
}

// Longest implements lease.Mark.
func (k *kept) Longest() (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.now.PromisedMS) * time.Millisecond, nil
}

// Keep implements lease.Mark.
func (k *kept) Keep(d time.Duration) error {
	ms := (d + time.Millisecond - 1).Milliseconds() // never less
	return k.change(func(f *keptFields) { f.PromisedMS = ms })
}

// change puts the file in its place durably: the new one is whole before the old one
// goes.
func (k *kept) change(f func(*keptFields)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.now
	next.Tokens = maps.Clone(next.Tokens)
	if f(&next); next.As == k.now.As && next.PromisedMS == k.now.PromisedMS && maps.Equal(next.Tokens, k.now.Tokens) {
		return nil
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = durable.ReplaceText(k.path, text)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	k.now = next
	return nil
}
