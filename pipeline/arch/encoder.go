package arch

import (
	"regexp"
	"strings"
)

// encoders is the table of the families that only encode, by "model_type", sorted. The first architecture of each has no head.
var encoders = []family{
	{"bert", []string{"BertModel", "BertForMaskedLM"}, encoder{root: "bert."}.describe},
	{"modernbert", []string{"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"}, describeModernBERT},
	{"roberta", []string{"RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"}, encoder{root: "roberta.", padded: true}.describe},
	{"xlm-roberta", []string{"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"},
		encoder{root: "roberta.", padded: true}.describe},
}

// Encoders lists the families that only turn texts into vectors or scores, sorted by model type.
func Encoders() []Known {
	list := make([]Known, len(encoders))
	for i, f := range encoders {
		list[i] = Known{ModelType: f.modelType, Architectures: f.architectures}
	}
	return list
}

// encoder describes BERT (arXiv 1810.04805) and its descendants with the same layers: a vector for every position, one for
// the segment of a text, a LayerNorm after they are added to the token's, bidirectional attention, and LayerNorms of the
// stream after every block.
type encoder struct {
	// root begins the names of tensors in a checkpoint with a head.
	root string
	// padded: positions are counted from pad_token_id + 1 on.
	padded bool
}

func (e encoder) describe(c *Config) (*Decoder, error) {
	root := c.base(e.root, "embeddings.word_embeddings")
	b := &builder{
		Config: c, d: &Decoder{Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab), MaxPositions: c.positions(), NormLast: true},
		layers: c.Int("num_hidden_layers", maxLayers), centered: true, normBias: true,
		prefix: root + "encoder.", embedding: root + "embeddings.word_embeddings",
	}
	b.eps = b.number("layer_norm_eps", 1e-30, 1, 1e-12)
	b.intermediate = b.Int("intermediate_size", maxIntermediate)
	b.ungatedKeys("hidden_act", GELU)
	a := b.unshared("num_attention_heads")
	a.Bidirectional = true
	b.Only("is_decoder", "false")
	b.Only("position_embedding_type", `"absolute"`)
	types := b.Range("type_vocab_size", 1, maxVocab, 2)
	b.Inert("attention_probs_dropout_prob", "classifier_dropout", "gradient_checkpointing", "hidden_dropout_prob", "pooler_fc_size",
		"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality", "output_past", "tie_word_embeddings")
	rows := b.d.MaxPositions
	if e.padded {
		if b.d.FirstPosition = b.Range("pad_token_id", 0, maxVocab, 1) + 1; b.d.FirstPosition >= rows {
			b.Wrong("max_position_embeddings", "%d, of which %d are for padding", rows, b.d.FirstPosition)
		}
		b.d.MaxPositions -= b.d.FirstPosition
	}
	scored := b.classifier()
	at := root + "embeddings."
	b.d.Positions = Weight{at + "position_embeddings.weight", rows, b.d.Hidden}
	b.d.EmbeddingNorm = b.norms(at + "LayerNorm")
	segments := at + "token_type_embeddings"
	if w, ok := b.Tensor(segments + ".weight"); ok && len(w.Shape) == 2 && w.Shape[0] != int64(types) && b.Good("type_vocab_size") {
		b.Wrong("type_vocab_size", "%d contradicts %s, which is %v", types, segments, w.Shape)
	}
	b.d.Segment = b.view(View{
		Name: segments + ".first", Tensor: segments + ".weight", Rows: b.d.Hidden, Runs: []Run{{Count: b.d.Hidden}},
	})
	b.skip("segments of further texts", false, "^"+regexp.QuoteMeta(segments)+`\.weight$`)
	b.skip("position buffer", false, "^"+regexp.QuoteMeta(at)+"position_ids$")
	b.skip("head of another task", false, "^("+regexp.QuoteMeta(root)+`pooler|cls|lm_head)\.`)
	d, err := b.finish(&a, func(_ int, p string) Layer {
		p = strings.Replace(p, "encoder.layers.", "encoder.layer.", 1)
		x, hidden := a, b.d.Hidden
		x.Q = b.linear(p+"attention.self.query", hidden, hidden, true)
		x.K = b.linear(p+"attention.self.key", hidden, hidden, true)
		x.V = b.linear(p+"attention.self.value", hidden, hidden, true)
		x.O = b.linear(p+"attention.output.dense", hidden, hidden, true)
		mlp := b.plainMLP(p+"intermediate.dense", p+"output.dense", b.intermediate, true)
		return Layer{{Block: &x, SumNorm: b.norms(p + "attention.output.LayerNorm")}, {Block: mlp, SumNorm: b.norms(p + "output.LayerNorm")}}
	})
	if err != nil {
		return nil, err
	}
	d.FinalNorm, d.Head = Norm{}, Linear{}
	if scored {
		d.Pooling = b.pairs()
	}
	return d, nil
}

// classifierName begins the names of the head of a sequence classifier of RoBERTa.
const classifierName = "classifier."

// classifier reports whether the checkpoint has the head of a sequence classifier, and rejects one of several classes.
func (b *builder) classifier() bool {
	w, ok := b.Tensor(classifierName + "out_proj.weight")
	if ok && len(w.Shape) == 2 && w.Shape[0] != 1 {
		b.unsupported("architectures", "a classifier of %d classes is not supported, only a reranker, whose only class is the score", w.Shape[0])
	}
	return ok
}

// pairs is the head of a sequence classifier: a layer with tanh and the score, of the first token.
func (b *builder) pairs() *Pooling {
	hidden := b.d.Hidden
	return &Pooling{Of: FirstToken, Pairs: true, Dense: []Dense{
		{Linear: b.linear(classifierName+"dense", hidden, hidden, true), Tanh: true},
		{Linear: b.linear(classifierName+"out_proj", 1, hidden, true)},
	}}
}
