package calibrate

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Site is a place in a decoder where channels can be scaled, see [quant.Site], with the names of its tensors.
type Site struct {
	// Name is the name within the model of the input that is scaled: "layers.3.attention.input", "layers.3.attention.o",
	// "layers.3.mlp.input", "layers.3.experts.7.down" or "head".
	Name     string
	Channels int
	// Of is the channel of each column of the consumers; nil if it is the column itself.
	Of []int
	// Producers are divided: the gamma and beta of a norm, or a matrix by rows and its bias.
	Producers []arch.Weight
	// Consumers are multiplied, by columns.
	Consumers []arch.Weight
	// Stream is set if the producer is a norm of the residual stream.
	Stream bool
}

// sampleRows is how many rows of a consumer a folder receives, manyRows of all consumers together, if there are many, such as
// the experts of a layer. The losses of a folding over 512 rows and over all rows differ by a small fraction of the 1 % that a
// folding has to gain.
const sampleRows, manyRows = 512, 4096

// Sites lists the sites of a decoder in the order of the computation.
//
//	norm before a block      all matrices that read it: of parallel branches that share the norm those of all of them, of experts
//	                         the router, every expert and the shared one
//	attention                the rows of v with the columns of o, where all query heads of a key-value head share its scales
//	latent attention         the norm of queries with q_nope and q_rope, that of the latent with k_nope and v; v with o
//	delta net, Mamba 2       the norm before out, in a delta net one gain for all heads
//	MLP, every expert        the rows of up with the columns of down, which the activation of gate does not change
//	final norm               a head that is not the embedding table
//
// A norm before o or down is the producer instead of v or up. There is no site at an input without a norm, at a norm that shares
// its gamma with blocks elsewhere, between o and values that are clipped, normalised or also keys, between up and down of an MLP
// without a gate or with a clamped product, and none for experts with a norm of their own before them, whose inputs nothing
// but the experts reads.
func Sites(d *arch.Decoder) []Site {
	f := &siteFinder{users: gammas(d)}
	for i, l := range d.Layers {
		f.layer(fmt.Sprintf("layers.%d.", i), l)
	}
	if !d.Tied {
		f.shared("head", &d.FinalNorm, 1, true, &d.Head)
	}
	return f.all
}

// siteFinder collects sites.
type siteFinder struct {
	users map[string]int // of gammas
	all   []Site
}

// norm adds the site of a norm within a block, if there is one and nothing else uses its gamma. Channel j mod n is that of column
// j, n the number of channels.
func (f *siteFinder) norm(name string, n *arch.Norm, consumers ...*arch.Linear) {
	f.shared(name, n, 1, false, consumers...)
}

// shared is norm for one that some number of blocks use, and that may be of the residual stream.
func (f *siteFinder) shared(name string, n *arch.Norm, users int, stream bool, consumers ...*arch.Linear) {
	if n == nil || len(consumers) == 0 || f.users[n.Gamma.Tensor] > users || f.users[n.Beta.Tensor] > users {
		return
	}
	s := Site{Name: name, Channels: n.Gamma.Rows, Producers: []arch.Weight{n.Gamma}, Stream: stream}
	if n.Beta.Tensor != "" {
		s.Producers = append(s.Producers, n.Beta)
	}
	for _, l := range consumers {
		if l.Weight.Tensor != "" {
			s.Consumers = append(s.Consumers, l.Weight)
		}
	}
	if cols := s.Consumers[0].Cols; cols != s.Channels {
		s.Of = make([]int, cols)
		for j := range s.Of {
			s.Of[j] = j % s.Channels
		}
	}
	f.all = append(f.all, s)
}

// layer adds the sites of a layer or of the parts of a sum.
func (f *siteFinder) layer(name string, l arch.Layer) {
	for i := range l {
		b := &l[i]
		if i == 0 || !sharesNorm(l, i) {
			consumers, users := readers(b.Block), 1
			for k := i + 1; k < len(l) && sharesNorm(l, k); k++ {
				consumers, users = append(consumers, readers(l[k].Block)...), users+1
			}
			f.shared(name+kind(b.Block)+".input", b.Norm, users, true, consumers...)
		}
		f.block(name, b.Block)
	}
}

// sharesNorm reports whether branch i reads the same vector as the branch before it.
func sharesNorm(l arch.Layer, i int) bool {
	a, b := l[i-1].Norm, l[i].Norm
	return l[i].Parallel && a != nil && b != nil && a.Gamma == b.Gamma && a.Beta == b.Beta
}

