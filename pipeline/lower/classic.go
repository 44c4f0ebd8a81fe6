package lower

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// HeadOp names the linear that makes logits.
const HeadOp = "/lm/lm_head/Linear"

// Classic lowers to the form that every engine from 3.5.0 on loads: plain tensors between layers, rotary
// embedding from elementary ops, and one Attention op per layer, or per head if heads have different masks.
func Classic(d *arch.Decoder, o Options) (*Model, error) {
	b := newBuilder()
	b.decoder, b.context, b.precision, b.latent = d, d.MaxPositions, d.Precision, o.Latent
	b.spelledGELU, b.tabledQuotients, b.storedAttention = o.SpelledGELU, o.TabledQuotients, o.StoredAttention
	if o.Context > 0 {
		b.context = min(o.Context, d.MaxPositions)
	}
	b.layout = newLayout(o.Form == FormC4)
	if b.c4() {
		if err := b.checkC4(); err != nil {
			return nil, err
		}
	}
	b.split, b.high = rotarySplit(b.context)
	if err := checkLimits(d, b.context, b.split, b.high); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"", LatentExpanded, LatentCached}, o.Latent) {
		return nil, fmt.Errorf("latent attention %q: known are %s, %s", o.Latent, LatentExpanded, LatentCached)
	}
	b.slots = make([]Slot, 0, manySlots(d))
	hidden := int32(d.Hidden)
	if d.Lookup.Tensor != "" {
		hidden = int32(d.Lookup.Cols)
	}
	ids := b.input("input_ids", mnn.DTFloat, 1, 1, hidden)
	b.mask = b.input("attention_mask", mnn.DTFloat, maskDims(d)...)
	rows := int32(1)
	if b.axes = turnsByAxes(d); b.axes {
		rows = places
	}
	b.positions = b.input("position_ids", mnn.DTInt32, rows, -1)
	var index value
	if d.Pooling == nil {
		index = b.input("logits_index", mnn.DTInt32, 1)
	}
	var deep value
	if d.Deep > 0 {
		deep = b.input(mnn.DeepInput, mnn.DTFloat, int32(d.Deep), -1, hidden)
	}
	h := b.embedded(ids)
	b.chooseMasks()
	for _, r := range ropes(d) {
		b.rotary(r)
	}
	for i, l := range d.Layers {
		var err error
		if h, err = b.layer(i, l, b.inStream(h)); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		if i < d.Deep {
			at := "/deep/after_" + strconv.Itoa(i)
			h = b.binary(at, mnn.BinaryAdd, h, b.slice(at+"/rows", deep, b.list(int32(i)), int32(i+1), 0))
		}
	}
	if d.Pooling != nil {
		return b.sentence(h)
	}
	h = b.slice("/last", h, index, sliceEnd, 1)
	h = b.norm("hidden_states", h, &d.FinalNorm)
	y := b.unpacked(b.linear(HeadOp, h, &d.Head, Slot{Table: true, Lookup: d.Tied && d.Lookup.Tensor == ""}, 1, -1, int32(d.Vocab)))
	if d.LogitScale != 0 {
		y = b.times("/lm/scale", y, d.LogitScale)
	}
	if d.LogitCap != 0 {
		y = b.unary("/lm/tanh", mnn.UnaryTanh, b.times("/lm/below_cap", y, 1/d.LogitCap))
		y = b.times("/lm/cap", y, d.LogitCap)
	}
	b.g.Tensors[y] = "logits"
	if b.err != nil {
		return nil, b.err
	}
	b.maskCondition()
	if d.Lookup.Tensor != "" {
		b.slots = append(b.slots, Slot{Kind: TableSlot, Name: "embedding", Op: -1, Weight: d.Lookup, Table: d.PerLayer != nil, Tower: true, Lookup: true})
	} else if !d.Tied {
		b.slots = append(b.slots, Slot{Kind: TableSlot, Name: "embedding", Op: -1, Weight: d.Embedding, Table: true, Lookup: true})
	}
	return &Model{
		Parts:   []*Part{{Graph: b.g, Slots: b.slots}},
		Context: b.context, Window: b.window, Precision: b.precision, Whole: b.whole,
		CacheElements: b.cacheElements, StateBytes: b.stateBytes, Caches: b.caches, Conditions: b.conditions,
		Features: b.features(),
	}, nil
}

// embedded returns the states before the first layer, [1, tokens, Hidden].
func (b *builder) embedded(ids value) value {
	d, hidden := b.decoder, int32(b.decoder.Hidden)
	if d.Pooling != nil && d.Pooling.Pairs {
		ids = b.pairs(ids)
	} else if d.PerLayer != nil {
		ids = b.divided(ids)
	} else if d.Marked() {
		ids = b.unmarked(ids)
	} else {
		ids = b.reshape("/embedding", ids, 1, -1, hidden)
	}
	if d.NormLast {
		return b.embeddedBefore(ids)
	}
	h := ids
	if d.EmbeddingNorm != nil {
		h = b.norm("/embedding_norm", h, d.EmbeddingNorm)
	}
	if d.EmbeddingScale != 0 {
		h = b.times("/embedding_scale", h, d.EmbeddingScale)
	}
	if d.Positions.Tensor != "" {
		h = b.binary("/embedding_positions", mnn.BinaryAdd, h, b.learnedPositions())
	}
	if d.PerLayer != nil {
		b.perLayer(h)
	}
	return h
}

// manySlots estimates the number of slots, a little too high for most models. Experts account for nearly all slots of a mixture.
func manySlots(d *arch.Decoder) int {
	n := 8
	for _, l := range d.Layers {
		for _, b := range l {
			n += 12
			if e, ok := b.Block.(*arch.Experts); ok {
				n += 3 * len(e.Experts)
			}
		}
	}
	return n
}

