// Package arch says what a checkpoint computes. A family reads config.json and describes the model as
// a [Decoder]: dimensions, norms, rotary tables, and for every weight of the computation the checkpoint
// tensor that fills it. The description knows neither graphs nor packages: pipeline/lower turns it into
// the graph of an engine, verify/reference computes it directly.
//
// Call [Describe] first. It refuses, with tensor.ErrUnsupported, whatever it does not understand:
// unknown model types, config keys that are on no list, values that change the computation, tensors
// that no slot takes, and slots that no tensor fills.
package arch

import "strconv"

// Decoder describes a decoder-only language model, one token row in, one row of logits out.
//
//	h = Embedding[token]
//	for each layer: h += Attention(RMSNorm(h)); h += MLP(RMSNorm(h))
//	logits = Head · RMSNorm(h)
type Decoder struct {
	// Family is the name in the table of families; ModelType is the checkpoint's own word.
	Family, ModelType string
	// Architecture is the entry of "architectures" in config.json, for example "Qwen3ForCausalLM".
	Architecture string

	Hidden, Vocab int
	// MaxPositions is the longest context that the checkpoint declares, in tokens.
	MaxPositions int

	Embedding Weight // [Vocab, Hidden]
	Layers    []Layer
	FinalNorm Norm
	// Head maps hidden to logits, [Vocab, Hidden]. Tied says that it is the embedding's tensor.
	Head Linear
	Tied bool

	// Rope is shared by all layers.
	Rope Rope

	// Claimed lists every checkpoint tensor that is accounted for, and how: "weight", or the reason
	// why it is left out ("duplicate of model.embed_tokens.weight", "rotary buffer").
	Claimed map[string]string
	// Ignored lists config keys that were overridden by the caller, for the report.
	Ignored []string
}

// Weight names the checkpoint tensor of a slot and the shape it must have.
type Weight struct {
	Tensor string
	Rows   int
	Cols   int // 0 for a vector of Rows elements
}

// Linear is y = W x + b, W [Rows, Cols] with rows as outputs. Bias has an empty Tensor when absent.
type Linear struct {
	Weight Weight
	Bias   Weight
}

// Norm is RMSNorm: x / sqrt(mean(x^2) + Eps) * Gamma.
type Norm struct {
	Gamma Weight
	Eps   float64
}

// Layer is one pre-norm block.
type Layer struct {
	AttentionNorm Norm
	Attention     Attention
	MLPNorm       Norm
	MLP           MLP
}

// Attention is causal grouped-query attention with half-split rotary embedding.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Q, K, V, O              Linear
	// QNorm and KNorm, if not nil, normalise every head before rotation; Gamma has HeadDim elements.
	QNorm, KNorm *Norm
}

// MLP is Down(act(Gate x) * (Up x)) with SiLU as activation.
type MLP struct {
	Intermediate   int
	Gate, Up, Down Linear
}

// Rope holds the rotary frequencies: pair j (j and j+Dim/2 of a head) turns by position*InvFreq[j].
type Rope struct {
	Type    string // the rule the frequencies come from: "default", "linear", "llama3"
	Dim     int
	InvFreq []float64 // Dim/2 radians per position
}

// Linears calls f with every linear layer and its name within the model ("layers.0.attention.q", "head"),
// in the order of the computation. A tied head is included.
func (d *Decoder) Linears(f func(name string, l *Linear)) {
	for i := range d.Layers {
		l := &d.Layers[i]
		p := layerName(i)
		f(p+"attention.q", &l.Attention.Q)
		f(p+"attention.k", &l.Attention.K)
		f(p+"attention.v", &l.Attention.V)
		f(p+"attention.o", &l.Attention.O)
		f(p+"mlp.gate", &l.MLP.Gate)
		f(p+"mlp.up", &l.MLP.Up)
		f(p+"mlp.down", &l.MLP.Down)
	}
	f("head", &d.Head)
}

func layerName(i int) string { return "layers." + strconv.Itoa(i) + "." }