// kind names a block in the names of its linear layers.
func kind(b arch.Block) string {
	switch b.(type) {
	case *arch.Attention, *arch.LatentAttention:
		return "attention"
	case *arch.Experts:
		return "experts"
	case *arch.DeltaNet:
		return "delta"
	case *arch.Mamba2:
		return "mamba"
	case *arch.Injection:
		return "injection"
	case *arch.ShortConv:
		return "conv"
	}
	return "mlp"
}

// readers are the linear layers that read the input of a block: nil if something else reads it too.
func readers(b arch.Block) []*arch.Linear {
	switch x := b.(type) {
	case *arch.Attention:
		return []*arch.Linear{&x.Q, &x.K, &x.V, &x.Gate}
	case *arch.LatentAttention:
		if x.QRank == 0 {
			return []*arch.Linear{&x.QNope, &x.QRope, &x.KVDown, &x.KRope}
		}
		return []*arch.Linear{&x.QDown, &x.KVDown, &x.KRope}
	case *arch.MLP:
		return []*arch.Linear{&x.Gate, &x.Up}
	case *arch.DeltaNet:
		return []*arch.Linear{&x.QKV, &x.Z, &x.B, &x.A}
	case *arch.Mamba2:
		return []*arch.Linear{&x.Z, &x.XBC, &x.Dt}
	case *arch.Injection:
		return []*arch.Linear{&x.Gate}
	case *arch.ShortConv:
		return []*arch.Linear{&x.In}
	case *arch.Experts:
		if x.RouterNorm != nil || x.Norm != nil {
			return nil
		}
		all := []*arch.Linear{&x.Router}
		for i := range x.Experts {
			all = append(all, readers(&x.Experts[i])...)
		}
		if x.Shared != nil {
			all = append(append(all, readers(x.Shared)...), &x.SharedGate)
		}
		return all
	}
	return nil
}

// block adds the sites within a block.
func (f *siteFinder) block(name string, b arch.Block) {
	name += kind(b)
	switch x := b.(type) {
	case *arch.Attention:
		if x.OutNorm != nil {
			f.norm(name+".o", x.OutNorm, &x.O)
		} else if x.Clip == 0 && x.VNorm == nil && x.V.Weight.Tensor != "" {
			f.all = append(f.all, values(name+".o", x))
		}
	case *arch.LatentAttention:
		f.norm(name+".q", x.QNorm, &x.QNope, &x.QRope)
		f.norm(name+".kv", x.KVNorm, &x.KNope, &x.V)
		f.linear(name+".o", &x.V, &x.O)
	case *arch.MLP:
		f.mlp(name, x)
	case *arch.DeltaNet:
		f.norm(name+".out", &x.Norm, &x.Out)
	case *arch.Mamba2:
		f.norm(name+".out", x.Norm, &x.Out)
	case *arch.Experts:
		for i := range x.Experts {
			f.mlp(fmt.Sprintf("%s.%d", name, i), &x.Experts[i])
		}
		if x.Shared != nil {
			f.mlp(name+".shared", x.Shared)
		}
	case *arch.Sum:
		f.layer(strings.TrimSuffix(name, kind(b)), x.Branches)
	}
}

// mlp adds the site before down.
func (f *siteFinder) mlp(name string, x *arch.MLP) {
	if x.Norm != nil {
		f.norm(name+".down", x.Norm, &x.Down)
	} else if x.Gate.Weight.Tensor != "" && x.Activation != arch.ClampedSwiGLU {
		f.linear(name+".down", &x.Up, &x.Down)
	}
}

// linear adds the site between two linear layers.
func (f *siteFinder) linear(name string, from, to *arch.Linear) {
	f.all = append(f.all, Site{Name: name, Channels: from.Weight.Rows, Producers: outputs(*from), Consumers: []arch.Weight{to.Weight}})
}

// values returns the site between the values of attention and o.
func values(name string, a *arch.Attention) Site {
	of := make([]int, a.Heads*a.HeadDim)
	for j := range of {
		head := j / a.HeadDim
		of[j] = head/(a.Heads/a.KVHeads)*a.HeadDim + j%a.HeadDim
	}
	return Site{Name: name, Channels: a.KVHeads * a.HeadDim, Of: of, Producers: outputs(a.V), Consumers: []arch.Weight{a.O.Weight}}
}

