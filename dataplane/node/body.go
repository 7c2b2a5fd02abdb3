package node

import (
	"errors"
	"fmt"
	"io"
	"os"

	"domicile/internal/httpserve"
)

// readBody reads the whole body of a data request or an admin call, at most limit
// bytes, into a buffer that lasts as long as the request.
func (r *request) readBody(limit int) ([]byte, error) {
	if r.encoded {
		return nil, httpserve.Errorf(415, "unsupported_encoding", "a body with a Content-Encoding is not taken: send it plain")
	}
	length := r.ctx.Request.Header.ContentLength()
	if length > limit {
		return nil, tooLarge(limit)
	}
	stream := r.ctx.RequestBodyStream()
	if stream == nil {
		return nil, nil
	}
	buf := r.buf[:0]
	if length > cap(buf) {
		// The length is the client's word; memory follows what has come.
		buf = make([]byte, 0, min(length, 64<<10)+1)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := stream.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		r.buf = buf
		switch {
		case len(buf) > limit:
			return nil, tooLarge(limit)
		case errors.Is(err, io.EOF) && (length < 0 || len(buf) == length):
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, httpserve.Errorf(408, "timeout", "the body did not come in time")
		case err != nil:
			return nil, badRequest("the body could not be read to its end")
		}
	}
}

func tooLarge(limit int) *httpserve.Error {
	return httpserve.Errorf(413, "body_too_large", "the body is larger than %d bytes", limit)
}

// json answers v, which must be encodable.
func (r *request) json(status int, v any) error {
	text, err := httpserve.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	r.answer(status, text)
	return nil
}

// answer takes a JSON body over.
func (r *request) answer(status int, body []byte) {
	r.ctx.Response.SetStatusCode(status)
	r.ctx.Response.Header.SetContentTypeBytes(typeJSON)
	r.ctx.Response.SetBody(body)
}

var typeJSON = []byte("application/json")
