package cuda

import (
	"slices"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// tokensTogether is the number of tokens of a recurrence that are computed together, and valuesTogether that of the values of a head that a block of
// threads takes.
const tokensTogether, valuesTogether = 32, 64

// convolution is an argument of the kernels.
type convolution struct {
	dst, src, taps, bias, n uint64
	width, count, gated     int32
}

// recurrence is an argument of the kernels.
type recurrence struct {
	out, mixed, strengths, times, decay, bias, direct, starts, lengths uint64
	rule, keyHeads, heads, key, value                                  int32
	eps, least, most                                                   float64
}

// recurrenceMemory is the shared memory of a block of threads: queries, keys, a state, and twice values.
func recurrenceMemory(x *kernel.RecurrenceStep) int {
	line := (x.Key+3)/4*4 + 4
	return 4 * (2*tokensTogether*line + (x.Key+2*tokensTogether)*valuesTogether)
}

// recurrent reports whether the kernels compute a recurrence.
func recurrent(x *kernel.RecurrenceStep) bool {
	return x.Together == tokensTogether && x.Key+x.Together <= kernel.Segment
}

// stateFloats is what a recurrence leaves in a window for the next token.
func stateFloats(x *kernel.RecurrenceStep) int {
	return x.Heads * (x.Key*x.Value + tokensTogether*(x.Key+2*x.Value+tokensTogether+2))
}

// hasRecurrence reports whether a chain has convolutions, recurrences or gates.
func hasRecurrence(c *kernel.Chain) bool {
	return slices.ContainsFunc(c.Steps, func(s kernel.Step) bool {
		switch s.(type) {
		case *kernel.SigmoidStep, *kernel.ConvolveStep, *kernel.RecurrenceStep:
			return true
		}
		return false
	})
}

// recurrenceStep puts such a step into a stream.
func (e *Engine) recurrenceStep(s uintptr, c *kernel.Chain, p *spot, step kernel.Step) bool {
	m, at := p.matrices, int32(c.At)
	switch x := step.(type) {
	case *kernel.SigmoidStep:
		n, each := uint64(c.Rows*c.Widths[x.Matrix]), int32(c.Widths[x.Matrix]/c.Widths[x.By])
		return e.launch(s, sigmoids, int(n+255)/256, 1, unsafe.Pointer(&m[x.Matrix]), unsafe.Pointer(&m[x.By]), unsafe.Pointer(&n), unsafe.Pointer(&each))
	case *kernel.ConvolveStep:
		taps, ok := e.vector(p, x.Taps)
		bias, both := e.vector(p, x.Bias)
		if !ok || !both {
			return false
		}
		width := c.Widths[x.Dst]
		a := convolution{dst: m[x.Dst], src: m[x.Src], taps: taps, bias: bias, n: uint64(c.Rows * width), width: int32(width),
			count: int32(len(x.Taps.Data) / width)}
		if x.Gated {
			a.gated = 1
		}
		blocks := (c.Rows*width + 255) / 256
		if c.Windows == nil {
			return e.launch(s, convolveTokens, blocks, 1, unsafe.Pointer(&a), unsafe.Pointer(&e.resident.states[x.State]), unsafe.Pointer(&at))
		}
		return e.launch(s, convolves, blocks, 1, unsafe.Pointer(&a), unsafe.Pointer(&p.places))
	case *kernel.RecurrenceStep:
		a := recurrence{
			out: m[x.Dst], mixed: m[x.Mixed], times: m[x.Times], keyHeads: int32(x.KeyHeads), heads: int32(x.Heads), key: int32(x.Key),
			value: int32(x.Value), eps: x.Eps, least: x.TimeMin, most: x.TimeMax,
		}
		if x.Rule {
			a.rule, a.strengths = 1, m[x.Strengths]
		}
		for _, v := range []struct {
			to *uint64
			of kernel.Factor
		}{{&a.decay, x.Decay}, {&a.bias, x.Bias}, {&a.direct, x.Direct}} {
			var ok bool
			if *v.to, ok = e.vector(p, v.of); !ok {
				return false
			}
		}
		if c.Windows == nil {
			return e.launch(s, recurrenceTokens, x.Heads, c.Rows, unsafe.Pointer(&a), unsafe.Pointer(&e.resident.states[x.State]), unsafe.Pointer(&at))
		}
		a.starts, a.lengths = p.windows, p.windows+4*uint64(len(c.Windows))
		e.added[recurrences] = uint32(recurrenceMemory(x))
		return e.launch(s, recurrences, x.Heads*((x.Value+valuesTogether-1)/valuesTogether), len(c.Windows), unsafe.Pointer(&a))
	}
	return false
}
