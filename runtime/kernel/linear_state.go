package kernel

import "fmt"

// LinearState is the memory of a LinearAttention op: the last inputs of its convolution and, per head,
// a matrix. A call writes a second copy, which becomes the state with [LinearState.Commit]; a call that fails leaves the
// state as it was.
type LinearState struct {
	len, pending  int
	channels, old int       // channels of the convolution, and inputs kept of each
	matrices      int       // elements of the matrices of all heads
	taps, nextTap []float32 // [channels, old]
	heads, next   []float32 // [heads, key dim, value dim]
}

// NewLinearState returns the state of an op with that many channels and taps of the convolution, and that many elements of the
// matrices of all heads.
func NewLinearState(channels, taps, matrices int) *LinearState {
	if channels <= 0 || taps <= 1 || matrices < 0 {
		panic(fmt.Sprintf("internal error: kernel.NewLinearState: %d channels, %d taps, %d elements", channels, taps, matrices))
	}
	n := channels * (taps - 1)
	return &LinearState{
		channels: channels, old: taps - 1, matrices: matrices,
		taps: make([]float32, n), nextTap: make([]float32, n), heads: make([]float32, matrices), next: make([]float32, matrices),
	}
}

// Len is the number of tokens that the state has processed.
func (s *LinearState) Len() int { return s.len }

// Bytes is the memory that the state occupies.
func (s *LinearState) Bytes() int64 { return 8 * (int64(len(s.taps)) + int64(len(s.heads))) }

// Fits reports whether NewLinearState was called with this shape.
func (s *LinearState) Fits(channels, taps, matrices int) bool {
	return s.channels == channels && s.old == taps-1 && s.matrices == matrices
}

// Reset sets the state before any tokens: all zeros.
func (s *LinearState) Reset() {
	s.len, s.pending = 0, 0
	clear(s.taps)
	clear(s.heads)
}

// Commit replaces the state by the result of the last call.
func (s *LinearState) Commit() {
	if s.pending == 0 {
		return
	}
	s.taps, s.nextTap = s.nextTap, s.taps
	s.heads, s.next = s.next, s.heads
	s.len, s.pending = s.len+s.pending, 0
}
