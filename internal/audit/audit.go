package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Entry is a line of the log.
type Entry struct {
	At     time.Time `json:"at"`    // RFC 3339, UTC
	Event  Event     `json:"event"` // what kind of line it is
	Method string    `json:"method"`
	Path   string    `json:"path"` // without the query
	Status int       `json:"http_status"`
	Peer   string    `json:"peer"` // address of the other end of the connection
	// Origin is who asked the server that relayed this to the one that writes, which says so.
	Origin    string `json:"origin,omitempty"`
	RequestID string `json:"request_id"`
}

// Event is the kind of an Entry.
type Event string

// Events.
const (
	RefusedToken Event = "refused_token"
	Change       Event = "change" // asked for; http_status says what came of it
)

// Log appends entries to a file. Its methods may be called concurrently. A nil
// Log takes entries and drops them.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens the log at path, made if it is not there (mode 0600), and
// appends to it. "" gives a nil Log.
func Open(path string) (*Log, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return &Log{file: file}, nil
}

// Write appends one entry, whole or, where the disk refuses, not at all as far
// as the log can help it.
func (l *Log) Write(e Entry) error {
	if l == nil {
		return nil
	}
	e.At = e.At.UTC()
	var line bytes.Buffer
	enc := json.NewEncoder(&line) // it ends the line
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(line.Bytes()); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
