package forward

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// counted runs f and returns the work that it counted.
func counted(t *testing.T, f func(ctx context.Context) error) effort.Work {
	t.Helper()
	var tally effort.Tally
	if err := f(effort.WithTally(t.Context(), &tally)); err != nil {
		t.Fatal(err)
	}
	return tally.Done()
}

// near reports work that differs from its prediction by more than a factor, kind by kind.
func near(t *testing.T, what string, got, want effort.Work, factor float64) {
	t.Helper()
	for k := range got {
		if g, w := got[k], want[k]; g > w*factor || w > g*factor {
			t.Errorf("%s: counted %.4g of %v, predicted %.4g", what, g, effort.Kind(k), w)
		}
	}
}

const (
	// workFactor bounds what predictions of layers are off by: attention pads queries and keys to whole blocks.
	workFactor = 1.1
	// backFactor is that of the way back: its padding differs, it need not project the last branch of a layer, and a random router
	// does not spread the tokens evenly over the experts, whose weights are read more than once.
	backFactor = 1.5
)

func someStates(n int) []float32 {
	random, h := rand.New(rand.NewPCG(3, 4)), make([]float32, n)
	for i := range h {
		h[i] = float32(random.NormFloat64())
	}
	return h
}

// Predicted and counted operations agree, for every kind of block.
func TestTallyOfBlocks(t *testing.T) {
	d, src := everything()
	m := newModel(t, d, src, 2)
	const windows, length = 3, 100
	for i, l := range d.Layers {
		h := someStates(windows * length * d.Hidden)
		want := effort.Text{Windows: windows, Length: length}.Layer(l)
		for name, layer := range map[string]*Layer{"read": m.Layer(i), "loaded": loaded(t, m, i)} {
			got := counted(t, func(ctx context.Context) error {
				return layer.Forward(ctx, slices.Clone(h), Equal(windows, length))
			})
			near(t, name+" layer "+strconv.Itoa(i), got, want, workFactor)
		}
	}
}

func loaded(t *testing.T, m *Model, i int) *Layer {
	t.Helper()
	l, err := m.LoadLayer(i)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Predicted and counted operations agree for a forward and a backward pass of whole models.
func TestTallyOfModels(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "llama", "gemma2", "qwen3_moe", "qwen3_5_text", "deepseek_v3", "bamba", "lfm2", "gpt_oss"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, src := openSource(t, filepath.Join(familiesDir, name))
			m := newModel(t, d, src, 1)
			const windows, length = 2, 64
			text := effort.Text{Windows: windows, Length: length}
			of := Equal(windows, length)
			var inputs [][]float32
			h := someStates(windows * length * d.Hidden)
			near(t, "forward", counted(t, func(ctx context.Context) error {
				for i := range d.Layers {
					inputs = append(inputs, slices.Clone(h))
					if err := m.Layer(i).Forward(ctx, h, of); err != nil {
						return err
					}
				}
				return nil
			}), text.Layers(d, 0), workFactor)
			for weights, v := range map[bool]Visitor{false: {}, true: {Linear: func(*Linear, []float32, []float32) {}}} {
				dh := slices.Clone(h)
				got := counted(t, func(ctx context.Context) error {
					for i, x := range slices.Backward(inputs) {
						if err := loaded(t, m, i).Backward(ctx, dh, x, of, v); err != nil {
							return err
						}
					}
					return nil
				})
				want := text.Backward(d, 0, weights)
				near(t, "backward", got, want, backFactor)
			}
		})
	}
}

// Without a tally nothing is counted, and nothing fails.
func TestNoTally(t *testing.T) {
	var none *effort.Tally
	none.Add(effort.Product, 1)
	none.Linear(1, 2, 3)
	if none.Done() != (effort.Work{}) || effort.TallyOf(t.Context()) != nil {
		t.Error("a tally of nothing has counted")
	}
}

// What a device computes in one piece is counted as it is predicted.
func TestTallyOnDevice(t *testing.T) {
	defer kernel.SetDevice(nil)
	for name, ways := range map[string]int{"qwen3-tied": 2, "llama": 2, "qwen3_moe": 2, "qwen3_5_text": 1, "bamba": 1, "lfm2": 1} { // forth and back, or forth
		d, src := openSource(t, filepath.Join(familiesDir, name))
		device := &wholes{left: 1 << 30}
		kernel.SetDevice(device)
		m := newModel(t, d, src, 1)
		const windows, length = 2, 64
		text, of := effort.Text{Windows: windows, Length: length}, Equal(windows, length)
		var inputs [][]float32
		h := someStates(windows * length * d.Hidden)
		forth := counted(t, func(ctx context.Context) error {
			for i := range d.Layers {
				inputs = append(inputs, slices.Clone(h))
				if err := loaded(t, m, i).Forward(ctx, h, of); err != nil {
					return err
				}
			}
			return nil
		})
		near(t, name+" forward", forth, text.Layers(d, 0), workFactor)
		back := counted(t, func(ctx context.Context) error {
			for i, x := range slices.Backward(inputs) {
				if err := loaded(t, m, i).Backward(ctx, slices.Clone(h), x, of, Visitor{}); err != nil {
					return err
				}
			}
			return nil
		})
		near(t, name+" backward", back, text.Backward(d, 0, false), backFactor)
		if device.done < ways*len(d.Layers) {
			t.Errorf("%s: the device did %d pieces", name, device.done)
		}
	}
}
