package generic

import (
	"math"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// arithmetic is how the float ops between linear layers compute. Linear layers choose on their own, because some of
// them stay float in int8 mode.
type arithmetic struct {
	rmsNorm func(dst, x, gamma []float32, eps float32)
	// rmsNormPacked is for two or more tokens of the packed layout.
	rmsNormPacked func(dst, x, gamma []float32, eps float32)
	silu          func(dst, x []float32)
	// attend returns a function for one goroutine that computes queries from to to-1 of one head.
	attend func(s *scores) func(head, from, to int)
}

// exact computes in float64 what costs little, and float32 sums of products.
var exact = arithmetic{kernel.RMSNorm, kernel.RMSNorm, kernel.SiLU, attendExact}

// engine computes what MNN does on x86, bit by bit: one differing bit can flip an int8 code of the next linear layer.
var engine = arithmetic{kernel.EngineRMSNorm, kernel.EngineRMSNormPacked, kernel.EngineSiLU, attendEngine}

func arithmeticOf(m backends.Mode) *arithmetic {
	if m == backends.Int8 {
		return &engine
	}
	return &exact
}

// scores is the work of one Attention op: out, q [tokens, heads, dim]; k, v [past+tokens, kvHeads, dim].
type scores struct {
	out, q, k, v                      []float32
	tokens, past, heads, kvHeads, dim int
}

func attendEngine(s *scores) func(head, from, to int) {
	a := &kernel.EngineAttention{Tokens: s.tokens, Past: s.past, Heads: s.heads, KVHeads: s.kvHeads, Dim: s.dim}
	return func(head, from, to int) { a.Attend(s.out, s.q, s.k, s.v, head, from, to) }
}

func attendExact(s *scores) func(head, from, to int) {
	w := &attendScratch{}
	scale := float32(1 / math.Sqrt(float64(s.dim)))
	return func(head, from, to int) { w.attend(s, head, from, to, scale) }
}
