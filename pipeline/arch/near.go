package arch

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// NearAttention is attention to the states near a query, Past before it and Future after it, whose scores depend on the distance. Only in a
// tower, which has no gradients.
//
//	q, k, v = Q x, K x, V x, in heads of HeadDim
//	score of query i and key j = cap((Gains ⊙ q) · (KeyScale·k + Keys · s(i-j)))      cap(x) = Cap · tanh(x / Cap)
//	y = O · softmax(scores) v
type NearAttention struct {
	Heads, HeadDim int
	Q, K, V, O     Linear
	Gains          Weight // [HeadDim]
	KeyScale, Cap  float64
	Past, Future   int
	// Keys [Heads*HeadDim, Hidden], without bias, makes keys of the vectors s: the sines and then the cosines of (distance + Shift) ·
	// 10000^(-n/(Hidden/2-1)) for each n. Where that sum is negative the vector is 0.
	Keys  Linear
	Shift int
}

// Vectors returns the vectors s for n distances from first downwards, [n, Hidden]; 0 for those that no score has.
func (a *NearAttention) Vectors(first, n int) []float32 {
	hidden := a.Keys.Weight.Cols
	out := make([]float32, n*hidden)
	for i := range n {
		if d := first - i; d <= a.Past && d >= -a.Future && d+a.Shift >= 0 {
			sinusoids(out[i*hidden:(i+1)*hidden], d+a.Shift)
		}
	}
	return out
}

// sinusoids fills dst with the sines and then the cosines of a position.
func sinusoids(dst []float32, position int) {
	half := len(dst) / 2
	for k := range half {
		angle := float64(float32(position) * float32(kernel.Exp(-math.Ln10*4/float64(half-1)*float64(k))))
		sin, cos := kernel.Sincos(angle)
		dst[k], dst[half+k] = float32(sin), float32(cos)
	}
}

func (a *NearAttention) linears(f func(string, *Linear)) {
	each(f, []string{"attention.q", "attention.k", "attention.v", "attention.o"}, &a.Q, &a.K, &a.V, &a.O)
}

func (a *NearAttention) vectors(f func(Weight)) { some(f, a.Gains, a.Keys.Weight) }
