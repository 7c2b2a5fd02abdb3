package durable

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAReplacementThatFailsLeavesTheOldFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := ReplaceText(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space")
	err := Replace(path, func(w io.Writer) error {
		_, _ = w.Write([]byte("half of the new"))
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if text, _ := os.ReadFile(path); string(text) != "old" || err != nil || len(files) != 1 {
		t.Errorf("the file holds %q, beside it there are %v (%v)", text, files, err)
	}
}

func TestWhatACrashLeftIsOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+".new", []byte("a long text that a crash has cut off somew"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceText(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); string(text) != "new" {
		t.Errorf("the file holds %q (%v)", text, err)
	}
}

func TestAFileThatIsNotWholeIsNotTaken(t *testing.T) {
	f := Format{Magic: "some file\n", Version: 2}
	want := []byte("the body")
	var file bytes.Buffer
	if err := f.Write(&file, func(w *bufio.Writer) error { _, err := w.Write(want); return err }); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	if got, err := f.Body(whole); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
	for cut := range whole {
		if got, err := f.Body(whole[:cut]); err == nil {
			t.Errorf("the first %d of %d bytes were taken: %q", cut, len(whole), got)
		}
	}
	for i := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			if got, err := f.Body(flipped); err == nil {
				t.Errorf("with bit %d of byte %d flipped it was taken: %q", bit, i, got)
			}
		}
	}
	if _, err := (Format{Magic: f.Magic, Version: 3}).Body(whole); err == nil || errors.Is(err, ErrGarbled) {
		t.Errorf("another version: %v", err)
	}
	if err := f.Write(io.Discard, func(*bufio.Writer) error { return io.ErrShortWrite }); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a body that cannot be written: %v", err)
	}
}
