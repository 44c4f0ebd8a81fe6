package arch

import (
	"regexp"
	"strings"
)

// encoders is the table of the families that only encode, by "model_type", sorted. The first architecture of each has no head.
var encoders = []family{
	{"bert", []string{"BertModel", "BertForMaskedLM", "JinaBertModel", "JinaBertForMaskedLM"}, describeBERT},
	{"gte", []string{"GteModel", "GteForMaskedLM"}, gte{root: "gte.", code: "Gte", theta: 160_000, types: 1}.describe},
	{"jina_embeddings_v3", []string{"JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"}, describeJina3},
	{"modernbert", []string{"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"}, describeModernBERT},
	{"new", []string{"NewModel", "NewForMaskedLM", "NewForTokenClassification"},
		gte{root: "new.", code: "New", theta: 10_000, types: 2}.describe},
	{"nomic_bert", []string{"NomicBertModel"}, describeNomicBERT},
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

// describeBERT describes the models of model_type bert: BERT, or with biases of the distance jina-embeddings-v2.
func describeBERT(c *Config) (*Decoder, error) {
	if word, _ := c.fields.values["position_embedding_type"].(string); word == "alibi" {
		return describeJina(c)
	}
	return encoder{root: "bert."}.describe(c)
}

// newEncoder begins the description of an encoder with LayerNorms of the stream after every block. root begins the names of its tensors,
// eps is the default of layer_norm_eps.
func newEncoder(c *Config, root string, eps float64) *builder {
	b := &builder{
		Config: c, d: &Decoder{Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab), MaxPositions: c.positions(), NormLast: true},
		layers: c.Int("num_hidden_layers", maxLayers), centered: true, normBias: true,
		prefix: root + "encoder.", embedding: root + "embeddings.word_embeddings",
	}
	b.eps = b.number("layer_norm_eps", 1e-30, 1, eps)
	b.intermediate = b.Int("intermediate_size", maxIntermediate)
	return b
}

func (e encoder) describe(c *Config) (*Decoder, error) {
	root := c.base(e.root, "embeddings.word_embeddings")
	b := newEncoder(c, root, 1e-12)
	b.ungatedKeys("hidden_act", GELU)
	a := b.unshared("num_attention_heads")
	a.Bidirectional = true
	if b.Has("lora_adaptations") {
		b.Refuse("lora_adaptations", "is not supported: every task has an adapter; merge one into a checkpoint of model_type jina_embeddings_v3")
	}
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
	b.segment(at, types)
	b.skip("position buffer", false, "^"+regexp.QuoteMeta(at)+"position_ids$")
	b.skip("head of another task", false, "^("+regexp.QuoteMeta(root)+`pooler|cls|lm_head)\.`)
	d, err := b.finishEncoder(&a, func(_ int, p string) Layer {
		p = strings.Replace(p, "encoder.layers.", "encoder.layer.", 1)
		mlp := b.plainMLP(p+"intermediate.dense", p+"output.dense", b.intermediate, true)
		return Layer{{Block: b.bertHeads(p, a), SumNorm: b.norms(p + "attention.output.LayerNorm")}, {Block: mlp, SumNorm: b.norms(p + "output.LayerNorm")}}
	})
	if err != nil {
		return nil, err
	}
	if scored {
		d.Pooling = b.pairs()
	}
	return d, nil
}

// bertHeads sets q, k, v and o with the names of BERT, p being "encoder.layer.3.".
func (b *builder) bertHeads(p string, a Attention) *Attention {
	hidden := b.d.Hidden
	a.Q = b.linear(p+"attention.self.query", hidden, hidden, true)
	a.K = b.linear(p+"attention.self.key", hidden, hidden, true)
	a.V = b.linear(p+"attention.self.value", hidden, hidden, true)
	a.O = b.linear(p+"attention.output.dense", hidden, hidden, true)
	return &a
}

// finishEncoder is finish without a norm and a head after the layers.
func (b *builder) finishEncoder(a *Attention, f func(i int, prefix string) Layer) (*Decoder, error) {
	d, err := b.finish(a, f)
	if err != nil {
		return nil, err
	}
	d.FinalNorm, d.Head = Norm{}, Linear{}
	return d, nil
}

// segment adds the vector of the first of so many segments to every token; 0 means that the model has none. The name of the tensor
// begins with at.
func (b *builder) segment(at string, types int) {
	name := at + "token_type_embeddings"
	w, ok := b.Tensor(name + ".weight")
	if ok && len(w.Shape) == 2 && w.Shape[0] != int64(types) && b.Good("type_vocab_size") {
		b.Wrong("type_vocab_size", "%d contradicts %s, which is %v", types, name, w.Shape)
	}
	if types == 0 {
		return
	}
	b.d.Segment = b.view(View{Name: name + ".first", Tensor: name + ".weight", Rows: b.d.Hidden, Runs: []Run{{Count: b.d.Hidden}}})
	b.skip("segments of further texts", false, "^"+regexp.QuoteMeta(name)+`\.weight$`)
}

// gatedHalves returns a gated MLP whose gate and up are one matrix without bias, in either order; down has one.
func (b *builder) gatedHalves(both, down string, upFirst bool) *MLP {
	first := b.part(both+".first", both, b.d.Hidden, false, Run{Count: b.intermediate})
	second := b.part(both+".second", both, b.d.Hidden, false, Run{Start: b.intermediate, Count: b.intermediate})
	m := &MLP{Intermediate: b.intermediate, Activation: b.activation, Gate: first, Up: second, Down: b.linear(down, b.d.Hidden, b.intermediate, true)}
	if upFirst {
		m.Gate, m.Up = second, first
	}
	return m
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
