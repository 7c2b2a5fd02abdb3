package global

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"domicile/proto"
	"domicile/proto/follow"
)

// The cache file holds the last copy, so that a server that is started while the global
// group cannot be reached has it: a magic, a version, when the copy was known to be the
// newest, then the frames of the stream by which it would come whole, and a CRC-32C of
// all that. A file of another version is not read: it is a cache.
const (
	cacheMagic   = "domicile global directory\n"
	cacheVersion = 1
)

var (
	errCache   = errors.New("the cached copy of the global directory is garbled")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// save writes d to path: whole, or the file stays as it was.
func save(path string, d *Directory, asOf time.Time) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it was renamed
	if err := write(f, d, asOf); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func write(file io.Writer, d *Directory, asOf time.Time) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(file, sum), 256<<10)
	head := binary.LittleEndian.AppendUint32([]byte(cacheMagic), cacheVersion)
	head = binary.LittleEndian.AppendUint64(head, uint64(asOf.UnixMilli()))
	hello, err := proto.EncodeFrame(&proto.Hello{Version: proto.StreamVersion, Authority: d.at.Authority, History: d.at.History})
	if err != nil {
		return err
	}
	put := func(b []byte) error {
		_, err := w.Write(b)
		return err
	}
	if err := errors.Join(put(head), put(hello)); err != nil {
		return err
	}
	if err := proto.StreamEvents(d.Revision(), d.Project(), put); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = file.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
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
	const head = len(cacheMagic) + 4 + 8
	if len(text) < head+4 || string(text[:len(cacheMagic)]) != cacheMagic {
		return nil, none, fmt.Errorf("%w: it does not begin as one", errCache)
	}
	if v := binary.LittleEndian.Uint32(text[len(cacheMagic):]); v != cacheVersion {
		return nil, none, fmt.Errorf("the cached copy of the global directory is of version %d and this binary reads %d", v, cacheVersion)
	}
	body, sum := text[:len(text)-4], binary.LittleEndian.Uint32(text[len(text)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, none, fmt.Errorf("%w: its checksum is wrong", errCache)
	}
	asOf := time.UnixMilli(int64(binary.LittleEndian.Uint64(text[head-8:])))
	frames, err := proto.NewFrameReader(bytes.NewReader(body[head:]))
	if err != nil {
		return nil, none, err
	}
	defer frames.Close()
	at := follow.Position{}
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return nil, none, errors.Join(errCache, err)
		}
		switch f := frame.(type) {
		case *proto.Hello:
			at.Authority, at.History = f.Authority, f.History
		case *proto.Begin:
			at.Revision = f.Revision
		case *proto.Chunk:
			if err := b.apply(f.Events); err != nil {
				return nil, none, errors.Join(errCache, err)
			}
		case *proto.End: // the reader has compared count and checksum
			if at.Authority == "" || at.Revision == 0 {
				return nil, none, errCache
			}
			return b.seal(at), asOf, nil
		default:
			return nil, none, errCache
		}
	}
}
