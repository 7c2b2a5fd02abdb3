package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"domicile/internal/durable"

	"github.com/hashicorp/go-hclog"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Store is a node's data folder.
type Store struct {
	cfg     Config
	log     hclog.Logger
	id      string
	db      *bolt.DB
	records recordQueue
	holder  atomic.Pointer[Holder]
	handed  atomic.Pointer[Handed]
	stats   counters
	chunks  sync.Pool // *[]byte of walChunk bytes
	empty   emptyFile
	slots   slots
	sizes   sizes
	closed  closedUnits

	stop context.CancelFunc
	done chan struct{} // closed when the janitor has ended
}

type counters struct {
	commits, applied, syncs, checkpoints, interrupts atomic.Uint64
}

const formatVersion = 1

// Open opens the data folder, and makes it where it is not there or empty.
// What a crash has left half done in it is finished or removed. ErrFormat: a
// newer version's, or a folder with something else in it. ErrLocked: another
// process uses it.
func Open(cfg Config) (*Store, error) {
	cfg.setDefaults()
	s := &Store{cfg: cfg, log: cfg.Logger, done: make(chan struct{})}
	s.chunks.New = func() any { b := make([]byte, walChunk); return &b }
	s.slots.init(cfg.MaxOpen)
	var err error
	if s.id, err = openFormat(cfg.Dir); err != nil {
		return nil, err
	}
	if err = recordsThere(cfg.Dir); err != nil {
		return nil, err
	}
	if s.db, err = openRegistry(cfg.Dir, time.Second); err != nil {
		return nil, err
	}
	for _, f := range []func() error{s.loadHolder, s.loadHanded, s.emptyTmp, s.finishIntents} {
		if err := f(); err != nil {
			s.db.Close()
			return nil, fmt.Errorf("open %s: %w", cfg.Dir, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go s.janitor(ctx)
	return s, nil
}

func (cfg *Config) setDefaults() {
	def := func(p *int64, v int64) {
		if *p <= 0 {
			*p = v
		}
	}
	defInt := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	defInt(&cfg.MaxOpen, defaultMaxOpen())
	defInt(&cfg.Readers, 4)
	defInt(&cfg.Ring, 1024)
	def((*int64)(&cfg.IdleClose), int64(5*time.Minute))
	def((*int64)(&cfg.MaxReader), int64(5*time.Second))
	def(&cfg.CheckpointBytes, 4<<20)
	def(&cfg.MaxWALBytes, 64<<20)
}

// defaultMaxOpen allows for six descriptors a unit: the writer's three (the
// database, the WAL and its index), a second reader's two and the node's own.
func defaultMaxOpen() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 100
	}
	free := min(lim.Cur, 1<<20) - min(lim.Cur/4, 512)
	return max(8, min(3000, int(free/6)))
}

// openFormat reads or makes the format file, and gives the node's id.
func openFormat(dir string) (id string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	path := filepath.Join(dir, "format")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeFormat(dir, path)
	}
	if err != nil {
		return "", fmt.Errorf("read the data folder's format: %w", err)
	}
	var version int
	if _, err := fmt.Sscanf(string(b), "domicile-node %d %16s\n", &version, &id); err != nil || len(id) != 16 {
		return "", fmt.Errorf("%w: %s is not a node's; choose another --data", ErrFormat, path)
	}
	if version > formatVersion {
		return "", fmt.Errorf("%w: %s has version %d, this program knows up to %d; use a newer one", ErrFormat, dir, version, formatVersion)
	}
	return id, nil
}

func makeFormat(dir, path string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read the data folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "format.new" && e.Name() != "lost+found" {
			return "", fmt.Errorf("%w: %s is not empty (%s) and has no format file; choose another --data", ErrFormat, dir, e.Name())
		}
	}
	var b [8]byte
	rand.Read(b[:])
	id := hex.EncodeToString(b[:])
	if err := durable.ReplaceText(path, fmt.Appendf(nil, "domicile-node %d %s\n", formatVersion, id)); err != nil {
		return "", fmt.Errorf("write the data folder's format: %w", err)
	}
	return id, nil
}

// emptyTmp removes what was on its way in, except images that only wait to be
// put in their place.
func (s *Store) emptyTmp() error {
	if err := os.MkdirAll(s.tmpDir(), 0o700); err != nil {
		return err
	}
	wanted := map[string]bool{}
	err := s.intents(func(r *stored) error { wanted[r.Image], wanted[r.Image+".pos"] = true, true; return nil })
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.tmpDir())
	for _, e := range entries {
		if !wanted[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(s.tmpDir(), e.Name())))
		}
	}
	return err
}

// emptyFile is an empty database in WAL mode, to be copied for each new unit:
// switching a database to that mode costs several syncs. SQLite makes it when
// the first unit is made.
type emptyFile struct {
	mu   sync.Mutex
	file []byte
}

func (e *emptyFile) get(tmp string) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil {
		return e.file, nil
	}
	path := filepath.Join(tmp, "empty.db")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r, err := openRaw(path, true)
	if err != nil {
		return nil, err
	}
	// Setting user_version makes SQLite write the first page.
	err = r.exec("PRAGMA journal_mode=WAL; PRAGMA user_version=1; PRAGMA user_version=0")
	r.close()
	var file []byte
	if err == nil {
		file, err = os.ReadFile(path)
	}
	if err == nil {
		_, err = parseDBHeader(file)
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		return nil, err
	}
	e.file = file
	return file, nil
}

// Close ends subscriptions and transactions, empties every WAL into its
// database and closes everything. Acquired units are gone then.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	s.closeAll()
	return s.db.Close()
}

// ID is the node's own id, made with the folder: 16 hex digits.
func (s *Store) ID() string { return s.id }

// Stats gives the counters.
func (s *Store) Stats() Stats {
	return Stats{OpenUnits: s.slots.openNow(), Commits: s.stats.commits.Load(), Applied: s.stats.applied.Load(), Syncs: s.stats.syncs.Load(),
		Checkpoints: s.stats.checkpoints.Load(), Interrupts: s.stats.interrupts.Load()}
}

func (s *Store) tmpDir() string { return filepath.Join(s.cfg.Dir, "tmp") }

func (s *Store) unitPath(name string) string {
	return filepath.Join(s.cfg.Dir, "units", shardOf(name), name+".db")
}

func (s *Store) fault(op FileOp, unit string) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(op, unit)
}

func (s *Store) waitedInVain(what string, ctx context.Context) error {
	s.stats.interrupts.Add(1)
	return fmt.Errorf("%w waiting for %s: %w", ErrInterrupted, what, context.Cause(ctx))
}

// diskError gives an error of the file system its meaning here.
func diskError(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrDiskFull), errors.Is(err, ErrIO):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %w", ErrIO, err)
	}
	return err
}

// ownFiles are the files of the unit at path, the database last.
func ownFiles(path string) []string {
	pos := posPath(path)
	return []string{path + "-wal", path + "-shm", path + "-journal", pos, pos + ".new", applyPath(path), path}
}
