package calibrate

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// manyExperts describes a layer with far more experts than tokens need.
func manyExperts(t *testing.T, experts, hidden, intermediate int) (*arch.Decoder, tensor.Source) {
	t.Helper()
	config := fmt.Appendf(nil, `{"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "head_dim": 32, "hidden_act": "silu",
		"hidden_size": %d, "initializer_range": 0.1, "intermediate_size": 64, "max_position_embeddings": 512, "model_type": "qwen3_moe",
		"num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
		"sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 128, "decoder_sparse_step": 1,
		"mlp_only_layers": [], "moe_intermediate_size": %d, "norm_topk_prob": true, "num_experts": %d, "num_experts_per_tok": 2}`,
		hidden, intermediate, experts)
	src, err := checkpoint.New(config, 3)
	check(t, err)
	m, err := arch.Describe(config, src.Tensors(), arch.Options{})
	check(t, err)
	return m.Text, src
}

// A layer of experts that takes more memory than a run needs is encoded, and measured, with one expert at a time in
// memory. The limit counts 2048 tokens at a time, here are fewer.
func TestExpertsOneAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := manyExperts(t, 32, 512, 256)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 2, 0
	j := newJob(t, d, src, randomText(d, 2, 32), gptq).on(2, 1)
	var all int64
	d.Linears(func(name string, l *arch.Linear) {
		all += 8 * int64(l.Weight.Rows) * int64(l.Weight.Cols)
		if name != "layers.0.experts.3.up" && name != "layers.0.experts.5.down" {
			j.Specs[l.Weight.Tensor] = quant.Half // for speed
		}
	})
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before, most := heap(), int64(0)
	j.Progress = func(int64, int64) { most = max(most, heap()-before) }
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	_ = kl(t, j, f, j.Windows)
	t.Logf("%d bytes at most, the least for a run %d, the layer %d", most, LeastMemory(d), all)
	if least := LeastMemory(d); most > least || least > all {
		t.Errorf("%d bytes were in use, the least for a run is %d, the layer takes %d", most, least, all)
	}
}

// The least memory of a mixture of the size of Qwen3-235B-A22B fits 2 GiB, and leaves room for the words of its tokenizer.
func TestLeastMemoryOfLargeMixture(t *testing.T) {
	linear := func(rows, cols int) arch.Linear {
		return arch.Linear{Weight: arch.Weight{Tensor: "w", Rows: rows, Cols: cols}}
	}
	experts := &arch.Experts{Router: linear(128, 4096)}
	for range 128 {
		experts.Experts = append(experts.Experts, arch.MLP{Gate: linear(1536, 4096), Up: linear(1536, 4096), Down: linear(4096, 1536)})
	}
	d := &arch.Decoder{Hidden: 4096, Vocab: 151936, Layers: []arch.Layer{{
		{Block: &arch.Attention{Q: linear(8192, 4096), K: linear(512, 4096), V: linear(512, 4096), O: linear(4096, 8192)}}, {Block: experts},
	}}}
	if n := LeastMemory(d); n > 2<<30-64<<20 || n < 1<<30 {
		t.Errorf("%d bytes", n)
	}
}

// A limit of 2 GiB has room for one expert of Qwen3-235B-A22B at a time, and 32 GiB for a dozen of Qwen3-30B-A3B.
func TestExpertsWithin(t *testing.T) {
	for _, c := range []struct{ hidden, intermediate, gigabytes, least, most int }{{4096, 1536, 2, 1, 1}, {2048, 768, 2, 1, 2}, {2048, 768, 32, 10, 16}} {
		linear := func(rows, cols int) arch.Linear {
			return arch.Linear{Weight: arch.Weight{Tensor: "w", Rows: rows, Cols: cols}}
		}
		experts := &arch.Experts{Router: linear(128, c.hidden)}
		for range 128 {
			experts.Experts = append(experts.Experts, arch.MLP{Gate: linear(c.intermediate, c.hidden), Up: linear(c.intermediate, c.hidden),
				Down: linear(c.hidden, c.intermediate)})
		}
		attention := &arch.Attention{Q: linear(2*c.hidden, c.hidden), K: linear(512, c.hidden), V: linear(512, c.hidden), O: linear(c.hidden, 2*c.hidden)}
		if n := expertsWithin(int64(c.gigabytes)<<30/expertShare, arch.Layer{{Block: attention}, {Block: experts}}, c.hidden); n < c.least || n > c.most {
			t.Errorf("%d GiB: %d experts of %d x %d, want %d to %d", c.gigabytes, n, c.intermediate, c.hidden, c.least, c.most)
		}
	}
}
