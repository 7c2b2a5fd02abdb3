package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A copy's side record: before each transaction that applies entries, where
// the copy will be after it is written to the unit's .apply file. It has two
// slots, used by turns, so that the record of the last transaction that was
// made stays while the next one is announced. The transaction's place in the
// WAL tells which of them came to be. Record and WAL are synced together.

// appliedRecord announces one transaction of a copy.
type appliedRecord struct {
	Number        uint64
	Before, After Mark
	Salt1, Salt2  uint32 // of the WAL's generation before it
	Frames        uint32 // in the WAL before it
}

const (
	appliedMagic = "DMAPL\x00\x00\x01"
	appliedSize  = 80
	appliedSlot  = 4096 // apart, so that a torn write spoils one of them
)

// applyPath is where the side record of the unit at path is kept.
func applyPath(path string) string { return strings.TrimSuffix(path, ".db") + ".apply" }

func (a *appliedRecord) encode() []byte {
	b := make([]byte, appliedSize)
	le := binary.LittleEndian
	copy(b, appliedMagic)
	for i, v := range [...]uint64{a.Number, a.Before.Position.Epoch, a.Before.Position.Seq, a.Before.Chain,
		a.After.Position.Epoch, a.After.Position.Seq, a.After.Chain} {
		le.PutUint64(b[8+8*i:], v)
	}
	le.PutUint32(b[64:], a.Salt1)
	le.PutUint32(b[68:], a.Salt2)
	le.PutUint32(b[72:], a.Frames)
	le.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
	return b
}

func decodeApplied(b []byte) (a appliedRecord, ok bool) {
	le := binary.LittleEndian
	if len(b) < appliedSize || string(b[:8]) != appliedMagic || le.Uint32(b[76:]) != crc32.Checksum(b[:76], castagnoli) {
		return a, false
	}
	for i, p := range [...]*uint64{&a.Number, &a.Before.Position.Epoch, &a.Before.Position.Seq, &a.Before.Chain,
		&a.After.Position.Epoch, &a.After.Position.Seq, &a.After.Chain} {
		*p = le.Uint64(b[8+8*i:])
	}
	a.Salt1, a.Salt2, a.Frames = le.Uint32(b[64:]), le.Uint32(b[68:]), le.Uint32(b[72:])
	return a, true
}

// readApplied gives the records that verify, newest first.
func readApplied(path string) ([]appliedRecord, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []appliedRecord
	for slot := range int64(2) {
		b := make([]byte, appliedSize)
		if _, err := f.ReadAt(b, slot*appliedSlot); err != nil && err != io.EOF {
			return nil, err
		}
		if a, ok := decodeApplied(b); ok {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b appliedRecord) int { return cmp.Compare(b.Number, a.Number) })
	return out, nil
}

// applyFile is a .apply file in use.
type applyFile struct {
	f    *os.File
	next uint64 // number of the next record
}

// openApplyFile opens or makes the file for a copy that is at the given mark.
// The number is such that the record of how it came there is kept, and one of a
// transaction that never came to be is not.
func openApplyFile(path string, at Mark) (*applyFile, error) {
	applied, err := readApplied(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(2 * appliedSlot); err != nil {
		f.Close()
		return nil, err
	}
	a := &applyFile{f: f, next: 1}
	if len(applied) > 0 {
		a.next = applied[0].Number + 1
		if n := &applied[0]; n.After.Chain != at.Chain || n.After.Position.Seq != at.Position.Seq {
			a.next = n.Number
		}
	}
	return a, nil
}

// write announces a transaction; not durable yet.
func (a *applyFile) write(rec *appliedRecord) error {
	rec.Number = a.next
	_, err := a.f.WriteAt(rec.encode(), int64(a.next%2)*appliedSlot)
	return err
}

// again writes what the file has once more and syncs it: after a sync that
// failed the kernel takes it for written.
func (a *applyFile) again() error {
	b := make([]byte, 2*appliedSlot)
	if _, err := a.f.ReadAt(b, 0); err != nil {
		return err
	}
	if _, err := a.f.WriteAt(b, 0); err != nil {
		return err
	}
	return a.sync()
}

func (a *applyFile) sync() error {
	if err := unix.Fdatasync(int(a.f.Fd())); err != nil {
		return &os.PathError{Op: "fdatasync", Path: a.f.Name(), Err: err}
	}
	return nil
}
