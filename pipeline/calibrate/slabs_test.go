package calibrate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// vocabulary describes a small layer with so many tokens.
func vocabulary(t *testing.T, tokens int, tied bool) (*arch.Decoder, tensor.Source) {
	t.Helper()
	config := fmt.Appendf(nil, `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 16, "hidden_act": "silu",
		"hidden_size": 64, "initializer_range": 0.2, "intermediate_size": 64, "max_position_embeddings": 512, "model_type": "qwen3",
		"num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
		"sliding_window": null, "tie_word_embeddings": %v, "use_sliding_window": false, "vocab_size": %d}`, tied, tokens)
	src, err := checkpoint.New(config, 3)
	check(t, err)
	m, err := arch.Describe(config, src.Tensors(), arch.Options{})
	check(t, err)
	return m.Text, src
}

// A table and a head that pass through memory slab by slab get the codes, errors and divergences of those that are in memory.
func TestSlabs(t *testing.T) {
	for _, tied := range []bool{true, false} {
		t.Run(fmt.Sprint("tied ", tied), func(t *testing.T) {
			d, src := vocabulary(t, 1100, tied)
			if n := slabRows(1, d.Hidden); d.Vocab < 4*n || 8*d.Vocab*d.Hidden > plenty/weightShare {
				t.Fatalf("slabs of %d rows", n)
			}
			gptq := quant.NewGPTQ()
			gptq.Candidates, gptq.Sweeps = 2, 1
			j := newJob(t, d, src, randomText(d, 3, 16), gptq)
			probe := randomText(d, 2, 16)
			type result struct {
				Files, Digest string
				Ops           []Op
				KL            float64
				Measured      *Measured
			}
			var want *result
			for _, c := range []struct {
				threads int
				memory  int64
			}{{2, plenty}, {3, 1}} {
				j := j.on(c.threads, c.memory)
				j.Dir = t.TempDir()
				f := j.run(t, j.Dir)
				got := &result{Files: fmt.Sprint(content(t, j.Dir)), Digest: f.Digest(), Ops: f.Ops, KL: kl(t, j, f, probe)}
				got.Measured = measured(t, j.Options, measuring(t, probe, gptq))
				if want == nil {
					want = got
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("with %d bytes (-want +got):\n%s", c.memory, diff)
				}
			}
		})
	}
}
