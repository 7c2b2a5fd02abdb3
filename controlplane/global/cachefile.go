package global

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"domicile/internal/durable"
	"domicile/proto"
	"domicile/proto/follow"
)

// The cache file holds the last copy, so that a server that is started while the global
// group cannot be reached has it: when the copy was known to be the
// newest, then the frames of the stream by which it would come whole.
var cacheFormat = durable.Format{Magic: "domicile global directory\n", Version: 1}

// asOfSize is that of the time, in ms, before the frames.
const asOfSize = 8

// save writes d to path: whole, or the file stays as it was.
func save(path string, d *Directory, asOf time.Time) error {
	return durable.Replace(path, func(file io.Writer) error { return write(file, d, asOf) })
}

func write(file io.Writer, d *Directory, asOf time.Time) error {
	hello, err := proto.EncodeFrame(&proto.Hello{Version: proto.StreamVersion, Authority: d.at.Authority, History: d.at.History})
	if err != nil {
		return err
	}
	return cacheFormat.Write(file, func(w *bufio.Writer) error {
		put := func(b []byte) error {
			_, err := w.Write(b)
			return err
		}
		began := binary.LittleEndian.AppendUint64(nil, uint64(asOf.UnixMilli()))
		if err := errors.Join(put(began), put(hello)); err != nil {
			return err
		}
		return proto.StreamEvents(d.Revision(), d.Project(), put)
	})
}

// load reads the file at path into b: the directory, and when it was known to be the
// newest.
func load(path string, b *builder) (*Directory, time.Time, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	return parse(text, b)
}

func parse(text []byte, b *builder) (*Directory, time.Time, error) {
	none := time.Time{}
	body, err := cacheFormat.Body(text)
	if err != nil {
		return nil, none, err
	}
	if len(body) < asOfSize {
		return nil, none, durable.ErrGarbled
	}
	asOf := time.UnixMilli(int64(binary.LittleEndian.Uint64(body)))
	frames, err := proto.NewFrameReader(bytes.NewReader(body[asOfSize:]))
	if err != nil {
		return nil, none, err
	}
	defer frames.Close()
	at := follow.Position{}
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return nil, none, errors.Join(durable.ErrGarbled, err)
		}
		switch f := frame.(type) {
		case *proto.Hello:
			at.Authority, at.History = f.Authority, f.History
		case *proto.Begin:
			at.Revision = f.Revision
		case *proto.Chunk:
			if err := b.apply(f.Events); err != nil {
				return nil, none, errors.Join(durable.ErrGarbled, err)
			}
		case *proto.End: // the reader has compared count and checksum
			if at.Authority == "" || at.Revision == 0 {
				return nil, none, durable.ErrGarbled
			}
			return b.seal(at), asOf, nil
		default:
			return nil, none, durable.ErrGarbled
		}
	}
}
