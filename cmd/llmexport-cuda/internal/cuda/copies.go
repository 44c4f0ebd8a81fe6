package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// slots is how many pieces of each direction travel at a time, slotBytes how large they are: a card copies well only from and to
// memory that the driver has pinned, and large pieces. Threads copy between that memory and the matrices.
const (
	slots     = 4
	slotBytes = 16 << 20
)

// slot is pinned memory for a piece that travels.
type slot struct {
	host    []float32
	arrived uintptr // an event: the piece has been copied
	dst     matrix  // where a piece from the card goes, when it has arrived
}

// matrix is memory of lines of floats: one line of `width` begins `stride` after another. On the card it is `pitch`.
type matrix struct {
	at                          []float32
	lines, width, stride, pitch int
}

// values is a matrix without gaps.
func values(x []float32) matrix { return matrix{x, len(x), 1, 1, 1} }

// bytes is the memory that a matrix takes on the card.
func (m *matrix) bytes() uint64 { return 4 * uint64(m.lines) * uint64(m.pitch) }

// matrixOf is a factor as it lies on the card. Lines of many rows begin at multiples of 16 bytes there.
func matrixOf(f kernel.Factor, rows, k int) matrix {
	m := matrix{f.Data, rows, k, f.Stride, k}
	switch f.Layout {
	case kernel.ByPosition:
		m = matrix{f.Data, k, rows, f.Stride, (rows + 3) &^ 3}
	case kernel.ByPanel:
		m = values(f.Data[:(rows+kernel.PanelRows-1)/kernel.PanelRows*kernel.PanelRows*f.Stride])
	}
	if m.width == m.stride && m.width == m.pitch {
		m = values(m.at[:m.lines*m.width])
	}
	return m
}

// part are lines of a matrix.
func (m *matrix) part(from, lines int) matrix {
	return matrix{m.at[from*m.stride:], lines, m.width, m.stride, m.pitch}
}

// pin prepares the slots.
func (e *Engine) pin() bool {
	if e.pinned {
		return true
	}
	for i := range 2 * slots {
		s := new(slot)
		var p unsafe.Pointer
		if !e.do("cuMemAllocHost", e.driver.allocHost(&p, uint64(e.slot))) || !e.do("cuEventCreate", e.driver.newEvent(&s.arrived, e.waits)) {
			return false
		}
		s.host = unsafe.Slice((*float32)(p), e.slot/4)
		if i < slots {
			e.up = append(e.up, s)
		} else {
			e.down = append(e.down, s)
		}
	}
	e.pinned = true
	return true
}

// turn takes the first slot for the next piece, when the one before has been copied.
func (e *Engine) turn(ring []*slot) (*slot, bool) {
	s := ring[0]
	copy(ring, ring[1:])
	ring[len(ring)-1] = s
	return s, e.finish(s)
}

// finish waits for the piece in a slot, and takes it to where it goes.
func (e *Engine) finish(s *slot) bool {
	if !e.do("cuEventSynchronize", e.driver.await(s.arrived)) {
		return false
	}
	if m := s.dst; m.lines > 0 {
		kernel.Parallel(e.threads, m.lines, func(lo, hi int) {
			if m.width == m.stride {
				copy(m.at[lo*m.width:hi*m.width], s.host[lo*m.width:])
				return
			}
			for ; lo < hi; lo++ {
				copy(m.at[lo*m.stride:][:m.width], s.host[lo*m.width:])
			}
		})
	}
	s.dst = matrix{}
	return true
}

// finishAll does so for all that comes from the card.
func (e *Engine) finishAll() bool {
	for range e.down {
		if _, ok := e.turn(e.down); !ok {
			return false
		}
	}
	return e.arrive()
}

// travel notes that a piece from or to pinned memory is in a stream.
func (e *Engine) travel(stream uintptr) bool {
	if len(e.unused) == 0 {
		var event uintptr
		if !e.do("cuEventCreate", e.driver.newEvent(&event, e.waits)) {
			return false
		}
		e.unused = append(e.unused, event)
	}
	last := len(e.unused) - 1
	e.traveled, e.unused = append(e.traveled, e.unused[last]), e.unused[:last]
	return e.do("cuEventRecord", e.driver.record(e.traveled[len(e.traveled)-1], stream))
}

