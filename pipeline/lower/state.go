package lower

import (
	"fmt"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// LinearAttention keeps its state within the op. Engines clear it only at the start of a prompt of several tokens, and
// 3.5.0 only if the prompt's length differs from that of the call before; a prompt of one token always continues the previous
// conversation. So the blocks that use the op are lowered such that no old state reaches position 0 or a later one:
// states decay by exp(-160) at position 0, and what an op remembers of the token before is multiplied by 0.

// keepsState records the consequences of an op that keeps a number of bytes between calls, as float32.
func (b *builder) keepsState(bytes int64) {
	b.caches++
	b.stateBytes += bytes
	b.condition("history cannot be edited, and no tokens can be drafted (lookahead): the state of a layer cannot go back")
}

// restart is added to the log of a decay: large and negative at position 0, and 0 elsewhere, [1, tokens, 1].
func (b *builder) restart() value {
	return b.shares("/state/restart", func() value { return b.times("/state/restart", b.first(), forget) })
}

// continued is 0 at position 0 and 1 after it, [1, tokens, 1].
func (b *builder) continued() value {
	return b.shares("/state/continued", func() value {
		if b.axes {
			return b.binary("/state/continued", mnn.BinarySub, b.scalarFloat(1), b.first())
		}
		return b.binary("/state/continued", mnn.BinaryMinimum, b.floatPositions(), b.scalarFloat(1))
	})
}

func (b *builder) clamp(name string, x value, low, high float64) value {
	x = b.binary(name+"/max", mnn.BinaryMaximum, x, b.scalarFloat(low))
	return b.binary(name, mnn.BinaryMinimum, x, b.scalarFloat(high))
}

// allOnes has the shape of x.
func (b *builder) allOnes(name string, x value) value { return b.clamp(name, x, 1, 1) }

func (b *builder) permute(name string, x value, dims ...int32) value {
	return b.op(name, mnn.OpPermute, &mnn.Permute{Dims: dims}, x)
}

// softplus is max(x, 0) + log(1 + exp(-|x|)).
func (b *builder) softplus(name string, x value) value {
	abs := b.unary(name+"/neg", mnn.UnaryNeg, b.unary(name+"/abs", mnn.UnaryAbs, x))
	exp := b.binary(name+"/one_plus", mnn.BinaryAdd, b.unary(name+"/exp", mnn.UnaryExp, abs), b.scalarFloat(1))
	top := b.binary(name+"/max", mnn.BinaryMaximum, x, b.scalarFloat(0))
	return b.binary(name, mnn.BinaryAdd, top, b.unary(name+"/log", mnn.UnaryLog, exp))
}

// delta appends the gated delta rule over x [1, tokens, width]: queries, keys and values after the convolution and
// before its SiLU, which the op applies. The logs of the decay and beta are [1, tokens, ValueHeads]; the result is
// [1, tokens, ValueHeads, ValueDim].
func (b *builder) delta(name string, p *mnn.LinearAttention, width int, x, decay, beta value) value {
	decay = b.binary(name+"/decay", mnn.BinaryAdd, decay, b.restart())
	x = b.permute(name+"/channels", x, 0, 2, 1)
	p.Type = mnn.GatedDeltaRule
	b.keepsState(4 * (int64(width) + int64(p.ValueHeads)*int64(p.KeyDim)*int64(p.ValueDim)))
	return b.op(name, mnn.OpLinearAttention, p, x, decay, beta, b.pulse(width, 1))
}

// pulse is the weight of a convolution of two taps that selects the previous token (tap 0) or the present one (tap 1) of every
// channel, [channels, 1, 2].
func (b *builder) pulse(channels, tap int) value {
	key := fmt.Sprint("pulse ", channels, tap)
	if v, ok := b.consts[key]; ok {
		return v
	}
	w := make([]float32, 2*channels)
	for c := range channels {
		w[2*c+tap] = 1
	}
	return b.shared(key, &mnn.Blob{Dims: []int32{int32(channels), 1, 2}, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: w})
}

// convolution is the causal depthwise convolution of x [1, tokens, width]. The last tap is that of the present token.
func (b *builder) convolution(p string, x value, width int, taps []arch.Weight) value {
	var sum value
	for k, y := range b.delayed(p+"delay", x, width, len(taps)) {
		name := p + "tap_" + strconv.Itoa(k)
		y = b.binary(name, mnn.BinaryMul, y, b.constant(name+"/weight", taps[k]))
		if k > 0 {
			y = b.binary(name+"/sum", mnn.BinaryAdd, sum, y)
		}
		sum = y
	}
	return sum
}

// delayed returns x [1, tokens, width] as it was n-1, ..., 1 and 0 tokens before; it is 0 before position 0. An op that
// computes C·conv(B·x) with B and C of 1 remembers the previous token; a chain of them remembers those before it. (One op for
// all delays would need an input (n-1) times as wide: prompts take twice the memory, for the same results.)
func (b *builder) delayed(name string, x value, width, n int) []value {
	out := []value{x}
	if n == 1 {
		return out
	}
	ones := b.allOnes(name+"/ones", x)
	none := b.shared("none", &mnn.Blob{Dims: []int32{1, 1, 1}, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: []float32{0}})
	w := b.pulse(width, 0)
	for j := 1; j < n; j++ {
		at := name + "_" + strconv.Itoa(j)
		in := b.permute(at+"/channels", b.concat(at+"/inputs", 2, ones, ones, x), 0, 2, 1)
		x = b.op(at, mnn.OpLinearAttention, &mnn.LinearAttention{
			Type: mnn.ShortConv, KeyHeads: 1, ValueHeads: 1, KeyDim: int32(width), ValueDim: int32(width),
		}, in, none, none, w)
		b.keepsState(4 * int64(width))
		x = b.binary(at+"/continued", mnn.BinaryMul, b.reshape(at+"/rows", x, 1, -1, int32(width)), b.continued())
		out = append([]value{x}, out...)
	}
	return out
}
