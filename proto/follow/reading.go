package follow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// reading checks the frames of one stream and hands them on.
type reading struct {
	client *Client
	server string
	hello  *proto.Hello
	age    time.Duration // of the server's copy, as it last said
	at     Position      // what the sink holds
	load   Loader        // a whole directory that is coming
	to     Position      // what it will be
}

// drop ends what was begun.
func (r *reading) drop() {
	if r.load != nil {
		r.load.Abort()
		r.load = nil
	}
}

func (r *reading) take(f proto.Frame) error {
	if h, ok := f.(*proto.Hello); ok {
		return r.greet(h)
	}
	if r.hello == nil {
		return fmt.Errorf("%w: it does not begin with whose directory it is", proto.ErrFrame)
	}
	switch f := f.(type) {
	case *proto.Begin:
		return r.begin(f)
	case *proto.Chunk:
		if r.load == nil {
			return fmt.Errorf("%w: a part of no directory", proto.ErrFrame)
		}
		return r.load.Add(f.Events)
	case *proto.End:
		return r.end()
	case *proto.Delta:
		return r.change(f)
	case *proto.Heartbeat:
		return r.beat(f)
	}
	return fmt.Errorf("%w: a %T", proto.ErrFrame, f)
}

// greet refuses a directory that is not the one followed.
func (r *reading) greet(h *proto.Hello) error {
	if r.hello != nil {
		return fmt.Errorf("%w: a second greeting", proto.ErrFrame)
	}
	if h.Authority == "" || h.History == 0 {
		return errors.New("the server does not say whose directory it has")
	}
	if r.client.cfg.Directory == proto.GlobalScope && !strings.HasSuffix(h.Authority, "/"+proto.GlobalScope) {
		return fmt.Errorf("the server has the directory of %s, and the global one was asked for", h.Authority)
	}
	if accept := r.client.cfg.Accept; accept != nil {
		if err := accept(Position{Authority: h.Authority, History: h.History}); err != nil {
			return err
		}
	}
	if r.at.Authority != "" {
		switch {
		case h.Authority != r.at.Authority:
			return fmt.Errorf("the server has the directory of %s, this copy is of %s", h.Authority, r.at.Authority)
		case h.History < r.at.History:
			return fmt.Errorf("the server's directory is of history %d, this copy of %d", h.History, r.at.History)
		}
	}
	r.hello, r.age = h, h.Age
	r.client.setServer(r.server)
	return nil
}

// foreign reports whether the sink holds nothing of the stream's history.
func (r *reading) foreign() bool {
	return r.at.Authority != r.hello.Authority || r.at.History != r.hello.History
}

func (r *reading) begin(b *proto.Begin) error {
	if b.Revision == 0 || r.load != nil {
		return fmt.Errorf("%w: a whole directory at revision %d", proto.ErrFrame, b.Revision)
	}
	if !r.foreign() && b.Revision < r.at.Revision {
		return fmt.Errorf("the server's directory is at revision %d, this copy at %d", b.Revision, r.at.Revision)
	}
	r.to = Position{Authority: r.hello.Authority, History: r.hello.History, Revision: b.Revision}
	var err error
	r.load, err = r.client.cfg.Sink.Begin(r.to)
	return err
}

// end puts the whole directory in place: the reader has compared count and
// checksum.
func (r *reading) end() error {
	if r.load == nil {
		return fmt.Errorf("%w: the end of no directory", proto.ErrFrame)
	}
	if err := r.load.Commit(); err != nil {
		return err
	}
	r.load, r.at = nil, r.to
	r.client.hears(r.at, r.age)
	return nil
}

func (r *reading) change(d *proto.Delta) error {
	if r.load != nil || r.foreign() || d.Prev != r.at.Revision || d.Revision <= d.Prev {
		return fmt.Errorf("a change from revision %d to %d does not follow on this copy, which is at %d: %w", d.Prev, d.Revision, r.at.Revision, fsm.ErrGap)
	}
	to := r.at
	to.Revision = d.Revision
	if err := r.client.cfg.Sink.Apply(d.Prev, to, d.Events); err != nil {
		return err
	}
	r.at = to
	r.client.hears(r.at, r.age)
	return nil
}

// beat takes a heartbeat as word that the copy is as current as the server's, when it
// is. A server that is out of touch with its group is left only then: first it has
// given what it has, which may be more than the sink had.
func (r *reading) beat(h *proto.Heartbeat) error {
	if r.load != nil || r.foreign() || h.Revision != r.at.Revision {
		return fmt.Errorf("the server is at revision %d, this copy at %d: %w", h.Revision, r.at.Revision, fsm.ErrGap)
	}
	r.age = h.Age
	r.client.hears(r.at, r.age)
	if r.age > r.client.cfg.Silence && len(r.client.cfg.URLs) > 1 {
		return errAlone
	}
	return nil
}
