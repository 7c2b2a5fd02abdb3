package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"domicile/dataplane/node/store"
)

// What the payloads of frames hold.

func appendPosition(b []byte, p store.Position) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Epoch)
	return binary.LittleEndian.AppendUint64(b, p.Seq)
}

func (f *fields) position() store.Position {
	return store.Position{Epoch: f.u64(), Seq: f.u64()}
}

func (f *fields) mark() store.Mark { return store.Mark{Position: f.position(), Chain: f.u64()} }

func appendMark(b []byte, m store.Mark) []byte {
	return binary.LittleEndian.AppendUint64(appendPosition(b, m.Position), m.Chain)
}

// follow is where a follower stands.
type follow struct {
	id    uint64
	epoch uint64 // the source's branch must be this one or newer
	mark  store.Mark
	image bool // it cannot go on from mark
	kind  store.CopyKind
	// beside: entries may come while an image does, to be put over it.
	beside bool
	name   string
}

// The flags of a follow. Peers of before there were kinds know of followImage alone,
// and take any other value for 0.
const (
	followImage  = 1
	followReader = 2
	followTarget = 4
	followBeside = 8
)

func (m *follow) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, m.id)
	b = binary.LittleEndian.AppendUint64(b, m.epoch)
	mark, flags := m.mark, byte(0)
	switch m.kind {
	case store.CopyReader:
		flags = followReader
	case store.CopyTarget:
		flags = followTarget
	case store.CopyOrdinary:
	}
	if m.beside {
		flags |= followBeside
	}
	if m.image && flags != 0 {
		mark = store.Mark{} // so that a peer that does not know the flags sends an image, too
	}
	if m.image {
		flags |= followImage
	}
	return append(append(appendMark(b, mark), flags), m.name...)
}

func decodeFollow(p []byte) (m follow, err error) {
	f := fields{b: p}
	m = follow{id: f.u64(), epoch: f.u64(), mark: f.mark()}
	flags := f.u8()
	m.image, m.beside = flags&followImage != 0, flags&followBeside != 0
	switch {
	case flags&followReader != 0:
		m.kind = store.CopyReader
	case flags&followTarget != 0:
		m.kind = store.CopyTarget
	}
	m.name = string(f.take(len(f.b)))
	if err := f.end(frameFollow); err != nil {
		return m, err
	}
	if m.name == "" || len(m.name) > maxName {
		return m, fmt.Errorf("%w: a unit's name of %d bytes", errFrame, len(m.name))
	}
	return m, nil
}

// maxName is beyond what the store takes; it bounds what is kept of a peer's words.
const maxName = 255

// startKind says how a unit goes on.
type startKind byte

const (
	startOn    startKind = 1 // entries after the follower's position come
	startImage startKind = 2 // an image comes
	startAhead startKind = 3 // the follower has what the source lacks: it waits
	// An image comes, and the follower's history is another one although its
	// position is on the source's lineage.
	startOther startKind = 4
)

// start answers follow, and comes again where an image must be taken later.
type start struct {
	kind    startKind
	at      store.Mark // the source's newest commit
	lineage store.Lineage
}

func (m *start) encode() []byte {
	b := appendMark([]byte{byte(m.kind)}, m.at)
	return appendLineage(b, m.lineage)
}

func appendLineage(b []byte, l store.Lineage) []byte {
	for _, br := range l[max(0, len(l)-maxBranches):] {
		b = binary.LittleEndian.AppendUint64(b, br.Epoch)
		b = binary.LittleEndian.AppendUint64(b, br.From)
	}
	return b
}

func decodeStart(p []byte) (m start, err error) {
	f := fields{b: p}
	m = start{kind: startKind(f.u8()), at: f.mark()}
	m.lineage = f.branches()
	if err := f.end(frameStart); err != nil {
		return m, err
	}
	if m.kind < startOn || m.kind > startOther {
		return m, fmt.Errorf("%w: a start of kind %d", errFrame, m.kind)
	}
	return m, validLineage(m.lineage, m.at.Position)
}

// branchSize is how long a branch is.
const branchSize = 16

func (f *fields) branches() (l store.Lineage) {
	for !f.bad && len(f.b) > 0 {
		l = append(l, store.Branch{Epoch: f.u64(), From: f.u64()})
	}
	return l
}

