package arch

import (
	"regexp"
	"strings"
)

// gte describes gte 1.5 (arXiv 2407.19669), gte-multilingual and snowflake-arctic-embed-m-v2: BERT with rotary positions, and a gated
// MLP, whose first matrix has the rows of up, then those of the gate. Checkpoints with code of their own are of model_type new, or gte;
// those of transformers are of the latter, with the same tensors.
type gte struct {
	// root begins the names of tensors in a checkpoint with a head, code the names of the classes that came with the first one.
	root, code string
	// theta and types are the defaults of rope_theta and type_vocab_size.
	theta float64
	types int
}

func (g gte) describe(c *Config) (*Decoder, error) {
	c.code(g.code+"Config", g.code+"Model")
	root := c.base(g.root, "embeddings.word_embeddings")
	b := newEncoder(c, root, 1e-12)
	b.ungatedKeys("hidden_act", GELU)
	a, packed := b.unshared("num_attention_heads"), b.Bool("pack_qkv", true)
	a.Bidirectional = true
	b.Only("position_embedding_type", `"rope"`)
	rope := ropeRules{ntk: true, theta: g.theta}.read(c)
	b.Only("layer_norm_type", `"layer_norm"`)
	b.Only("logn_attention_scale", "false")
	types := b.Range("type_vocab_size", 0, maxVocab, g.types)
	b.Inert("attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob", "logn_attention_clip1", "matryoshka_dimensions", "unpad_inputs",
		"tie_word_embeddings", "use_memory_efficient_attention")
	at := root + "embeddings."
	b.d.EmbeddingNorm = b.norms(at + "LayerNorm")
	b.segment(at, types)
	b.skip("head of another task", false, `^(`+regexp.QuoteMeta(root)+`pooler|lm_head|classifier)\.`)
	return b.finishEncoder(&a, func(_ int, p string) Layer {
		p = strings.Replace(p, "encoder.layers.", "encoder.layer.", 1)
		var x *Attention
		if packed {
			x = b.fusedHeads(p+"attention.qkv_proj", a, true)
			x.O = b.linear(p+"attention.o_proj", b.d.Hidden, b.d.Hidden, true)
		} else {
			x = b.projections(p+"attention.", a, true, true)
		}
		x.Rope = b.rope(rope, a.HeadDim)
		mlp := b.gatedHalves(p+"mlp.up_gate_proj", p+"mlp.down_proj", true)
		return Layer{{Block: x, SumNorm: b.norms(p + "attn_ln")}, {Block: mlp, SumNorm: b.norms(p + "mlp_ln")}}
	})
}
