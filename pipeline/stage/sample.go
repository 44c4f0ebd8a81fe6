package stage

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/quant"
)

// trialSize is how much of a model a trial encodes: all of a model with at most whole layers, and about sampled layers of a larger one.
type trialSize struct{ whole, sampled int }

// defaultTrials bounds the time of a trial by that of a few layers and some passes of the text through the model.
var defaultTrials = trialSize{whole: 12, sampled: 6}

// trialGradientTokens is how much text provides the gradients for some layers.
const trialGradientTokens = 4096

// trialGradients is the number of windows of so many tokens with trialGradientTokens.
func trialGradients(length int) int { return (trialGradientTokens + length - 1) / length }

// sample returns the layers that a trial encodes, in order; nil stands for all of them, the table and the head. They are spread evenly
// over the depth, the first and the last among them. Of every kind of layer that would be missing one is added, that in the middle of
// its kind.
func (t trialSize) sample(d *arch.Decoder) []int {
	n := len(d.Layers)
	if n <= t.whole {
		return nil
	}
	var layers []int
	for i := range t.sampled {
		layers = append(layers, (2*i*(n-1)+t.sampled-1)/(2*(t.sampled-1)))
	}
	kinds := map[string][]int{}
	for i, l := range d.Layers {
		k := layerKind(l)
		kinds[k] = append(kinds[k], i)
	}
	for _, of := range kinds {
		if !slices.ContainsFunc(layers, func(i int) bool { return slices.Contains(of, i) }) {
			layers = append(layers, of[len(of)/2])
		}
	}
	slices.Sort(layers)
	return slices.Compact(layers)
}

// sampled are the layers that a trial of this run encodes, nil for all: a limit on the divergence is held by what was measured, not by what follows
// from a part of the layers, and a budget of bytes has the same allocation whatever a trial says.
func (r *Run) sampled(d *arch.Decoder) []int {
	if r.Quantize.Budget.KL != 0 {
		return nil
	}
	return r.trials.sample(d)
}

// layerKind names the blocks of a layer; an attention that does not reach all positions is another one.
func layerKind(l arch.Layer) (kind string) {
	for b := range l.Blocks() {
		kind += fmt.Sprintf("%T ", b)
		if a, ok := b.(*arch.Attention); ok && (a.Window != 0 || a.Chunk != 0) {
			kind += "near "
		}
	}
	return kind
}

// leaveOut keeps a scheme from encoding the text model but for the matrices of some layers.
func leaveOut(d *arch.Decoder, s *calibrate.Scheme, layers []int) {
	encoded := map[string]bool{}
	for _, i := range layers {
		d.LayerLinears(i, func(_ string, l *arch.Linear) { encoded[l.Weight.Tensor] = true })
	}
	s.Floats[d.Embedding.Tensor] = true
	d.Linears(func(_ string, l *arch.Linear) {
		if !encoded[l.Weight.Tensor] {
			s.Floats[l.Weight.Tensor] = true
		}
	})
}

// extension predicts the divergence of a model from that of a part of its layers.
type extension struct {
	factor float64
	rest   float64 // nats of the table and the head
}

func (x extension) of(kl float64) float64 { return float64(kl*x.factor) + x.rest }

// extensions are those for text, and for prompts with what towers are shown, if a scheme encodes a part of the layers.
//
// To second order in the errors, the divergence of a model is the sum of those of its matrices, because errors of different matrices
// have random signs. The measured divergences are those of simpler codes, a few matrices at a time; the method and what matrices do to
// each other change them by a factor. All layers are encoded by the same method, so the factor of the encoded ones stands for that of
// the others. The table and the head are encoded without regard to other matrices and count as measured: with the factor, predictions
// for small-qwen3 are 4 and 7 % too low at 3 and 4 bits, without it 1 and 4 % too high.
func (t *trial) extensions(d *arch.Decoder, s *calibrate.Scheme) (text, shown extension) {
	inLayer := map[string]bool{}
	for i := range d.Layers {
		d.LayerLinears(i, func(_ string, l *arch.Linear) { inLayer[l.Weight.Tensor] = true })
	}
	var layers, encoded, towers, rest float64
	for _, it := range t.measured {
		name := it.Members[0]
		spec, ok := s.Specs[name]
		if !ok {
			continue
		}
		kl := klOf(it, spec)
		switch {
		case inLayer[name] && s.Floats[name]:
			layers += kl
		case inLayer[name]:
			layers, encoded = layers+kl, encoded+kl
		case s.Floats[name]:
			rest += kl
		default:
			towers += kl
		}
	}
	extend := func(all, part float64) extension {
		if !(part > 0) {
			return extension{1, rest + all}
		}
		return extension{all / part, rest}
	}
	return extend(layers, encoded), extend(layers+towers, encoded+towers)
}

// klOf is the divergence of a measured matrix that is stored in a form. A form that was not measured, such as one of an override, has
// that of the one next to it, times four for each bit less, as errors of half the size have a quarter of the square.
func klOf(it quant.Item, s quant.Spec) float64 {
	if s.Bits == 16 || len(it.Options) == 0 {
		return 0
	}
	distance := func(o quant.Option) float64 { return math.Abs(float64(o.Spec.Bits - s.Bits)) }
	differs := func(o quant.Option) int {
		n := 0
		for _, is := range []bool{o.Spec.Block != s.Block, o.Spec.Symmetric != s.Symmetric, o.Spec.Scale != s.Scale} {
			if is {
				n++
			}
		}
		return n
	}
	next := slices.MinFunc(it.Options, func(a, b quant.Option) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(differs(a), differs(b)))
	})
	return math.Ldexp(next.KL, 2*(next.Spec.Bits-s.Bits))
}