// layer adds the branches of layer i to the residual stream h.
func (b *builder) layer(i int, l arch.Layer, h value) (value, error) {
	p := fmt.Sprintf("/layers.%d/", i)
	before := h
	names := names{}
	normed := map[arch.Norm]value{} // results of norms that were applied to before
	for k := range l {
		br := &l[k]
		if !br.Parallel {
			before = h
			clear(normed)
		}
		kind := blockName(br.Block)
		name := p + names.unique(kind) + "/"
		x := before
		if br.Norm != nil {
			y, ok := normed[*br.Norm]
			if !ok {
				y = b.norm(p+names.unique(normName(kind)), x, br.Norm)
				normed[*br.Norm] = y
			}
			x = y
		}
		y, err := b.addend(i, name, br, x)
		if err != nil {
			return 0, err
		}
		out := name + "sum"
		switch {
		case k == len(l)-1 && br.Gain.Tensor == "" && br.SumNorm == nil:
			out = mnn.LayerOutput(i)
		case kind != "mlp":
			out = name + "residual"
		}
		h = b.binary(out, mnn.BinaryAdd, h, b.inStream(y))
		if br.Gain.Tensor != "" {
			if out = name + "gained"; k == len(l)-1 && br.SumNorm == nil {
				out = mnn.LayerOutput(i)
			}
			h = b.binary(out, mnn.BinaryMul, h, b.constant(name+"gain", br.Gain))
		}
		if br.SumNorm != nil {
			if out = name + "normed"; k == len(l)-1 {
				out = mnn.LayerOutput(i)
			}
			h = b.norm(out, h, br.SumNorm)
		}
	}
	return h, nil
}

// addend returns what a branch adds to the stream; x is the normalised input of its block.
func (b *builder) addend(i int, name string, br *arch.Branch, x value) (value, error) {
	y, err := b.block(i, name, br.Block, x)
	if err != nil {
		return 0, err
	}
	if br.PostNorm != nil {
		y = b.norm(name+"post_norm", y, br.PostNorm)
	}
	if br.Factors.Tensor != "" {
		y = b.binary(name+"factored", mnn.BinaryMul, y, b.constant(name+"factors", br.Factors))
	}
	if br.Scale != 0 {
		y = b.times(name+"scale", y, br.Scale)
	}
	return y, nil
}

// sumOf lowers a block of several branches.
func (b *builder) sumOf(i int, p string, s *arch.Sum, x value) (value, error) {
	var sum value
	for k := range s.Branches {
		br := &s.Branches[k]
		if br.Parallel || br.Gain.Tensor != "" || br.SumNorm != nil {
			return 0, fmt.Errorf("a branch of a sum is parallel or has a factor or a norm of the stream: %w", tensor.ErrUnsupported)
		}
		name, in := p+"part_"+strconv.Itoa(k)+"/", x
		if br.Norm != nil {
			in = b.norm(name+"norm", x, br.Norm)
		}
		y, err := b.addend(i, name, br, in)
		if err != nil {
			return 0, err
		}
		if k > 0 {
			y = b.binary(name+"sum", mnn.BinaryAdd, sum, y)
		}
		sum = y
	}
	if len(s.Branches) == 0 {
		return 0, fmt.Errorf("a sum of no branches: %w", tensor.ErrUnsupported)
	}
	return sum, nil
}

// names counts the uses of each name within a layer.
type names map[string]int

// unique returns the name itself the first time, then the name with a number.
func (n names) unique(name string) string {
	n[name]++
	if n[name] == 1 {
		return name
	}
	return name + "_" + strconv.Itoa(n[name])
}

// blockName returns the component that a block contributes to the names of its ops.
func blockName(x arch.Block) string {
	switch x.(type) {
	case *arch.Attention, *arch.LatentAttention, *arch.NearAttention:
		return "self_attn"
	case *arch.Injection:
		return "per_layer"
	case *arch.ShortConv, *arch.GatedConv:
		return "conv"
	case *arch.DeltaNet:
		return "linear_attn"
	case *arch.Mamba2:
		return "mamba"
	}
	return "mlp"
}

// normName returns the name of the norm before a block: one for MLPs, another for blocks that mix tokens.
func normName(kind string) string {
	if kind == "mlp" {
		return "post_attention_layernorm"
	}
	return "input_layernorm"
}

// block lowers the block of a branch; the names of its ops begin with p. A block that the engine cannot run is
// tensor.ErrUnsupported.
func (b *builder) block(i int, p string, block arch.Block, x value) (value, error) {
	switch block := block.(type) {
	case *arch.Attention:
		return b.attention(p, block, x)
	case *arch.MLP:
		return b.mlp(p, block, x)
	case *arch.Experts:
		return b.experts(i, p, block, x)
	case *arch.Sum:
		return b.sumOf(i, p, block, x)
	case *arch.Injection:
		return b.injection(i, p, block, x)
	case *arch.LatentAttention:
		return b.latentAttention(p, block, x)
	case *arch.ShortConv:
		return b.shortConv(p, block, x)
	case *arch.GatedConv:
		return b.gatedConv(p, block, x), nil
	case *arch.NearAttention:
		return b.nearAttention(p, block, x)
	case *arch.DeltaNet:
		return b.deltaNet(p, block, x)
	case *arch.Mamba2:
		return b.mamba2(p, block, x)
	}
	return 0, fmt.Errorf("%T: %w", block, tensor.ErrUnsupported)
}
