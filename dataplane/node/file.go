package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"domicile/dataplane/node/store"
	"domicile/proto"
)

// fileTimeout is how long a file that comes or goes may stand still.
const fileTimeout = 30 * time.Second

// getFile is GET file: the unit as a SQLite file, at one position.
func (r *request) getFile(ctx context.Context, unit string) error {
	u, release, err := r.s.store.Acquire(ctx, unit)
	if err != nil {
		return err
	}
	image, err := u.Image(ctx)
	if err != nil {
		release()
		return err
	}
	r.position(image.Position)
	r.ctx.Response.SetStatusCode(200)
	r.ctx.Response.Header.SetContentType("application/octet-stream")
	if r.ctx.IsHead() {
		image.Close()
		release()
		r.ctx.Response.SkipBody = true
		r.ctx.Response.Header.SetContentLength(int(image.Size))
		return nil
	}
	reader, writer := io.Pipe()
	r.s.bodies.Go(func() {
		defer release()
		defer image.Close()
		_, err := image.WriteTo(writer)
		writer.CloseWithError(err) // nil is the end of the file
	})
	r.ctx.Response.SetBodyStream(reader, int(image.Size))
	return nil
}

// mayImport checks a PUT file before its body is sent.
func (r *request) mayImport(rest []byte) error {
	s := segments{rest}
	first, unit, verb := string(s.next()), string(s.next()), string(s.next())
	if first != "tenants" || verb != "file" || string(r.ctx.Method()) != fasthttp.MethodPut {
		return nil // a short body, or none
	}
	if err := r.hold(proto.Holder{}); err != nil {
		return err
	}
	if _, err := r.s.store.Get(unit); err == nil {
		return r.unitExists(unit)
	}
	return nil
}

// putFile is PUT file: a unit made from a SQLite file. The header Domicile-Unit-Id
// gives its id. Nothing is there before the whole file is and has been checked.
func (r *request) putFile(ctx context.Context, unit string) error {
	id, err := r.unitIDHeader()
	if err != nil {
		return err
	}
	if id == 0 {
		return badRequest("the header %s, the unit's number in the directory, is needed", proto.HeaderUnitID)
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(proto.Holder{}); err != nil {
		return err
	}
	if _, err := r.s.store.Get(unit); err == nil {
		return r.unitExists(unit)
	} else if !errors.Is(err, store.ErrUnknownUnit) {
		return err
	}
	body := r.ctx.RequestBodyStream()
	if body == nil {
		return badRequest("the body is the unit's SQLite file")
	}
	if err := r.hearOne(word{makes: true}, unit, 0); err != nil {
		return err
	}
	size := int64(r.ctx.Request.Header.ContentLength())
	if size < 0 {
		size = -1
	}
	// Its time is its own: it may take hours, but may not stand still.
	rec, err := r.s.store.Install(r.s.base, unit, id, &paced{r.ctx, body}, store.ImageInfo{Size: size, State: store.Active})
	r.s.fence.records.forget(unit)
	if err != nil {
		return err
	}
	r.s.log.Info("unit imported", "unit", unit, "bytes", size)
	r.ctx.Response.Header.Set(proto.HeaderUnitID, strconv.FormatUint(rec.ID, 10))
	return r.json(201, map[string]string{"imported": unit})
}

// paced reads a body, each piece of which has a time of its own.
type paced struct {
	ctx  *fasthttp.RequestCtx
	body io.Reader
}

func (p *paced) Read(b []byte) (int, error) {
	if err := p.ctx.Conn().SetReadDeadline(time.Now().Add(fileTimeout)); err != nil {
		return 0, fmt.Errorf("read the file: %w", err)
	}
	return p.body.Read(b)
}
