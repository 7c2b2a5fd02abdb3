package http1

import "sync"

const (
	smallBuffer = 16 << 10  // a head and a short body
	bigBuffer   = 256 << 10 // for heads beyond that and for long bodies
)

// buffers are the pools that a Server's connections take their buffers from.
type buffers struct {
	small, big, exchanges sync.Pool
}

func newBuffers() *buffers {
	return &buffers{
		small:     sync.Pool{New: func() any { return new([smallBuffer]byte) }},
		big:       sync.Pool{New: func() any { return new([bigBuffer]byte) }},
		exchanges: sync.Pool{New: func() any { return new(exchange) }},
	}
}

// buffer holds bytes read and not yet used: data[r:w]. Without data it has no
// memory at all; it gets some when bytes arrive.
type buffer struct {
	pools *buffers
	data  []byte
	r, w  int
	small *[smallBuffer]byte
	big   *[bigBuffer]byte
	long  bool // get big memory: much is expected
}

func (b *buffer) bytes() []byte { return b.data[b.r:b.w] }
func (b *buffer) len() int      { return b.w - b.r }

// need makes sure that there is memory.
func (b *buffer) need() {
	switch {
	case b.data != nil:
	case b.long:
		b.needBig()
	default:
		b.small = b.pools.small.Get().(*[smallBuffer]byte)
		b.data = b.small[:]
	}
}

// needBig makes sure that the memory is of the big kind; what is there moves.
func (b *buffer) needBig() {
	if b.big != nil {
		return
	}
	big := b.pools.big.Get().(*[bigBuffer]byte)
	n := copy(big[:], b.bytes())
	b.release()
	b.big, b.data, b.r, b.w = big, big[:], 0, n
}

// room makes space behind w; what is there may move.
func (b *buffer) room() {
	switch {
	case b.w < len(b.data) || b.data == nil:
	case b.r > 0:
		b.compact()
	default:
		b.needBig()
	}
}

// compact moves what is there to the front.
func (b *buffer) compact() {
	b.w = copy(b.data, b.bytes())
	b.r = 0
}

// skip uses up n bytes.
func (b *buffer) skip(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// release gives the memory back, and what is in it up.
func (b *buffer) release() {
	if b.small != nil {
		b.pools.small.Put(b.small)
	}
	if b.big != nil {
		b.pools.big.Put(b.big)
	}
	b.data, b.small, b.big, b.r, b.w = nil, nil, nil, 0, 0
}
