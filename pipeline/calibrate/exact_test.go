package calibrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// exact is the mean KL divergence that an exact rewriting may show: rounding of float32 in other places. Observed is at
// most 2e-12.
const exact = 1e-5

func randomScales(r *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(math.Exp2(6*r.Float64() - 3))
	}
	return s
}

func TestScalesAreExact(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, name := range append(known(t), "tiny-qwen3") {
		t.Run(name, func(t *testing.T) {
			dir := familyDir(name)
			if name == "tiny-qwen3" {
				dir = tinyDir
			}
			d, src := openCheckpoint(t, dir)
			o, r := NewOverlay(src), rand.New(rand.NewPCG(1, 2))
			want := map[string]bool{}
			for _, s := range Sites(d) {
				if err := s.Apply(o, randomScales(r, s.Channels)); err != nil {
					t.Fatal(err)
				}
				for _, w := range append(s.Producers, s.Consumers...) {
					want[w.Tensor] = true
				}
			}
			for n, c := range changed(t, src, o) {
				if c != want[n] {
					t.Errorf("%s: changed is %v, want %v", n, c, want[n])
				}
			}
			windows := text(t, d)
			kl := divergence(logits(t, d, src, windows), logits(t, d, o, windows), d.Vocab)
			t.Logf("KL %.2g", kl)
			if !(kl <= exact) {
				t.Errorf("KL divergence %g", kl)
			}
		})
	}
}

// Each kind of site matters: what TestScalesAreExact calls exact is not when a consumer is left out.
func TestHalfASiteIsNotExact(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := openCheckpoint(t, tinyDir)
	windows := text(t, d)
	want := logits(t, d, src, windows)
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range Sites(d)[:4] {
		for i := range s.Consumers {
			o, part := NewOverlay(src), s
			part.Consumers = append(append([]arch.Weight(nil), s.Consumers[:i]...), s.Consumers[i+1:]...)
			if err := part.Apply(o, randomScales(r, s.Channels)); err != nil {
				t.Fatal(err)
			}
			if kl := divergence(want, logits(t, d, o, windows), d.Vocab); kl < 100*exact {
				t.Errorf("%s without %s: KL divergence %g", s.Name, s.Consumers[i].Tensor, kl)
			}
		}
	}
}

func TestRotationIsExact(t *testing.T) {
	both := quant.NewRotation()
	for _, c := range []struct {
		name string
		by   *quant.Rotation
	}{
		{"llama", both}, {"qwen2-untied", both}, {"qwen3-untied", both},
		{"apertus", both}, {"arcee", both}, {"glm", both}, {"mistral", both}, {"phi3", both}, {"bitnet", &quant.Rotation{Seed: 7, Residual: true}},
		{"glm4", &quant.Rotation{Seed: 7, Values: true}}, {"olmo", &quant.Rotation{Seed: 7, Values: true}},
		{"llama", &quant.Rotation{Seed: 7, Residual: true}}, {"qwen2-untied", &quant.Rotation{Seed: 7, Values: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(c.name))
			o, err := Rotate(t.Context(), d, src, c.by, t.TempDir(), 2)
			if err != nil {
				t.Fatal(err)
			}
			names := changed(t, src, o)
			for i := range d.Layers {
				l := pairOf(d, i)
				a, m := l.Attention, l.MLP
				stream, values := c.by.Residual, c.by.Values
				for n, want := range map[string]bool{
					l.AttentionNorm.Gamma.Tensor: stream, l.MLPNorm.Gamma.Tensor: stream, a.Q.Weight.Tensor: stream, a.K.Weight.Tensor: stream,
					a.V.Weight.Tensor: true, a.O.Weight.Tensor: true, a.V.Bias.Tensor: values, m.Gate.Weight.Tensor: stream,
					m.Up.Weight.Tensor: stream, m.Down.Weight.Tensor: stream, d.Embedding.Tensor: stream, d.Head.Weight.Tensor: stream,
					d.FinalNorm.Gamma.Tensor: stream,
				} {
					if n != "" && names[n] != want {
						t.Errorf("%s: changed is %v", n, names[n])
					}
				}
			}
			windows := text(t, d)
			kl := divergence(logits(t, d, src, windows), logits(t, d, o, windows), d.Vocab)
			t.Logf("KL %.2g", kl)
			if !(kl <= exact) {
				t.Errorf("KL divergence %g", kl)
			}
		})
	}
}

func TestRotationRefuses(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	_, err := Rotate(t.Context(), d, src, quant.NewRotation(), t.TempDir(), 1)
	if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "share the table") {
		t.Errorf("tied model: %v", err)
	}
	stream, values := &quant.Rotation{Seed: 1, Residual: true}, &quant.Rotation{Seed: 1, Values: true}
	for _, c := range []struct {
		name string
		by   *quant.Rotation
		want string
	}{
		{"glm4", stream, "rotation: norms after the blocks: "}, {"olmo2", stream, "rotation: blocks without a norm before them: "},
		{"olmo", stream, "rotation: LayerNorm: "}, {"stablelm", quant.NewRotation(), "rotation: LayerNorm: "},
		{"olmo-clip", values, "rotation: clipped values: "},
		{"bitnet", values, "rotation: attention with a gate or a norm before its output: "},
	} {
		d, src := openCheckpoint(t, familyDir(c.name))
		if _, err := Rotate(t.Context(), d, src, c.by, t.TempDir(), 1); !errors.Is(err, tensor.ErrUnsupported) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	d, src = openCheckpoint(t, familyDir("llama"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Rotate(ctx, d, src, quant.NewRotation(), t.TempDir(), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Neither the size of blocks, nor the number of threads, nor the machine is seen in the result.
func TestRotationDoesNotDependOnCuts(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	w := pairOf(d, 0).Attention.V.Weight
	by := quant.NewRotation()
	const want = "e9a61cb2a7fbea2e1bd4f88e4c1554464d8e17c7bba84fd8e9f3b85107455dce"
	for _, c := range []struct{ elements, threads int }{{1 << 23, 1}, {1, 2}, {1000, 7}} {
		r := &rotation{o: NewOverlay(src), dir: t.TempDir(), threads: c.threads, elements: c.elements}
		if err := r.turn(t.Context(), w, by.Head(pairOf(d, 0).Attention.HeadDim), by.Stream(d.Hidden)); err != nil {
			t.Fatal(err)
		}
		got := readAll(t, r.o, w.Tensor)
		if d := fmt.Sprintf("%x", sha256.Sum256(got)); d != want {
			t.Errorf("blocks of %d on %d threads: digest %s, want %s", c.elements, c.threads, d, want)
		}
	}
}
