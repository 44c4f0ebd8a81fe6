package arch

import (
	"encoding/json"
	"math"
	"strconv"
)

// mambaDims are the dimensions and options of Mamba 2 blocks.
type mambaDims struct {
	inner, heads, headDim, groups, state, taps int
	projBias, convBias                         bool
	timeMin, timeMax                           float64
}

// mambaKeys reads the keys with the prefix mamba_. inner is the width of the block, 0 for mamba_expand * hidden_size;
// the defaults are those of BambaConfig, which FalconH1Config shares.
func (b *builder) mambaKeys(inner int) mambaDims {
	m := mambaDims{
		inner:  inner,
		heads:  b.Range("mamba_n_heads", 1, maxHeads, 128),
		groups: b.Range("mamba_n_groups", 1, maxHeads, 1),
		state:  b.Range("mamba_d_state", 1, maxHeadDim, 256),
		taps:   b.Range("mamba_d_conv", 2, 64, 4),
	}
	expand := b.Range("mamba_expand", 1, 64, 2)
	if m.inner == 0 {
		m.inner = expand * b.d.Hidden
	}
	good := b.Good("mamba_n_heads", "mamba_n_groups", "mamba_expand", "mamba_d_ssm", "hidden_size")
	if good && (m.inner%m.heads != 0 || m.heads%m.groups != 0) {
		b.Wrong("mamba_n_heads", "%d elements in %d heads in %d groups", m.inner, m.heads, m.groups)
	}
	m.headDim = m.inner / m.heads
	if text, _ := b.fields.values["mamba_d_head"].(string); text == "auto" {
		b.Inert("mamba_d_head")
	} else if n, ok := b.OptInt("mamba_d_head", maxHeadDim); ok && good && n != m.headDim && b.Good("mamba_d_head") {
		b.Wrong("mamba_d_head", "%d contradicts %d elements in %d heads", n, m.inner, m.heads)
	}
	m.projBias, m.convBias = b.Bool("mamba_proj_bias", false), b.Bool("mamba_conv_bias", true)
	m.timeMin, m.timeMax = b.timeLimit()
	// How the Python code splits a text, and which logits it computes.
	b.Inert("mamba_chunk_size", "num_logits_to_keep")
	return m
}

// timeLimit reads time_step_limit, two numbers of which the second may be infinite.
func (b *builder) timeLimit() (lo, hi float64) {
	const key = "time_step_limit"
	lo, hi = 0, math.Inf(1)
	v := b.take(key)
	if v == nil {
		return lo, hi
	}
	if list, _ := v.([]any); len(list) == 2 {
		low, okLow := bound(list[0])
		high, okHigh := bound(list[1])
		if okLow && okHigh && low >= 0 && low < high {
			return low, high
		}
	}
	b.Wrong(key, "is not a lower and a higher bound")
	return lo, hi
}

// bound is a number, or infinity.
func bound(v any) (float64, bool) {
	if v == nonFinite("Infinity") {
		return math.Inf(1), true
	}
	number, ok := v.(json.Number)
	f, err := strconv.ParseFloat(string(number), 64)
	return f, ok && err == nil
}

// mamba2 returns a block without norm, whose tensors begin with p ("model.layers.3.mamba.").
func (b *builder) mamba2(p string, m mambaDims, outBias bool) *Mamba2 {
	bc := m.groups * m.state
	at := 0
	in := func(what string, rows int) Linear {
		l := b.part(p+"in_proj."+what, p+"in_proj", b.d.Hidden, m.projBias, Run{Start: at, Count: rows})
		at += rows
		return l
	}
	width := m.inner + 2*bc
	z, xbc, dt := in("z", m.inner), in("xbc", width), in("dt", m.heads)
	out := &Mamba2{
		Heads: m.heads, HeadDim: m.headDim, Groups: m.groups, State: m.state,
		Z: z, XBC: xbc, Dt: dt,
		DtBias:  Weight{Tensor: p + "dt_bias", Rows: m.heads},
		Decay:   b.view(View{Name: p + "A", Rows: m.heads, Tensor: p + "A_log", Map: NegExp}),
		D:       Weight{Tensor: p + "D", Rows: m.heads},
		TimeMin: m.timeMin, TimeMax: m.timeMax,
		Out: b.linear(p+"out_proj", b.d.Hidden, m.inner, outBias),
	}
	out.Taps = b.convTaps(p+"conv1d.weight", width, m.taps)
	if m.convBias {
		out.ConvBias = Weight{Tensor: p + "conv1d.bias", Rows: width}
	}
	return out
}

// convTaps returns the columns of the weight of a depthwise convolution, [width, 1, taps].
func (b *builder) convTaps(name string, width, taps int) []Weight {
	out := make([]Weight, taps)
	for j := range out {
		out[j] = b.view(View{
			Name: name + "." + strconv.Itoa(j), Rows: width, Tensor: name,
			Transposed: true, Runs: []Run{{Start: j, Count: 1}},
		})
	}
	return out
}