// arrive waits for all such pieces.
func (e *Engine) arrive() bool {
	ok := true
	for _, event := range e.traveled {
		ok = e.do("cuEventSynchronize", e.driver.await(event)) && ok
	}
	e.traveled, e.unused = e.traveled[:0], append(e.unused, e.traveled...)
	return ok
}

// upload puts the copy of a matrix to the card into a stream. Its memory may be changed afterwards, if it is pinned not before arrive.
func (e *Engine) upload(stream uintptr, to uint64, m matrix) bool {
	if m.width == m.stride && m.width == m.pitch && e.pins.has(m.at[:m.lines*m.width]) {
		e.spent.Sent += int64(m.bytes())
		return e.do("cuMemcpyHtoDAsync", e.driver.toDevice(to, unsafe.Pointer(&m.at[0]), m.bytes(), stream)) && e.travel(stream)
	}
	step := e.slot / 4 / m.pitch
	if step == 0 { // a line does not fit
		return false
	}
	for i := 0; i < m.lines; i += step {
		part := m.part(i, min(step, m.lines-i))
		s, ok := e.turn(e.up)
		if !ok {
			return false
		}
		kernel.Parallel(e.threads, part.lines, func(lo, hi int) {
			if m.width == m.stride && m.width == m.pitch {
				copy(s.host[lo*m.width:hi*m.width], part.at[lo*m.width:])
				return
			}
			for ; lo < hi; lo++ {
				copy(s.host[lo*m.pitch:][:m.width], part.at[lo*m.stride:])
			}
		})
		e.spent.Sent += int64(part.bytes())
		if !e.do("cuMemcpyHtoDAsync", e.driver.toDevice(to+4*uint64(i*m.pitch), unsafe.Pointer(&s.host[0]), part.bytes(), stream)) ||
			!e.do("cuEventRecord", e.driver.record(s.arrived, stream)) {
			return false
		}
	}
	return true
}

// uploadNarrow is upload for numbers that become those of 16 bits that they are.
func (e *Engine) uploadNarrow(stream uintptr, to uint64, x []float32, stored tensor.DType) bool {
	for step := e.slot / 2; len(x) > 0; {
		n := min(step, len(x))
		s, ok := e.turn(e.up)
		if !ok {
			return false
		}
		host := unsafe.Slice((*uint16)(unsafe.Pointer(&s.host[0])), n)
		const part = 1 << 13
		kernel.Parallel(e.threads, (n+part-1)/part, func(lo, hi int) {
			lo, hi = lo*part, min(hi*part, n)
			if stored == tensor.BF16 {
				kernel.F32ToBF16(host[lo:hi], x[lo:hi])
			} else {
				kernel.F32ToF16(unsafe.Slice((*byte)(unsafe.Pointer(&host[lo])), 2*(hi-lo)), x[lo:hi])
			}
		})
		e.spent.Sent += 2 * int64(n)
		if !e.do("cuMemcpyHtoDAsync", e.driver.toDevice(to, unsafe.Pointer(&s.host[0]), 2*uint64(n), stream)) ||
			!e.do("cuEventRecord", e.driver.record(s.arrived, stream)) {
			return false
		}
		to, x = to+2*uint64(n), x[n:]
	}
	return true
}

// download puts the copy of a matrix without gaps from the card into a stream. It is there when finishAll returns.
func (e *Engine) download(stream uintptr, m matrix, from uint64) bool {
	if n := m.lines * m.width; m.width == m.stride && e.pins.has(m.at[:n]) {
		e.spent.Received += 4 * int64(n)
		return e.do("cuMemcpyDtoHAsync", e.driver.toHost(unsafe.Pointer(&m.at[0]), from, 4*uint64(n), stream)) && e.travel(stream)
	}
	step := e.slot / 4 / m.width
	for i := 0; i < m.lines; i += step {
		s, ok := e.turn(e.down)
		if !ok {
			return false
		}
		s.dst = m.part(i, min(step, m.lines-i))
		n := 4 * uint64(s.dst.lines) * uint64(m.width)
		e.spent.Received += int64(n)
		if !e.do("cuMemcpyDtoHAsync", e.driver.toHost(unsafe.Pointer(&s.host[0]), from+4*uint64(i*m.width), n, stream)) ||
			!e.do("cuEventRecord", e.driver.record(s.arrived, stream)) {
			return false
		}
	}
	return true
}
