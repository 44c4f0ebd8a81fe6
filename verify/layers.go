package verify

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Layers checks that with the packaged weights in float32 the hidden state after every layer stays close to the source's,
// and names the first layer where it does not.
type Layers struct{ Limit }

// largestLayerError is the default of Max: the relative error of the hidden state after any layer.
var largestLayerError = byBits{16: 0.02, 8: 0.1, 6: 0.2, 5: 0.3, 4: 0.5, 3: 0.8, 2: 1.2}

// layerNoise is always allowed if the checks weights and graph have passed, so that only noise is left, and the recipe
// sets no limit. On 64 mixtures of experts and state-space models of random weights no layer was off by more than .7;
// an error above 1 means that the state is lost.
const layerNoise = 1

func (*Layers) String() string { return "layers" }

// Hint implements Check.
func (*Layers) Hint(map[string]float64) string {
	return "use more bits or smaller blocks, at least for the named layer, to come closer to the source; verify.layers.max of the recipe is the limit"
}

// Validate implements Validator.
func (l *Layers) Validate() (key, problem string) { return l.notNegative() }

func (l *Layers) limit(s *Subject) float64 {
	limit := largestLayerError[s.Options.Bits]
	if s.faithful {
		limit = max(limit, layerNoise)
	}
	return l.or(limit)
}

// Check implements Check.
func (l *Layers) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Reference == nil {
		return skip(needsWeights)
	}
	if s.Closeness.Floats == quant.Turned {
		return skip("the states between layers are rotated, so they cannot be compared with the source's")
	}
	windows, err := s.windows()
	if err != nil {
		return Finding{}, err
	}
	w := windows[0][:min(graphTokens, len(windows[0]))]
	task := s.Package.Task()
	sess, err := s.session(backend.Float)
	if err != nil {
		return Finding{}, err
	}
	outputs := map[string]int{}
	for i := range s.Source.Model.Layers {
		outputs[mnn.LayerOutput(i)] = i
	}
	got := make([][]float32, len(outputs))
	sess.Observe = func(op *mnn.Op, _ int, _ []int, v []float32) {
		if i, ok := outputs[op.Name]; ok {
			got[i] = append([]float32{}, v...)
		}
	}
	if task == runtime.Generate {
		err = sess.Feed(ctx, w)
	} else {
		_, err = sess.Vector(ctx, w)
		w = trained(task, w)
	}
	if err != nil {
		return Finding{}, err
	}
	worst, bad, badAt := 0.0, -1, 0.0
	limit := l.limit(s)
	value := map[string]float64{"limit": limit}
	err = s.Source.Reference.Layers(ctx, [][]int32{w}, func(i int, want []float32) error {
		if len(got[i]) != len(want) {
			return fmt.Errorf("layer %d: the graph has no op %q with %d numbers", i, mnn.LayerOutput(i), len(want))
		}
		e := relativeError(want, got[i])
		value[fmt.Sprintf("layer_%d", i)] = e
		worst = max(worst, e)
		if bad < 0 && !(e <= limit) {
			bad, badAt = i, e
		}
		return nil
	})
	if err != nil {
		return fail(value, "%v", err)
	}
	if bad >= 0 {
		f := Finding{Headline: &Headline{Value: badAt, Limit: &limit}, Value: value}
		return f.say("layer %d is the first bad one: relative error %.3g of its output, limit %.3g", bad, badAt, limit)
	}
	value["worst"] = worst
	f, err := Finding{Passed: true, Headline: &Headline{Value: worst, Limit: &limit}, Value: value}.say("largest relative error of a layer's output %.3g", worst)
	if err != nil || task != runtime.Generate {
		return f, err
	}
	return s.layersFar(ctx, len(w), limit, f)
}

// relativeError returns |got - want| / |want| in the Euclidean norm over all tokens and channels.
func relativeError(want, got []float32) float64 {
	var d, n float64
	for i, w := range want {
		e := float64(got[i]) - float64(w)
		d += float64(e * e)
		n += float64(float64(w) * float64(w))
	}
	if n == 0 {
		return math.Sqrt(d)
	}
	return math.Sqrt(d / n)
}
