package stage_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// goldenBound is KL(transformers || package) in nats. Weights of bfloat16 fit into halves but for the smallest; the rest is
// rounding of float32 sums, and the engine's approximations of functions, which make some 1e-10 of it.
const goldenBound = 1e-9

// divergence is the mean of KL(want || got) over rows, in nats.
func divergence(want, got []float32, width int) (kl float64) {
	for at := 0; at < len(want); at += width {
		a, b := want[at:at+width], got[at:at+width]
		la, lb := kernel.LogSumExp(a), kernel.LogSumExp(b)
		for i := range a {
			p := float64(a[i]) - la
			kl += math.Exp(p) * (p - (float64(b[i]) - lb))
		}
	}
	return kl * float64(width) / float64(len(want))
}

// The bytes of a 16-bit package give the logits of transformers, at once, and in a prefill followed by single tokens.
func TestFamilies(t *testing.T) {
	t.Parallel()
	names, err := stagetest.Families(families)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if testing.Short() && i%8 != 0 {
			continue
		}
		for _, engine := range []string{"3.5", "3.6"} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				t.Parallel()
				w := newWork(t, families+name, "target: {engine: \""+engine+"\"}\nquantize: {bits: 16}\nverify: {enabled: false}")
				if tooOld := engine == "3.5" && strings.HasPrefix(name, "gemma4") && !strings.HasPrefix(name, "gemma4_text"); tooOld {
					if _, err := w.run(t); !errors.As(err, new(*recipes.Error)) {
						t.Errorf("an engine that cannot read its pictures: %v", err)
					}
					return
				}
				w.must(t)
				p, err := runtime.Open(w.out())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: backend.Float, Threads: 2, CacheBytes: 1 << 28})
				if err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join(families+name, "golden.safetensors")
				for _, n := range []string{"0", "1"} {
					g, err := stagetest.ReadGolden(golden, n)
					if err != nil {
						t.Fatal(err)
					}
					stepwise := g.Logits
					if other, err := stagetest.ReadStepwise(golden); err != nil {
						t.Fatal(err)
					} else if n == "1" && other != nil {
						stepwise = other
					}
					vocab := len(g.Logits) / len(g.IDs)
					for way, first := range map[string]int{"at once": len(g.IDs), "one by one": min(32, len(g.IDs)/2)} {
						s.Reset()
						var got []float32
						for at, k := 0, first; at < len(g.IDs); at, k = at+k, 1 {
							l, err := s.Forward(t.Context(), g.IDs[at:at+k])
							if err != nil {
								t.Fatal(err)
							}
							got = append(got, l...)
						}
						want := g.Logits
						if way != "at once" {
							want = stepwise
						}
						if kl := divergence(want, got, vocab); len(got) != len(want) || !(kl <= goldenBound) {
							t.Errorf("%d tokens %s: KL %.3g", len(g.IDs), way, kl)
						}
					}
				}
			})
		}
	}
}

// What ends a turn, and what stands before a text, is the same in the package's tokenizer and the source's files.
func TestTokenizerFacts(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, dir := range []string{tiny, "llama", "qwen2-tied", "qwen3-untied"} {
		if dir != tiny {
			dir = families + dir
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			block := "32"
			if dir == tiny {
				block = "64"
			}
			w := newWork(t, dir, "quantize: {block: "+block+"}\nverify: {enabled: false}")
			w.must(t)
			p, err := runtime.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			e, f := p.Tokenizer, src.Facts
			special := e.Special()
			slices.Sort(special)
			if len(f.Stop) == 0 || !slices.Equal(e.Stop(), f.Stop) || !slices.Equal(e.Prefix(), f.Prefix) || !slices.Equal(special, f.Special) {
				t.Errorf("stop %v %v, prefix %v %v, special %v %v", e.Stop(), f.Stop, e.Prefix(), f.Prefix, special, f.Special)
			}
			if e.ChatTemplate() != f.ChatTemplate || e.EOS() != f.EOS || p.Config.Jinja.ChatTemplate != f.ChatTemplate || p.Config.Jinja.EOS != f.EOS {
				t.Errorf("template or eos differ: %q %q", e.EOS(), f.EOS)
			}
			if dir == tiny && !strings.Contains(f.ChatTemplate, "<|im_end|>") {
				t.Errorf("no chat template: %q", f.ChatTemplate)
			}
		})
	}
}
