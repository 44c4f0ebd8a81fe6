package arch

import "math"

// mamba2Keys are the dimensions of [Mamba2] blocks.
type mamba2Keys struct {
	shape              Mamba2
	kernel             int
	convBias, projBias bool
}

// mamba2Keys reads the keys of Mamba 2 that hybrid families share.
func (b *builder) mamba2Keys() mamba2Keys {
	k := mamba2Keys{
		shape: Mamba2{
			Heads:  b.Range("mamba_n_heads", 1, maxHeads, 128),
			Groups: b.Range("mamba_n_groups", 1, maxHeads, 1),
			State:  b.Range("mamba_d_state", 1, maxHeadDim, 256),
		},
		kernel:   b.Range("mamba_d_conv", 1, 64, 4),
		convBias: b.Bool("mamba_conv_bias", true), projBias: b.Bool("mamba_proj_bias", false),
	}
	m := &k.shape
	b.Inert("mamba_chunk_size") // how the library splits long inputs
	width := b.Range("mamba_expand", 1, 1<<10, 2) * b.d.Hidden
	if b.Good("mamba_n_heads", "mamba_expand", "hidden_size") && width%m.Heads != 0 {
		b.Wrong("mamba_n_heads", "%d heads do not divide %d elements", m.Heads, width)
	}
	m.HeadDim = max(width/m.Heads, 1)
	if s, ok := b.fields.values["mamba_d_head"].(string); ok && s == "auto" {
		b.Inert("mamba_d_head")
	} else if n, ok := b.OptInt("mamba_d_head", maxHeadDim); ok && n != m.HeadDim && b.Good("mamba_n_heads", "mamba_expand", "mamba_d_head") {
		b.Wrong("mamba_d_head", "%d times mamba_n_heads %d is not mamba_expand times hidden_size, %d", n, m.Heads, width)
	}
	if m.Heads%m.Groups != 0 && b.Good("mamba_n_heads", "mamba_n_groups") {
		b.Wrong("mamba_n_groups", "%d heads do not divide into %d groups", m.Heads, m.Groups)
	}
	m.TimeMin, m.TimeMax = b.timeLimits("time_step_limit")
	return k
}

// timeLimits reads a pair of limits, by default 0 and infinity.
func (b *builder) timeLimits(key string) (lo, hi float64) {
	lo, hi = 0, math.Inf(1)
	list, _ := b.fields.values[key].([]any)
	if len(list) == 2 && list[1] == nonFinite("Infinity") {
		b.Inert(key)
		if first := show(list[0]); first != "0" && first != "0.0" {
			b.Refuse(key, "a limit below but none above is not supported")
		}
		return lo, hi
	}
	limits := b.Floats(key, 0, 1e9)
	switch {
	case limits == nil:
	case len(limits) != 2 || limits[0] > limits[1]:
		b.Wrong(key, "want a lower limit and an upper one")
	default:
		return limits[0], limits[1]
	}
	return lo, hi
}

// mamba2 is a block, p being "model.layers.3.mamba.". The rows of in_proj are those of z, of x, b and c, and of dt.
func (b *builder) mamba2(k mamba2Keys, p string) *Mamba2 {
	m := k.shape
	width := m.Heads * m.HeadDim
	conv := width + 2*m.Groups*m.State
	in := p + "in_proj"
	m.Z = b.part(in+".z", in, b.d.Hidden, k.projBias, Run{Start: 0, Count: width})
	m.XBC = b.part(in+".xbc", in, b.d.Hidden, k.projBias, Run{Start: width, Count: conv})
	m.Dt = b.part(in+".dt", in, b.d.Hidden, k.projBias, Run{Start: width + conv, Count: m.Heads})
	m.Taps = b.taps(p+"conv1d", conv, k.kernel)
	if k.convBias {
		m.ConvBias = vector(p+"conv1d.bias", conv)
	}
	m.DtBias, m.D = vector(p+"dt_bias", m.Heads), vector(p+"D", m.Heads)
	m.Decay = b.mapped(p+"decay", p+"A_log", m.Heads, NegExp)
	m.Norm, m.NormGroups = &Norm{Gamma: vector(p+"norm.weight", width), Eps: b.eps}, m.Groups
	m.Out = b.linear(p+"out_proj", b.d.Hidden, width, k.projBias)
	return &m
}