// gammas counts the norms that use a vector.
func gammas(d *arch.Decoder) map[string]int {
	users := map[string]int{}
	add := func(list ...*arch.Norm) {
		for _, n := range list {
			if n == nil {
				continue
			}
			users[n.Gamma.Tensor]++
			if n.Beta.Tensor != "" {
				users[n.Beta.Tensor]++
			}
		}
	}
	add(d.EmbeddingNorm, &d.FinalNorm)
	var layer func(l arch.Layer)
	layer = func(l arch.Layer) {
		for _, b := range l {
			add(b.Norm, b.PostNorm)
			switch x := b.Block.(type) {
			case *arch.Attention:
				add(x.QNorm, x.KNorm, x.VNorm, x.OutNorm)
			case *arch.LatentAttention:
				add(x.QNorm, x.KVNorm)
			case *arch.MLP:
				add(x.Norm)
			case *arch.DeltaNet:
				add(&x.Norm)
			case *arch.Mamba2:
				add(x.Norm)
			case *arch.Experts:
				add(x.RouterNorm, x.Norm)
				for i := range x.Experts {
					add(x.Experts[i].Norm)
				}
				if x.Shared != nil {
					add(x.Shared.Norm)
				}
			case *arch.Sum:
				layer(x.Branches)
			}
		}
	}
	for _, l := range d.Layers {
		layer(l)
	}
	return users
}

// outputs are the tensors that produce the outputs of a linear layer.
func outputs(l arch.Linear) []arch.Weight {
	if l.Bias.Tensor == "" {
		return []arch.Weight{l.Weight}
	}
	return []arch.Weight{l.Weight, l.Bias}
}

// Load reads the consumers, of each at most 512 rows at equal distances, and fewer if there are more than eight. spec returns the
// form in which a tensor will be stored; stats are those of the site's input.
func (s *Site) Load(src tensor.Source, spec func(tensor string) quant.Spec, stats *quant.Stats) (*quant.Site, error) {
	q := &quant.Site{Name: s.Name, Channels: s.Channels, Of: s.Of, Stats: stats}
	for _, w := range s.Consumers {
		t, err := open(src, w)
		if err != nil {
			return nil, err
		}
		m := quant.Matrix{Rows: min(w.Rows, sampleRows, max(1, manyRows/len(s.Consumers))), Cols: w.Cols}
		if stats == nil || stats.Cols != w.Cols {
			return nil, fmt.Errorf("internal error: %s: statistics do not have %d columns", w.Tensor, w.Cols)
		}
		m.Data = make([]float32, m.Rows*m.Cols)
		for r := range m.Rows {
			if err := t.read(m.Row(r), int64(r)*int64(w.Rows)/int64(m.Rows)*int64(w.Cols)); err != nil {
				return nil, err
			}
		}
		if i := kernel.NonFinite(m.Data); i >= 0 {
			return nil, fmt.Errorf("%s: weight is %v: %w", w.Tensor, m.Data[i], tensor.ErrCorrupt)
		}
		q.Consumers = append(q.Consumers, m)
		q.Specs = append(q.Specs, spec(w.Tensor))
		q.Weights = append(q.Weights, float64(w.Rows)/float64(m.Rows))
	}
	return q, nil
}

// Apply folds scales, [Channels] and positive, into the tensors of an overlay.
func (s *Site) Apply(o *Overlay, scale []float32) error {
	if len(scale) != s.Channels {
		return fmt.Errorf("internal error: %s: %d scales for %d channels", s.Name, len(scale), s.Channels)
	}
	inverse := make([]float32, len(scale))
	for c, v := range scale {
		if !(v > 0) {
			return fmt.Errorf("internal error: %s: scale %d is %v", s.Name, c, v)
		}
		inverse[c] = 1 / v
	}
	for _, w := range s.Producers {
		divide := o.ScaleRows
		if w.Cols == 0 {
			divide = o.ScaleVector
		}
		if err := divide(w.Tensor, inverse); err != nil {
			return err
		}
	}
	for _, w := range s.Consumers {
		column := scale
		if s.Of != nil {
			column = make([]float32, len(s.Of))
			for j, c := range s.Of {
				column[j] = scale[c]
			}
		}
		if err := o.ScaleColumns(w.Tensor, column); err != nil {
			return err
		}
	}
	return nil
}
