package stage_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Packages in the C4 form give the logits of the classic form, for a prompt and for single tokens. They hold the same weights.
func TestC4(t *testing.T) {
	ids := []int32{3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33}
	for _, family := range []string{"llama", "qwen2-untied", "gemma3_text", "qwen3_moe", "lfm2", "deepseek_v3"} {
		t.Run(family, func(t *testing.T) {
			if testing.Short() && family != "llama" {
				t.Skip("long; make test-all runs it")
			}
			t.Parallel()
			logits := func(form string) (logits []float32, packed int) {
				w := newWork(t, families+family, fmt.Sprintf(
					"target: {engine: \"3.6.1\", form: %s}\nquantize: {bits: 4, symmetric: true, block: auto}\n%s", form, unverified))
				w.must(t)
				p, err := runtime.Open(w.out())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				for i := range p.Parts[0].Graph.Ops {
					if a, ok := p.Parts[0].Graph.Ops[i].Param.(*mnn.Attention); ok && a.OutputC4 {
						packed++
					}
				}
				s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for at, n := 0, 10; at < len(ids); at, n = at+n, 1 {
					l, err := s.Forward(t.Context(), ids[at:at+n])
					if err != nil {
						t.Fatal(err)
					}
					logits = append(logits, l...)
				}
				return logits, packed
			}
			want, none := logits("classic")
			got, all := logits("c4")
			if none != 0 || all == 0 {
				t.Errorf("%d ops of attention give packed results in the classic form, %d in the C4 form", none, all)
			}
			if len(got) != len(want) {
				t.Fatalf("%d logits, want %d", len(got), len(want))
			}
			// Norms sum rows of another layout in another order.
			const most = 1e-4
			for i, v := range want {
				if !(math.Abs(float64(got[i]-v)) < most) {
					t.Fatalf("logit %d is %g, want %g", i, got[i], v)
				}
			}
		})
	}
}
