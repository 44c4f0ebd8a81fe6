package stage_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
)

// goldenBound is how far a logit of the package, which holds the weights as halves, may lie from that of transformers in
// float32. Weights of bfloat16 fit into halves but for the smallest; the rest is rounding of float32 sums.
const goldenBound = 1e-4

func distance(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

// The bytes of a 16-bit package give the logits of transformers, at once, and in a prefill followed by single tokens.
func TestFamilies(t *testing.T) {
	for _, name := range stagetest.Families {
		for _, engine := range []string{"3.5", "3.6"} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				w := newWork(t, families+name, "target: {engine: \""+engine+"\"}\nquantize: {bits: 16}\nverify: {enabled: false}")
				w.must(t)
				p, err := runtime.Open(w.out())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				s, err := runtime.NewSession(p, runtime.Options{Mode: backends.Float, Threads: 2, CacheBytes: 1 << 28})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []string{"0", "1"} {
					g, err := stagetest.ReadGolden(filepath.Join(families+name, "golden.safetensors"), n)
					if err != nil {
						t.Fatal(err)
					}
					s.Reset()
					got, err := s.Forward(t.Context(), g.IDs)
					if err != nil {
						t.Fatal(err)
					}
					if len(got) != len(g.Logits) || len(g.IDs) == 0 {
						t.Fatalf("%d logits, recorded %d", len(got), len(g.Logits))
					}
					atOnce := distance(g.Logits, got)
					vocab, prefill := len(got)/len(g.IDs), min(32, len(g.IDs)/2)
					s.Reset()
					l, err := s.Prefill(t.Context(), g.IDs[:prefill])
					stepwise := 0.0
					for i := prefill; err == nil; i++ {
						stepwise = max(stepwise, distance(g.Logits[(i-1)*vocab:i*vocab], l))
						if i == len(g.IDs) {
							break
						}
						l, err = s.Decode(t.Context(), g.IDs[i])
					}
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%d tokens: %.2g at once, %.2g one by one", len(g.IDs), atOnce, stepwise)
					if !(atOnce <= goldenBound) || !(stepwise <= goldenBound) {
						t.Errorf("%d tokens: logits off by %g at once, %g one by one", len(g.IDs), atOnce, stepwise)
					}
				}
			})
		}
	}
}

// What ends a turn, and what stands before a text, is the same in the package's tokenizer and the source's files.
func TestTokenizerFacts(t *testing.T) {
	for _, dir := range append([]string{tiny}, stagetest.Families...) {
		if dir != tiny {
			dir = families + dir
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := stage.OpenSource(dir, nil)
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
