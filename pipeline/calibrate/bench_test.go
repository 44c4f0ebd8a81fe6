package calibrate

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelVariable names the directory of a checkpoint that BenchmarkQuantize measures besides those of the repository.
const modelVariable = "LLMEXPORT_BENCH_MODEL"

// BenchmarkQuantize is gptq at 4 bits in blocks of 64 from 1 to 16 threads, and how many times as fast as 2 threads each is. A
// machine with fewer cores shows no gain beyond their number.
//
//	go test ./pipeline/calibrate -run '^$' -bench Quantize -benchtime 1x -timeout 2h
func BenchmarkQuantize(b *testing.B) {
	for _, c := range []struct {
		name            string
		open            func(b *testing.B) (*arch.Decoder, tensor.Source)
		windows, length int
	}{
		{"tiny", func(b *testing.B) (*arch.Decoder, tensor.Source) { return openCheckpoint(b, tinyDir) }, 64, 128},
		{"llama-135m", func(b *testing.B) (*arch.Decoder, tensor.Source) { return llama135m(b) }, 32, 512},
		{"given", func(b *testing.B) (*arch.Decoder, tensor.Source) {
			dir := os.Getenv(modelVariable)
			if dir == "" {
				b.Skipf("%s names no checkpoint", modelVariable)
			}
			return openCheckpoint(b, dir)
		}, 128, 512},
	} {
		var two float64 // seconds on 2 threads
		for _, threads := range []int{2, 1, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/%d", c.name, threads), func(b *testing.B) {
				d, src := c.open(b)
				j := newJob(b, d, src, randomText(d, c.windows, c.length), quant.NewGPTQ()).on(threads, 2<<30)
				j.Specs = specs(b, d, quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}, quant.Spec{Bits: 8, Scale: tensor.F16})
				for b.Loop() {
					j.run(b, b.TempDir())
				}
				seconds := b.Elapsed().Seconds() / float64(b.N)
				if threads == 2 {
					two = seconds
				}
				b.ReportMetric(two/seconds, "times-2-threads")
			})
		}
	}
}

// llama135m is a random model in the shape of SmolLM2-135M.
func llama135m(b testing.TB) (*arch.Decoder, tensor.Source) {
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
		"num_hidden_layers": 30, "vocab_size": 49152, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
		"max_position_embeddings": 8192, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
		"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 100000, "initializer_range": 0.02,
	})
	check(b, err)
	random, err := checkpoint.New(config, 1)
	check(b, err)
	m, err := arch.Describe(config, random.Tensors(), arch.Options{})
	check(b, err)
	src := &memory{infos: random.Tensors(), data: map[string][]byte{}}
	for _, t := range random.Tensors() {
		src.data[t.Name] = readAll(b, random, t.Name)
	}
	return m.Text, src
}