// image announces an image's bytes.
type image struct {
	size    int64
	at      store.Mark
	lineage store.Lineage
	moving  bool // entries come beside it; said to followers that asked for that alone
}

func (m *image) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(m.size))
	b = appendMark(b, m.at)
	b = appendLineage(b, m.lineage)
	if m.moving {
		b = append(b, 1)
	}
	return b
}

func decodeImage(p []byte) (m image, err error) {
	f := fields{b: p}
	m = image{size: int64(f.u64()), at: f.mark()}
	if last := len(f.b) - 1; last >= 0 && last%branchSize == 0 { // what is behind the branches
		m.moving, f.b = f.b[last] == 1, f.b[:last]
	}
	m.lineage = f.branches()
	if err := f.end(frameImage); err != nil {
		return m, err
	}
	if m.size <= 0 {
		return m, fmt.Errorf("%w: an image of %d bytes", errFrame, m.size)
	}
	return m, validLineage(m.lineage, m.at.Position)
}

// endCode says why a unit is fed no longer.
type endCode byte

const (
	endUnknown    endCode = 1 // the source has no such unit
	endWrongID    endCode = 2 // it has another one of that name
	endNotPrimary endCode = 3 // it does not write the unit
	endOldEpoch   endCode = 4 // it writes an older branch than was asked for
	endFailed     endCode = 5 // reading the unit failed there
)

type end struct {
	code endCode
	text string
}

func (m *end) encode() []byte {
	return append([]byte{byte(m.code)}, m.text[:min(len(m.text), maxSmall-1)]...)
}

func decodeEnd(p []byte) (m end, err error) {
	f := fields{b: p}
	m = end{code: endCode(f.u8())}
	m.text = string(f.take(len(f.b)))
	if err := f.end(frameEnd); err != nil {
		return m, err
	}
	if m.code < endUnknown || m.code > endFailed {
		return m, fmt.Errorf("%w: an end of code %d", errFrame, m.code)
	}
	return m, nil
}

// promise asks, promised answers with the names that are refused.
type promise struct {
	seq   uint64
	ms    uint64 // 0 in an answer
	names []string
}

func (m *promise) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, m.seq)
	b = binary.LittleEndian.AppendUint64(b, m.ms)
	for _, n := range m.names {
		b = append(append(b, byte(len(n))), n...)
	}
	return b
}

func decodePromise(t frameType, p []byte) (m promise, err error) {
	f := fields{b: p}
	m = promise{seq: f.u64(), ms: f.u64()}
	for !f.bad && len(f.b) > 0 {
		m.names = append(m.names, string(f.take(int(f.u8()))))
	}
	if err := f.end(t); err != nil {
		return m, err
	}
	if m.ms > uint64(maxPromise/time.Millisecond) {
		return m, fmt.Errorf("%w: a promise for %d ms", errFrame, m.ms)
	}
	return m, nil
}

// maxPromise is far beyond any lease.
const maxPromise = 24 * time.Hour

// encodeBeat holds, from a source, the age of the oldest commit that the
// follower has not acknowledged.
func encodeBeat(age time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(max(age, 0)))
}

func decodeBeat(p []byte) (time.Duration, error) {
	f := fields{b: p}
	age := time.Duration(f.u64())
	if err := f.end(frameBeat); err != nil {
		return 0, err
	}
	if age < 0 {
		return 0, fmt.Errorf("%w: an age of %d ns", errFrame, int64(age))
	}
	return age, nil
}

func decodePosition(t frameType, p []byte) (store.Position, error) {
	f := fields{b: p}
	pos := f.position()
	return pos, f.end(t)
}

func decodeCount(t frameType, p []byte) (int64, error) {
	f := fields{b: p}
	n := int64(f.u64())
	if err := f.end(t); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, fmt.Errorf("%w: %d bytes taken", errFrame, n)
	}
	return n, nil
}

// imaged ends an image: its sum (store.ImageInfo), and the position up to which the entries beside it
// make it whole; zero where it is whole without.
type imaged struct {
	sum [sha256.Size]byte
	end store.Position
}

func decodeImaged(p []byte) (m imaged, err error) {
	f := fields{b: p}
	copy(m.sum[:], f.take(len(m.sum)))
	if len(f.b) > 0 {
		m.end = f.position()
	}
	return m, f.end(frameImaged)
}

func appendCount(n int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
