package proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// blockHead is the size of what stands before a block's payload.
const blockHead = 9

var errBlockSum = errors.New("garbled bytes: a checksum does not fit")

func blockSum(kind byte, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte{kind}, table), table, payload)
}

func writeBlock(w io.Writer, kind byte, payload []byte) error {
	var head [blockHead]byte
	head[0] = kind
	binary.LittleEndian.PutUint32(head[1:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[5:], blockSum(kind, payload))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// readBlock reads a block into buf, which grows when it is too small, and only
// as far as bytes arrive.
func readBlock(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [blockHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf, err
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	if n > maxBlock {
		return 0, buf, fmt.Errorf("a block of %d bytes, more than %d", n, maxBlock)
	}
	if payload, err = readN(r, buf, n); err != nil {
		return 0, payload, err
	}
	if blockSum(head[0], payload) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, payload, errBlockSum
	}
	return head[0], payload, nil
}

// readN reads n bytes into buf. It takes memory in steps, so that a length
// that lies costs no more than what was sent.
func readN(r io.Reader, buf []byte, n int) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		part := min(n-len(buf), max(step, cap(buf)-len(buf)))
		if cap(buf)-len(buf) < part {
			grown := make([]byte, len(buf), len(buf)+part)
			copy(grown, buf)
			buf = grown
		}
		end := len(buf) + part
		if _, err := io.ReadFull(r, buf[len(buf):end]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		buf = buf[:end]
	}
	return buf, nil
}
