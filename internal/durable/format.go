package durable

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Format is a kind of file: its first bytes, and the only version that is read. After these
// comes the body, then a CRC-32C of all before it.
type Format struct {
	Magic   string
	Version uint32
}

// ErrGarbled is wrapped by what Body gives for a file that is not whole.
var ErrGarbled = errors.New("it is garbled")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	versionSize = 4
	sumSize     = 4
	bufferSize  = 256 << 10
)

// Write writes a file with the body that body writes.
func (f Format) Write(file io.Writer, body func(*bufio.Writer) error) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(file, sum), bufferSize)
	if _, err := w.Write(f.head()); err != nil {
		return err
	}
	if err := body(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := file.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

func (f Format) head() []byte {
	return binary.LittleEndian.AppendUint32([]byte(f.Magic), f.Version)
}

// Body gives the body of a file, or says why it is not taken.
func (f Format) Body(file []byte) ([]byte, error) {
	head := len(f.Magic) + versionSize
	if len(file) < head+sumSize || string(file[:len(f.Magic)]) != f.Magic {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrGarbled)
	}
	if v := binary.LittleEndian.Uint32(file[len(f.Magic):]); v != f.Version {
		return nil, fmt.Errorf("it is of version %d and this binary reads %d", v, f.Version)
	}
	end := len(file) - sumSize
	if crc32.Checksum(file[:end], castagnoli) != binary.LittleEndian.Uint32(file[end:]) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrGarbled)
	}
	return file[head:end], nil
}
