package kernel

import (
	"strings"
	"sync"
	"unsafe"
)

// hugeChunk is how much memory for weights is allocated at a time, in bytes. Weights of a model are made together and
// dropped together, so shared chunks keep little unused memory alive.
const hugeChunk = 4 << 20

// hugeFloor is how many values are worth asking for large pages.
const hugeFloor = 4 << 20

// huge is the current chunk.
var huge struct {
	mu   sync.Mutex
	rest []float32
}

// Floats is make([]float32, n). For many values large pages are requested, as for weights, and many threads clear them.
func Floats(n int) []float32 {
	if n < hugeFloor {
		return make([]float32, n)
	}
	x := Scratch(n)
	const unit = 1 << 20
	Parallel(0, (n+unit-1)/unit, func(u, end int) { clear(x[u*unit : min(end*unit, n)]) })
	return x
}

// Arbitrary, if not nil, sets what [Scratch] returns: for tests, because nothing may depend on it.
var Arbitrary func(x []float32)

// Scratch is Floats with arbitrary values. Clearing a gigabyte, as make does, takes a tenth of a second and a single thread.
func Scratch(n int) (x []float32) {
	if n < hugeFloor {
		x = make([]float32, n)
	} else {
		var b strings.Builder // unlike make it does not clear what it allocates
		b.Grow(4 * n)
		b.WriteByte(0)
		x = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.StringData(b.String()))), n)
		adviseHuge(x)
	}
	if Arbitrary != nil {
		Arbitrary(x)
	}
	return x
}

// hugeFloats is make([]float32, n) for weights: memory for which large pages are requested, because the first
// touch of thousands of small ones takes longer than packing weights. It begins at a cache line.
func hugeFloats(n int) []float32 {
	const line = 16
	padded := (n + line - 1) &^ (line - 1)
	if padded >= hugeChunk/16 {
		s := make([]float32, n)
		adviseHuge(s)
		return s
	}
	huge.mu.Lock()
	defer huge.mu.Unlock()
	if len(huge.rest) < padded {
		huge.rest = make([]float32, hugeChunk/4)
		adviseHuge(huge.rest)
	}
	s := huge.rest[:n:n]
	huge.rest = huge.rest[padded:]
	return s
}

// hugeBytes is hugeFloats for bytes.
func hugeBytes(n int) []byte {
	if n == 0 {
		return nil
	}
	f := hugeFloats((n + 3) / 4)
	return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), n)
}
