//go:build foreign

package runtime_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// foreign are packages that another exporter made of tiny-qwen3, and the divergences that the engine itself has on
// two windows of 512 tokens of the text LLMEXPORT_FOREIGN_TEXT with memory and precision high.
var foreign = []struct {
	name string
	kl   float64
	// most, if not 0, is a bound instead: kl is rounding.
	most float64
}{
	{name: "f16-classic", kl: 2.9e-12, most: 1e-9},
	{name: "q8-classic", kl: .00033},
	{name: "q4-classic", kl: .0583},
	{name: "q4-c4", kl: .0583},
	{name: "q4-sym-fp32scale-classic", kl: .0856},
	{name: "q4-sepembed-classic", kl: .0529},
}

// foreignTolerance is the largest share by which a divergence may differ from the engine's, which is known to two or
// three digits.
const foreignTolerance = 0.02

// foreignDir is the directory of one of them, in that which LLMEXPORT_FOREIGN names.
func foreignDir(name string) string { return filepath.Join(os.Getenv("LLMEXPORT_FOREIGN"), name) }

func TestForeignPackages(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("LLMEXPORT_FOREIGN_TEXT"))
	if err != nil {
		t.Fatal(err)
	}
	src, err := source.Open(t.Context(), source.Origin{Dir: "../testdata/tiny-qwen3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ref, err := reference.New(src.Decoder, src.Checkpoint, reference.Options{Threads: 2, Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	const window, count = 512, 2
	ids := src.Tokenizer.Encode(string(text[:min(len(text), 12*window*count)]), false)
	windows := [][]int32{ids[:window], ids[window : 2*window]}
	hidden, err := ref.Hidden(t.Context(), windows)
	if err != nil {
		t.Fatal(err)
	}
	vocab := src.Decoder.Vocab
	want := make([]float32, window*count*vocab)
	if err := ref.Logits(t.Context(), want, hidden); err != nil {
		t.Fatal(err)
	}
	norms := make([]float64, window*count)
	for i := range norms {
		norms[i] = kernel.LogSumExp(want[i*vocab : (i+1)*vocab])
	}
	for _, f := range foreign {
		t.Run(f.name, func(t *testing.T) {
			s := session(t, openPackage(t, foreignDir(f.name)), backend.Float)
			kl := 0.0
			for i, w := range windows {
				if err := s.Advance(t.Context(), [][]int32{w}); err != nil {
					t.Fatal(err)
				}
				logits, err := s.Logits(t.Context(), 0, len(w))
				if err != nil {
					t.Fatal(err)
				}
				for r := range w {
					at := i*window + r
					kl += divergence(want[at*vocab:(at+1)*vocab], norms[at], logits[r*vocab:(r+1)*vocab]) / (window * count)
				}
			}
			t.Logf("KL %.4g, the engine's %.4g", kl, f.kl)
			if f.most != 0 && !(kl <= f.most) {
				t.Errorf("KL %g is above %g", kl, f.most)
			}
			if f.most == 0 && !(math.Abs(kl/f.kl-1) <= foreignTolerance) {
				t.Errorf("KL %g is not the engine's %g", kl, f.kl)
			}
		})
	}
}

// divergence is KL(p to q) in nats of two rows of logits; norm is that of p.
func divergence(p []float32, norm float64, q []float32) (kl float64) {
	d := kernel.LogSumExp(q) - norm
	for i, v := range p {
		if lp := float64(v) - norm; lp > -30 { // the rest weighs less than 1e-13
			kl += kernel.Exp(lp) * (float64(v) - float64(q[i]) + d)
		}
	}
	return kl
}

// c4Stretch bounds what the order of sums makes of logits of about 10 in the fused and the classic form of a graph.
const c4Stretch = 2e-4

// The fused (C4) and the classic graph of the same weights compute the same, at once and token by token.
func TestForms(t *testing.T) {
	ids := make([]int32, 24)
	for i := range ids {
		ids[i] = int32(i*911%8000 + 100)
	}
	var want [][]float32
	for _, name := range []string{"q4-classic", "q4-c4"} {
		s := session(t, openPackage(t, foreignDir(name)), backend.Float)
		all, err := s.Forward(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		got := [][]float32{all}
		for _, id := range ids[:3] {
			l, err := s.Decode(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		if want == nil {
			want = got
			continue
		}
		worst := 0.0
		for i := range want {
			if len(got[i]) != len(want[i]) {
				t.Fatalf("%d logits, %d in the classic form", len(got[i]), len(want[i]))
			}
			for j, v := range got[i] {
				worst = max(worst, math.Abs(float64(v-want[i][j])))
			}
		}
		t.Logf("largest difference %.2g", worst)
		if !(worst <= c4Stretch) {
			t.Errorf("logits differ by %g", worst)
		}
	}
}
