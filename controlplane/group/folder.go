package group

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"domicile/fsm"
	"domicile/internal/durable"
)

// formatVersion is that of the data folder. A folder of a newer one is refused.
const formatVersion = 1

const (
	formatFile   = "format"
	raftFile     = "raft.db"
	snapshotsDir = "snapshots"
)

// format says whose folder this is. It is replaced as a whole, durably.
type format struct {
	Format  int            `json:"format"`
	ID      fsm.MemberID   `json:"id"`
	Region  fsm.RegionName `json:"region"`
	Cluster string         `json:"cluster,omitempty"` // identity of its group; known once the group is
	// Becoming is the identity that the group gets by a recovery that was begun
	// on this folder: the directory is of one or the other.
	Becoming string `json:"becoming,omitempty"`
	// Founder: this server bootstrapped the group.
	Founder bool `json:"founder,omitempty"`
	// Started: raft.db was made; when it is missing now, it was lost.
	Started bool `json:"started,omitempty"`
	// Joined is the log index from which on this server belongs to the group;
	// a removal before it was an earlier server's of the same id.
	Joined uint64 `json:"joined,omitempty"`
	// Removed: the group removed this server (see ErrRemoved).
	Removed bool `json:"removed,omitempty"`
}

// folder is a server's data folder.
type folder struct {
	dir string
	mu  sync.Mutex // held while format is changed, once the server runs
	format
}

func (f *folder) refuse(text string, args ...any) error {
	return &FolderError{Dir: f.dir, Text: fmt.Sprintf(text, args...)}
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// openFolder makes or checks the folder. It does not lock it: opening raft.db
// does, before anything in it is changed.
func openFolder(dir string, id fsm.MemberID, region fsm.RegionName) (*folder, error) {
	f := &folder{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, f.refuse("cannot be made: %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // the directory holds tokens
		return nil, f.refuse("cannot be closed to others: %v", err)
	}
	found, err := f.load()
	if err != nil {
		return nil, err
	}
	if found {
		return f, f.check(id, region)
	}
	if _, err := os.Stat(f.path(raftFile)); err == nil {
		return nil, f.refuse("it has a log but no %q file that says whose it is; restore that file, or empty the folder and let the server join again", formatFile)
	}
	f.format = format{Format: formatVersion, ID: id, Region: region}
	return f, nil
}

func (f *folder) load() (bool, error) {
	text, err := os.ReadFile(f.path(formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, f.refuse("cannot be read: %v", err)
	}
	if err := json.Unmarshal(text, &f.format); err != nil || f.Format < 1 {
		return false, f.refuse("its file %q is damaged; restore it, or empty the folder and let the server join again", formatFile)
	}
	return true, nil
}

func (f *folder) check(id fsm.MemberID, region fsm.RegionName) error {
	switch {
	case f.Format > formatVersion:
		return f.refuse("it was written by a newer version (format %d; this one knows %d); start that version, or a newer one", f.Format, formatVersion)
	case f.Removed:
		return &FolderError{Dir: f.dir, Text: ErrRemoved.Error(), Err: ErrRemoved}
	case f.ID != id:
		return f.refuse("it belongs to server %q, not to %q; start with that id or another folder", f.ID, id)
	case f.Region != region:
		return f.refuse("it keeps the directory of %s, not of %s; start with that region or another folder", nameRegion(f.Region), nameRegion(region))
	case f.Started:
		return f.checkLog()
	}
	return nil
}

func nameRegion(r fsm.RegionName) string {
	if r == "" {
		return "all regions (no region named)"
	}
	return fmt.Sprintf("region %q", r)
}

// checkLog looks at raft.db before bbolt maps it: reading a mapped file beyond
// its end kills the process, and an empty file would be made anew in silence.
func (f *folder) checkLog() error {
	const lost = "empty the folder, remove the server from its group, and let it join again"
	file, err := os.Open(f.path(raftFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f.refuse("its log %s is gone; %s", raftFile, lost)
	}
	if err != nil {
		return f.refuse("its log cannot be read: %v", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return f.refuse("its log cannot be read: %v", err)
	}
	need, ok := boltSize(file)
	if !ok {
		return f.refuse("its log %s is damaged (%d bytes, no valid header); %s", raftFile, info.Size(), lost)
	}
	if info.Size() < need {
		return f.refuse("its log %s was cut short (%d bytes of at least %d); %s", raftFile, info.Size(), need, lost)
	}
	return nil
}

// boltSize reads from the newer valid meta page of a bbolt file how many bytes
// it must have. Layout: page header of 16 bytes, then magic, version, page
// size, flags (uint32 each), root (16 bytes), freelist, high-water page,
// transaction, FNV-64a of what precedes (uint64 each).
func boltSize(file *os.File) (int64, bool) {
	const header, meta = 16, 64
	var size int64
	var newest uint64
	found := false
	buf := make([]byte, header+meta)
	for _, at := range []int64{0, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		if _, err := file.ReadAt(buf, at); err != nil {
			continue
		}
		m := buf[header:]
		sum := fnv.New64a()
		sum.Write(m[:56])
		pageSize := int64(binary.NativeEndian.Uint32(m[8:]))
		if binary.NativeEndian.Uint32(m) != 0xED0CDAED || sum.Sum64() != binary.NativeEndian.Uint64(m[56:]) || at != 0 && at != pageSize {
			continue
		}
		if tx := binary.NativeEndian.Uint64(m[48:]); !found || tx > newest {
			found, newest, size = true, tx, int64(binary.NativeEndian.Uint64(m[40:]))*pageSize
		}
	}
	return size, found
}

// save replaces the format file and returns once it is on disk.
func (f *folder) save(next format) error {
	text, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(f.path(formatFile)); err == nil && bytes.Equal(old, append(text, '\n')) {
		f.format = next
		return nil
	}
	if err := durable.ReplaceText(f.path(formatFile), append(text, '\n')); err != nil {
		return f.refuse("its file %q cannot be written: %v", formatFile, err)
	}
	f.format = next
	return nil
}

// sweepSnapshots deletes what failed snapshots left behind: the library never
// does. It is called while no snapshot is being written.
func (f *folder) sweepSnapshots() error {
	entries, err := os.ReadDir(f.path(snapshotsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.RemoveAll(filepath.Join(f.path(snapshotsDir), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// discardSnapshot removes the leavings of one failed snapshot.
func (f *folder) discardSnapshot(id string) error {
	return os.RemoveAll(filepath.Join(f.path(snapshotsDir), id+".tmp"))
}

// newCluster draws the id of a new group.
func newCluster() string {
	var id [8]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
