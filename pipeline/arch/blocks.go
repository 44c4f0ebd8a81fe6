package arch

import "strconv"

// each calls f with the linear layers that have a tensor.
func each(f func(string, *Linear), names []string, layers ...*Linear) {
	for i, l := range layers {
		if l.Weight.Tensor != "" {
			f(names[i], l)
		}
	}
}

// some calls f with the weights that have a tensor.
func some(f func(Weight), weights ...Weight) {
	for _, w := range weights {
		if w.Tensor != "" {
			f(w)
		}
	}
}

func (n *Norm) vectors(f func(Weight)) {
	if n != nil {
		some(f, n.Gamma, n.Beta)
	}
}

func (a *Attention) linears(f func(string, *Linear)) {
	each(f, []string{"attention.q", "attention.k", "attention.v", "attention.gate", "attention.o"}, &a.Q, &a.K, &a.V, &a.Gate, &a.O)
}

func (a *Attention) vectors(f func(Weight)) {
	a.QNorm.vectors(f)
	a.KNorm.vectors(f)
	a.VNorm.vectors(f)
	a.OutNorm.vectors(f)
	some(f, a.Sinks)
	if r := a.Relative; r != nil {
		some(f, r.Content, r.Place, r.Keys.Weight)
	}
}

func (a *LatentAttention) linears(f func(string, *Linear)) {
	each(f, []string{
		"attention.q_down", "attention.q_nope", "attention.q_rope", "attention.kv_down", "attention.k_rope",
		"attention.k_nope", "attention.v", "attention.o",
	}, &a.QDown, &a.QNope, &a.QRope, &a.KVDown, &a.KRope, &a.KNope, &a.V, &a.O)
}

func (a *LatentAttention) vectors(f func(Weight)) {
	a.QNorm.vectors(f)
	a.KVNorm.vectors(f)
}

func (m *MLP) linears(f func(string, *Linear)) { m.named("mlp.", f) }

func (m *MLP) named(prefix string, f func(string, *Linear)) {
	// One allocation for three names: there are tens of thousands of experts.
	all, n := prefix+"gate"+prefix+"up"+prefix+"down", len(prefix)
	each(f, []string{all[:n+4], all[n+4 : 2*n+6], all[2*n+6:]}, &m.Gate, &m.Up, &m.Down)
}

func (m *MLP) vectors(f func(Weight)) {
	m.Norm.vectors(f)
	some(f, m.XIELU[:]...)
}

func (e *Experts) linears(f func(string, *Linear)) {
	f("experts.router", &e.Router)
	for j := range e.Experts {
		e.Experts[j].named("experts."+strconv.Itoa(j)+".", f)
	}
	if e.Shared != nil {
		each(f, []string{"experts.shared_gate"}, &e.SharedGate)
		e.Shared.named("experts.shared.", f)
	}
}

func (e *Experts) vectors(f func(Weight)) {
	e.RouterNorm.vectors(f)
	e.Norm.vectors(f)
	some(f, e.Correction, e.Gains)
	for j := range e.Experts {
		e.Experts[j].vectors(f)
	}
	if e.Shared != nil {
		e.Shared.vectors(f)
	}
}

func (s *Sum) linears(f func(string, *Linear)) {
	for _, b := range s.Branches {
		b.Block.linears(f)
	}
}

func (s *Sum) vectors(f func(Weight)) {
	for _, b := range s.Branches {
		b.Norm.vectors(f)
		b.Block.vectors(f)
		b.PostNorm.vectors(f)
	}
}

func (i *Injection) linears(f func(string, *Linear)) {
	each(f, []string{"injection.gate", "injection.out"}, &i.Gate, &i.Out)
}

func (i *Injection) vectors(func(Weight)) {}

func (s *ShortConv) linears(f func(string, *Linear)) {
	each(f, []string{"conv.in", "conv.out"}, &s.In, &s.Out)
}

func (s *ShortConv) vectors(f func(Weight)) {
	some(f, s.Taps...)
	some(f, s.Bias)
}

func (g *GatedConv) linears(f func(string, *Linear)) {
	each(f, []string{"conv.in", "conv.out"}, &g.In, &g.Out)
}

func (g *GatedConv) vectors(f func(Weight)) {
	some(f, g.Kernel, g.Bias)
	g.Norm.vectors(f)
}

func (n *DeltaNet) linears(f func(string, *Linear)) {
	each(f, []string{"delta.qkv", "delta.z", "delta.b", "delta.a", "delta.out"}, &n.QKV, &n.Z, &n.B, &n.A, &n.Out)
}

func (n *DeltaNet) vectors(f func(Weight)) {
	some(f, n.Taps...)
	some(f, n.Decay, n.DtBias)
	n.Norm.vectors(f)
}

func (m *Mamba2) linears(f func(string, *Linear)) {
	each(f, []string{"mamba.z", "mamba.xbc", "mamba.dt", "mamba.out"}, &m.Z, &m.XBC, &m.Dt, &m.Out)
}

func (m *Mamba2) vectors(f func(Weight)) {
	some(f, m.Taps...)
	some(f, m.ConvBias, m.DtBias, m.Decay, m.D)
	m.Norm.vectors(f)
}
