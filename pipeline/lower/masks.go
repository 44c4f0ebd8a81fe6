package lower

import (
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// hidden is subtracted from the score of a position that a query must not attend to, once for every rule of the mask. A larger
// number would overflow in fp16.
const hidden = 30000

// masksWithin is the condition of graphs that compute masks themselves.
const masksWithin = "masks are computed from positions within the graph: only the CPU backend has been run with such graphs"

// bounded returns a window or chunk length, or 0 if it covers the context.
func (b *builder) bounded(n int) int {
	if n >= b.context {
		return 0
	}
	return n
}

// chooseMasks decides where masks come from. The engine can make two for a graph, a causal one and one with a window; the
// graph then selects the mask for each op. Otherwise, and for models without a window, the op itself is causal, and the graph
// computes all other masks.
func (b *builder) chooseMasks() {
	windows := map[int]bool{}
	other := false
	for _, layer := range b.decoder.Layers {
		for _, br := range layer {
			if a, ok := br.Block.(*arch.Attention); ok && !b.stores(a) {
				if w := b.bounded(a.Window); w > 0 {
					windows[w] = true
				}
				other = other || b.bounded(a.Chunk) > 0 || a.Slopes != nil
			}
		}
	}
	if other || b.follow != nil || len(windows) != 1 || b.decoder.Pooling != nil { // embedding models get no masks of windows
		return
	}
	for w := range windows {
		b.window = w
	}
	b.maskBytes = 8
}

// causal returns the mask of attention to all positions. If the engine makes no masks, an op without sinks needs none.
func (b *builder) causal(sinks bool) value { return b.maskOf(0, 0, sinks, false) }

// maskOf returns the mask of attention within a window or chunk, both 0 for none, [1, 1, tokens, positions]. It has another
// shape if the op is causal by itself. If it is one-way, tokens of pictures do not attend to later ones; such attention has no other rules.
func (b *builder) maskOf(window, chunk int, sinks, oneWay bool) value {
	window, chunk = b.bounded(window), b.bounded(chunk)
	if b.window > 0 {
		name, index := "/mask/full", int32(0)
		if window > 0 {
			name, index = "/mask/window", 1
		}
		return b.shares(name, func() value {
			return b.op(name, mnn.OpGatherV2, &mnn.GatherV2{}, b.mask, b.scalar(index), b.scalar(0))
		})
	}
	// With sinks the op does not apply its own causal rule.
	if oneWay && b.follow != nil && (window > 0 || chunk > 0 || sinks) {
		b.fail(fmt.Errorf("one-way attention of pictures together with windows, chunks or sinks: %w", tensor.ErrUnsupported))
	}
	if window == 0 && chunk == 0 && !sinks && (b.follow == nil || oneWay) {
		return b.mask
	}
	name := maskName(window, chunk)
	return b.shares(name, func() value { return b.explicit(name, b.hiddenScores(window, chunk)) })
}

// explicit turns numbers that are added to scores, [tokens, positions], into a mask.
func (b *builder) explicit(name string, scores value) value {
	b.maskBytes += 4
	return b.op(name, mnn.OpUnsqueeze, &mnn.Squeeze{Dims: []int32{0, 1}}, scores)
}

// maskCondition adds a condition about the cost of masks.
func (b *builder) maskCondition() {
	if b.maskBytes == 0 {
		return
	}
	advice := ""
	if !b.whole {
		advice = "; long prompts are better divided (chunk)"
	}
	b.condition(fmt.Sprintf("masks take %d bytes for every pair of a new token and a token of the context%s", b.maskBytes, advice))
}

func maskName(window, chunk int) string {
	name := "/mask/causal"
	if window > 0 {
		name += "_window_" + strconv.Itoa(window)
	}
	if chunk > 0 {
		name += "_chunk_" + strconv.Itoa(chunk)
	}
	return name
}

// hiddenScores is 0 where a query attends to a key and at most -hidden elsewhere, [tokens, positions]. A position is the index
// in the cache.
func (b *builder) hiddenScores(window, chunk int) value {
	name := maskName(window, chunk) + "/scores"
	return b.shares(name, func() value {
		b.condition(masksWithin)
		p, keys, distance := b.queries(), b.keys(), b.distance()
		// Each rule gives 0 or less.
		ahead := distance
		if b.follow != nil {
			ahead = b.binary(name+"/beyond_picture", mnn.BinaryAdd, distance, *b.follow)
		}
		bad := b.binary(name+"/future", mnn.BinaryMinimum, ahead, b.scalar(0))
		if window > 0 {
			left := b.binary(name+"/left", mnn.BinarySub, b.scalar(int32(window-1)), distance)
			bad = b.binary(name+"/in_window", mnn.BinaryAdd, bad, b.binary(name+"/past", mnn.BinaryMinimum, left, b.scalar(0)))
		}
		if chunk > 0 {
			kc := b.binary(name+"/key_chunk", mnn.BinaryRealDiv, keys, b.scalar(int32(chunk)))
			qc := b.binary(name+"/query_chunk", mnn.BinaryRealDiv, p, b.scalar(int32(chunk)))
			apart := b.binary(name+"/chunks_apart", mnn.BinarySub, kc, qc)
			bad = b.binary(name+"/in_chunk", mnn.BinaryAdd, bad, b.binary(name+"/other_chunk", mnn.BinaryMinimum, apart, b.scalar(0)))
		}
		bad = b.toFloat(name+"/float", b.binary(name+"/bad", mnn.BinaryMaximum, bad, b.scalar(-1)))
		return b.binary(name, mnn.BinaryMul, bad, b.scalarFloat(hidden))
	})
}

// queries returns the call's positions, int32 [tokens, 1].
func (b *builder) queries() value {
	return b.shares("/mask/queries", func() value { return b.reshape("/mask/queries", b.flatPositions(), -1, 1) })
}

// keys returns the positions of the cache and the call, int32 [1, positions].
func (b *builder) keys() value {
	return b.shares("/mask/keys", func() value {
		n := b.binary("/mask/lengths", mnn.BinaryAdd, b.lastPosition(), b.list(1))
		n = b.op("/mask/length", mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{0}}, n)
		r := b.op("/mask/range", mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), n, b.scalar(1))
		return b.reshape("/mask/keys", r, 1, -1)
	})
}

// distance returns the position of a query minus that of a key, int32 [tokens, positions].
func (b *builder) distance() value {
	return b.shares("/mask/distance", func() value {
		return b.binary("/mask/distance", mnn.BinarySub, b.queries(), b.keys())
	})
}

// sloped returns the mask of an ALiBi head, shared by all layers with a head of this slope.
func (b *builder) sloped(slope float64, window, chunk int) value {
	window, chunk = b.bounded(window), b.bounded(chunk)
	name := fmt.Sprintf("%s/slope_%08x", maskName(window, chunk), math.Float32bits(float32(slope)))
	return b.shares(name, func() value {
		// A key after the query gets no bias, which could exceed the number that hides it.
		behind := b.shares("/mask/behind_float", func() value {
			return b.toFloat("/mask/behind_float", b.binary("/mask/behind", mnn.BinaryMaximum, b.distance(), b.scalar(0)))
		})
		bias := b.binary(name+"/bias", mnn.BinaryMul, behind, b.scalarFloat(-slope))
		sum := b.binary(name+"/sum", mnn.BinaryAdd, bias, b.hiddenScores(window, chunk))
		return b.explicit(name, sum)
	})
}
