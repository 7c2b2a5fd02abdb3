package http1

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// upload sends the part of a body that had not come with the head, on a
// goroutine of its own, while the connection's goroutine waits for the answer:
// an answer that comes early is seen at once, and 100 Continue needs no care.
type upload struct {
	running bool
	last    atomic.Bool   // the last piece is being written, or was
	over    atomic.Bool   // the goroutine is about to end: the fields below are set
	done    chan struct{} // closed when it has ended

	fromClient error // why the body could not be read; io.EOF where all was sent
	toNode     error // why it could not be sent
}

// start begins to send what src still has.
func (u *upload) start(c *conn, src *bodySource, to *upConn) {
	u.running, u.fromClient, u.toNode = true, nil, nil
	u.last.Store(false)
	u.over.Store(false)
	u.done = make(chan struct{})
	c.uploaded.Store(0)
	c.uploading.Store(!c.x.req.msg.expect100) // else once it was told to go on
	go u.run(c, src, to)
}

func (u *upload) run(c *conn, src *bodySource, to *upConn) {
	defer close(u.done)
	for {
		piece, err := src.next(c)
		if err != nil {
			u.fromClient = err
			break
		}
		c.uploading.Store(true)
		c.uploaded.Add(int64(len(piece)))
		c.progress(phaseWait)
		u.last.Store(src.done)
		c.waitsForNode.Store(true)
		err = to.write(piece)
		c.waitsForNode.Store(false)
		c.progress(phaseWait)
		if err != nil {
			u.toNode = err
			break
		}
		if src.done {
			u.fromClient = io.EOF
			break
		}
	}
	c.uploading.Store(false)
	u.over.Store(true)
	if u.fromClient != nil && u.fromClient != io.EOF {
		_ = to.nc.SetReadDeadline(past) // the answer is not waited for
	}
}

// lastWrite is how long an answer waits for the write that it answers to
// return. A node that answers early, and does not read on, costs its client this.
const lastWrite = 10 * time.Millisecond

// complete tells whether nothing is left to send, once an answer is there. The
// answer to the last piece may be seen before the goroutine that wrote it has run on.
func (u *upload) complete() bool {
	if u.running && u.last.Load() && !u.over.Load() {
		t := time.NewTimer(lastWrite)
		defer t.Stop()
		select {
		case <-u.done:
		case <-t.C:
		}
	}
	return !u.running || (u.over.Load() && u.fromClient == io.EOF)
}

// failed gives why the client's body could not be read, if it could not.
func (u *upload) failed() error {
	if u.running && u.over.Load() && u.fromClient != io.EOF {
		return u.fromClient
	}
	return nil
}

// stop ends it and waits for its goroutine. What it has read stays in its
// source. The upstream connection may not be used after that unless the upload
// was complete.
func (u *upload) stop(c *conn) {
	if !u.running {
		return
	}
	u.running = false
	if !u.over.Load() {
		_ = c.sock.nc.SetReadDeadline(past)
		if up := c.up.Load(); up != nil {
			_ = up.nc.SetWriteDeadline(past)
		}
		<-u.done
		c.revive()
		return
	}
	<-u.done
}

// brokenBody gives the answer to a body that could not be read, nil where the
// client has gone.
func brokenBody(err error) *reject {
	var r *reject
	if errors.As(err, &r) {
		return r
	}
	return nil
}
