package checkpoint

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// experts holds the keys that determine the tensors of mixtures of experts.
type experts struct {
	Width     int64 `json:"moe_intermediate_size"`
	Qwen      int64 `json:"num_experts"`
	DeepSeek  int64 `json:"n_routed_experts"`
	GptOss    int64 `json:"num_local_experts"`
	Shared    int64 `json:"n_shared_experts"`
	Dense     int   `json:"first_k_dense_replace"`
	Stacked   bool  `json:"-"`
	Quantized *struct {
		Method string  `json:"quant_method"`
		Block  []int64 `json:"weight_block_size"`
	} `json:"quantization_config"`

	QRank    int64 `json:"q_lora_rank"`
	KVRank   int64 `json:"kv_lora_rank"`
	NopeDim  int64 `json:"qk_nope_head_dim"`
	RopeDim  int64 `json:"qk_rope_head_dim"`
	ValueDim int64 `json:"v_head_dim"`
}

// matrix adds a matrix "name.weight", in fp8 with a scale for every block if the config says so.
func (l *list) matrix(name string, rows, cols int64) {
	q := l.Quantized
	if q == nil || q.Method != "fp8" || len(q.Block) != 2 {
		l.add(name+".weight", tensor.BF16, rows, cols)
		return
	}
	l.add(name+".weight", tensor.F8E4M3, rows, cols)
	l.add(name+".weight_scale_inv", tensor.F32, (rows+q.Block[0]-1)/q.Block[0], (cols+q.Block[1]-1)/q.Block[1])
}

// gated adds a gated MLP.
func (l *list) gated(p string, width int64) {
	l.matrix(p+"gate_proj", width, l.Hidden)
	l.matrix(p+"up_proj", width, l.Hidden)
	l.matrix(p+"down_proj", l.Hidden, width)
}

// mixture adds n experts, one by one or stacked.
func (l *list) mixture(p string, n int64) {
	if l.Stacked {
		l.add(p+"gate_up_proj", tensor.BF16, n, 2*l.Width, l.Hidden)
		l.add(p+"down_proj", tensor.BF16, n, l.Hidden, l.Width)
		return
	}
	for j := range n {
		l.gated(fmt.Sprintf("%s%d.", p, j), l.Width)
	}
}

// qwen3Moe adds the second block of a layer of Qwen 3 with experts.
func (l *list) qwen3Moe(p string) {
	l.add(p+"mlp.gate.weight", tensor.BF16, l.Qwen, l.Hidden)
	l.mixture(p+"mlp.experts.", l.Qwen)
}

// deepSeek adds layer i of DeepSeek-V3.
func (l *list) deepSeek(i int, p string) {
	l.add(p+"input_layernorm.weight", tensor.BF16, l.Hidden)
	l.add(p+"post_attention_layernorm.weight", tensor.BF16, l.Hidden)
	a := p + "self_attn."
	l.matrix(a+"q_a_proj", l.QRank, l.Hidden)
	l.add(a+"q_a_layernorm.weight", tensor.BF16, l.QRank)
	l.matrix(a+"q_b_proj", l.Heads*(l.NopeDim+l.RopeDim), l.QRank)
	l.matrix(a+"kv_a_proj_with_mqa", l.KVRank+l.RopeDim, l.Hidden)
	l.add(a+"kv_a_layernorm.weight", tensor.BF16, l.KVRank)
	l.matrix(a+"kv_b_proj", l.Heads*(l.NopeDim+l.ValueDim), l.KVRank)
	l.matrix(a+"o_proj", l.Hidden, l.Heads*l.ValueDim)
	m := p + "mlp."
	if i < l.Dense {
		l.gated(m, l.Intermediate)
		return
	}
	l.add(m+"gate.weight", tensor.BF16, l.DeepSeek, l.Hidden)
	l.add(m+"gate.e_score_correction_bias", tensor.F32, l.DeepSeek)
	l.gated(m+"shared_experts.", l.Shared*l.Width)
	l.mixture(m+"experts.", l.DeepSeek)
}

// gptOss adds a layer of gpt-oss, its experts in MXFP4 if the config says so.
func (l *list) gptOss(p string) {
	l.add(p+"input_layernorm.weight", tensor.BF16, l.Hidden)
	l.add(p+"post_attention_layernorm.weight", tensor.BF16, l.Hidden)
	a := p + "self_attn."
	for _, w := range []struct {
		name       string
		rows, cols int64
	}{
		{"q_proj", l.Heads * l.HeadDim, l.Hidden}, {"k_proj", l.KVHeads * l.HeadDim, l.Hidden},
		{"v_proj", l.KVHeads * l.HeadDim, l.Hidden}, {"o_proj", l.Hidden, l.Heads * l.HeadDim},
	} {
		l.add(a+w.name+".weight", tensor.BF16, w.rows, w.cols)
		l.add(a+w.name+".bias", tensor.BF16, w.rows)
	}
	l.add(a+"sinks", tensor.BF16, l.Heads)
	m, n := p+"mlp.", l.GptOss
	l.add(m+"router.weight", tensor.BF16, n, l.Hidden)
	l.add(m+"router.bias", tensor.BF16, n)
	for _, w := range []struct {
		name          string
		outputs, from int64
	}{{"gate_up_proj", 2 * l.Intermediate, l.Hidden}, {"down_proj", l.Hidden, l.Intermediate}} {
		e := m + "experts." + w.name
		l.add(e+"_bias", tensor.BF16, n, w.outputs)
		if l.Quantized != nil && l.Quantized.Method == "mxfp4" {
			l.add(e+"_blocks", tensor.U8, n, w.outputs, w.from/32, 16)
			l.add(e+"_scales", tensor.U8, n, w.outputs, w.from/32)
		} else {
			l.add(e, tensor.BF16, n, w.from, w.outputs)
		}
	}
}
