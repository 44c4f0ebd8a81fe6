package arch

import (
	"regexp"
	"strings"
)

// jinaActivations are the gated MLPs of jina-embeddings-v2.
var jinaActivations = map[Activation][]string{GELU: {"geglu"}, ReLU: {"reglu"}}

// describeJina describes jina-embeddings-v2 (arXiv 2310.19923): BERT without vectors of positions, whose heads add a bias of the distance
// to their scores on both sides (ALiBi), and with a gated MLP.
func describeJina(c *Config) (*Decoder, error) {
	c.code("JinaBertConfig", "JinaBertModel")
	root := c.base("bert.", "embeddings.word_embeddings")
	b := newEncoder(c, root, 1e-12)
	if name, given := b.OptString("feed_forward_type"); !given || !b.readActivation("feed_forward_type", GELU, jinaActivations) {
		b.Refuse("feed_forward_type", `%s is not supported, only "geglu" or "reglu"`, show(name))
	}
	a := b.unshared("num_attention_heads")
	a.Bidirectional, a.Slopes = true, alibi(a.Heads)
	b.Only("is_decoder", "false")
	b.Only("position_embedding_type", `"alibi"`)
	types := b.Range("type_vocab_size", 1, maxVocab, 2)
	// The activation of the MLP follows from feed_forward_type, the pooling from modules.json.
	b.Inert("attention_probs_dropout_prob", "classifier_dropout", "emb_pooler", "gradient_checkpointing", "hidden_act", "hidden_dropout_prob",
		"model_max_length", "tie_word_embeddings")
	if _, normed := b.Tensor(root + "encoder.layer.0.attention.self.layer_norm_q.weight"); normed {
		b.unsupported("architectures", "norms of queries and keys, and attention that is added twice, are not supported (jina-embeddings-v2-base-code)")
	}
	at := root + "embeddings."
	b.d.EmbeddingNorm = b.norms(at + "LayerNorm")
	b.segment(at, types)
	b.skip("head of another task", false, "^("+regexp.QuoteMeta(root)+`pooler|cls)\.`)
	return b.finishEncoder(&a, func(_ int, p string) Layer {
		p = strings.Replace(p, "encoder.layers.", "encoder.layer.", 1)
		mlp := b.gatedHalves(p+"mlp.gated_layers", p+"mlp.wo", false)
		return Layer{
			{Block: b.bertHeads(p, a), SumNorm: b.norms(p + "attention.output.LayerNorm")},
			{Block: mlp, SumNorm: b.norms(p + "mlp.layernorm")},
		}
	})
}

// describeJina3 describes jina-embeddings-v3 (arXiv 2409.10173) in the form of transformers, without its adapters or with one of them
// merged into its weights: BERT with rotary positions, and one matrix for q, k and v.
func describeJina3(c *Config) (*Decoder, error) {
	root := c.base("roberta.", "embeddings.word_embeddings")
	b := newEncoder(c, root, 1e-5)
	b.ungatedKeys("hidden_act", GELU)
	a := b.unshared("num_attention_heads")
	a.Bidirectional = true
	rope := ropeRules{theta: 20_000}.read(c)
	b.Only("position_embedding_type", `"rotary"`)
	types := b.Range("type_vocab_size", 1, maxVocab, 1)
	b.Inert("attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob", "tie_word_embeddings")
	b.d.EmbeddingNorm = b.norms(root + "emb_ln")
	b.segment(root+"embeddings.", types)
	b.skip("head of another task", false, "^("+regexp.QuoteMeta(root)+`pooler|lm_head)\.`)
	return b.finishEncoder(&a, func(_ int, p string) Layer {
		x := b.fusedHeads(p+"mixer.Wqkv", a, true)
		x.O, x.Rope = b.linear(p+"mixer.out_proj", b.d.Hidden, b.d.Hidden, true), b.rope(rope, a.HeadDim)
		mlp := b.plainMLP(p+"mlp.fc1", p+"mlp.fc2", b.intermediate, true)
		return Layer{{Block: x, SumNorm: b.norms(p + "norm1")}, {Block: mlp, SumNorm: b.norms(p + "norm2")}}
	})
}
