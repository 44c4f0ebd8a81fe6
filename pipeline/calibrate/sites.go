package calibrate

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Site is a place in a decoder where channels can be scaled, see [quant.Site], with the names of its tensors.
type Site struct {
	// Name is the name within the model of the input that is scaled: "layers.3.attention.input", "layers.3.attention.o",
	// "layers.3.mlp.input", "layers.3.mlp.down" or "head".
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

// sampleRows is how many rows of a consumer a folder receives. The losses of a folding over 512 rows and over all rows differ by
// a small fraction of the 1 % that a folding has to gain.
const sampleRows = 512

// Sites lists the sites of a decoder that [Check] accepts, in the order of the computation: the norm before attention with q, k,
// v and their gate; the rows of v with the columns of o, where all query heads of a key-value head share its scales; the norm
// before the MLP with gate and up; the rows of up with the columns of down, which the activation of gate does not change; the
// final norm with a head that is not the embedding table. If o or down have a norm of their own before them, that is their
// producer. There is no site at an input without a norm, at a norm that shares its gamma with others, between o and values that
// are clipped, normalised or also keys, or between up and down of an MLP without a gate or with a clamped product.
func Sites(d *arch.Decoder) []Site {
	var all []Site
	users := gammas(d)
	norm := func(name string, n *arch.Norm, stream bool, consumers ...arch.Linear) {
		if n == nil || users[n.Gamma.Tensor] > 1 || users[n.Beta.Tensor] > 1 {
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
		all = append(all, s)
	}
	for i, l := range d.Layers {
		for _, b := range l {
			name := fmt.Sprintf("layers.%d.", i)
			switch x := b.Block.(type) {
			case *arch.Attention:
				norm(name+"attention.input", b.Norm, true, x.Q, x.K, x.V, x.Gate)
				if x.OutNorm != nil {
					norm(name+"attention.o", x.OutNorm, false, x.O)
				} else if x.Clip == 0 && x.VNorm == nil && x.V.Weight.Tensor != "" {
					all = append(all, values(name+"attention.o", x))
				}
			case *arch.MLP:
				norm(name+"mlp.input", b.Norm, true, x.Gate, x.Up)
				if x.Norm != nil {
					norm(name+"mlp.down", x.Norm, false, x.Down)
				} else if x.Gate.Weight.Tensor != "" && x.Activation != arch.ClampedSwiGLU {
					all = append(all, Site{Name: name + "mlp.down", Channels: x.Intermediate, Producers: outputs(x.Up),
						Consumers: []arch.Weight{x.Down.Weight}})
				}
			}
		}
	}
	if !d.Tied {
		norm("head", &d.FinalNorm, true, d.Head)
	}
	return all
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
	for _, l := range d.Layers {
		for _, b := range l {
			add(b.Norm, b.PostNorm)
			switch x := b.Block.(type) {
			case *arch.Attention:
				add(x.QNorm, x.KNorm, x.VNorm, x.OutNorm)
			case *arch.MLP:
				add(x.Norm)
			}
		}
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

// Load reads the consumers, of each at most 512 rows at equal distances. spec returns the form in which a tensor will be stored;
// stats are those of the site's input.
func (s *Site) Load(src tensor.Source, spec func(tensor string) quant.Spec, stats *quant.Stats) (*quant.Site, error) {
	q := &quant.Site{Name: s.Name, Channels: s.Channels, Of: s.Of, Stats: stats}
	for _, w := range s.Consumers {
		t, err := open(src, w)
		if err != nil {
			return nil, err
		}
		m := quant.Matrix{Rows: min(w.Rows, sampleRows), Cols: w.Cols}
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
