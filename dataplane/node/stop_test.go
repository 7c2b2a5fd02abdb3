package node

import (
	"errors"
	"sync"
	"testing"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/wait"
)

// TestStopEndsAlthoughTheFolderCannotBeClosed: a statement that nothing interrupts (instr
// of millions of bytes in millions), or a disk that hangs, does not keep the process.
func TestStopEndsAlthoughTheFolderCannotBeClosed(t *testing.T) {
	hangs := make(chan struct{})
	release := sync.OnceFunc(func() { close(hangs) })
	defer release()
	dir := t.TempDir()
	n := startNode(t, func(c *Config) {
		c.CloseTimeout = time.Millisecond
		c.Store.Dir = dir
		c.Store.Fault = func(op store.FileOp, _ string) error {
			if op == store.OpCheckpoint {
				<-hangs
			}
			return nil
		}
	})
	n.tenantWithTable("acme")
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	wait.For(t, "the node to stop", func() error {
		select {
		case err := <-stopped:
			stopped <- err
			return nil
		default:
			return errors.New("it closes its data folder")
		}
	})
	if err := <-stopped; !errors.Is(err, errNotClosed) {
		t.Errorf("%v", err)
	}
	n.stop = func() error { return nil }
	release()
	wait.For(t, "the folder to be free", func() error {
		s, err := store.Open(store.Config{Dir: dir})
		if err == nil {
			err = s.Close()
		}
		return err
	})
}
