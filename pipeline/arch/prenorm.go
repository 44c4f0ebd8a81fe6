package arch

import "github.com/llmexport/llmexport/runtime/tensor"

// Bounds of the dimensions. They are far above every published model, and small enough that a hostile
// config.json makes nothing large before the tensors have been compared with it.
const (
	maxLayers       = 4096
	maxHidden       = 1 << 20
	maxIntermediate = 1 << 22
	maxVocab        = 1 << 24
	maxHeads        = 1 << 14
	maxHeadDim      = 1 << 12
	maxPositions    = 1 << 30
	maxElements     = 1 << 40 // of one matrix
)

// preNorm is what distinguishes the families of the common decoder: two RMSNorms before attention and
// gated MLP, tensors named model.layers.N.self_attn.q_proj.weight and so on.
type preNorm struct {
	headDim  int  // when the file has no head_dim; 0 means hidden_size / num_attention_heads
	qkvBias  bool // on q, k, v
	outBias  bool // on o
	mlpBias  bool
	headNorm bool // q_norm and k_norm, per head
	windows  bool // the file may carry the keys of sliding windows
}

// describe reads all keys of the common decoder and builds the description. A guess that the file
// leaves to defaults (key-value heads, head_dim) is confirmed later by the shapes of the tensors; what
// no shape tells, the file has to say, or the default of transformers is the same in all families.
func (p preNorm) describe(c *Config) (*Decoder, error) {
	d := &Decoder{
		Hidden:       c.Int("hidden_size", maxHidden),
		Vocab:        c.Int("vocab_size", maxVocab),
		MaxPositions: c.Int("max_position_embeddings", maxPositions),
		Tied:         c.Bool("tie_word_embeddings", false),
	}
	layers := c.Int("num_hidden_layers", maxLayers)
	intermediate := c.Int("intermediate_size", maxIntermediate)
	eps := c.Float("rms_norm_eps", 1e-30, 1)
	if act, ok := c.OptString("hidden_act"); ok && act != "silu" {
		c.Refuse("hidden_act", "%s is not supported, only \"silu\"", show(act))
	}
	attention := p.readHeads(c, d.Hidden)
	rope := readRope(c)
	if p.windows {
		refuseWindows(c, layers)
	}
	for _, m := range []struct {
		key  string
		rows int
	}{{"vocab_size", d.Vocab}, {"intermediate_size", intermediate}, {"num_attention_heads", attention.Heads * attention.HeadDim}} {
		if n, err := tensor.Mul(int64(m.rows), int64(d.Hidden)); err != nil || n > maxElements {
			c.unsupported(m.key, "a matrix of %d x %d elements is too large", m.rows, d.Hidden)
		}
	}
	if err := c.Finish(); err != nil {
		return nil, err
	}

	d.Rope = rope.table(attention.HeadDim)
	d.Embedding = Weight{"model.embed_tokens.weight", d.Vocab, d.Hidden}
	d.Layers = make([]Layer, 0, layers)
	for i := range layers {
		d.Layers = append(d.Layers, p.layer("model."+layerName(i), d.Hidden, intermediate, eps, attention))
	}
	d.FinalNorm = norm("model.norm", d.Hidden, eps)
	d.Head = linear("lm_head", d.Vocab, d.Hidden, false)
	if d.Tied {
		d.Head = Linear{Weight: d.Embedding}
	}
	return d, nil
}

// readHeads reads the dimensions of attention.
func (p preNorm) readHeads(c *Config, hidden int) Attention {
	a := Attention{Heads: c.Int("num_attention_heads", maxHeads)}
	var ok bool
	if a.KVHeads, ok = c.OptInt("num_key_value_heads", maxHeads); !ok {
		a.KVHeads = a.Heads
	}
	if c.Good("num_attention_heads", "num_key_value_heads") && a.Heads%a.KVHeads != 0 {
		c.Wrong("num_attention_heads", "%d heads cannot share %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.HeadDim, ok = c.OptInt("head_dim", maxHeadDim); !ok {
		a.HeadDim = p.headDim
	}
	if a.HeadDim == 0 {
		if !c.Good("hidden_size", "num_attention_heads") {
			return a
		}
		if hidden%a.Heads != 0 {
			c.Wrong("head_dim", "missing, and hidden_size %d does not divide by num_attention_heads %d", hidden, a.Heads)
		}
		if a.HeadDim = hidden / a.Heads; a.HeadDim > maxHeadDim {
			c.unsupported("head_dim", "%d is more than %d", a.HeadDim, maxHeadDim)
		}
	}
	if a.HeadDim%2 != 0 && c.Good("head_dim") {
		c.unsupported("head_dim", "%d is odd, and rotation needs pairs", a.HeadDim)
	}
	return a
}

// layer describes block prefix+"...", for example "model.layers.3.".
func (p preNorm) layer(prefix string, hidden, intermediate int, eps float64, a Attention) Layer {
	attn, mlp := prefix+"self_attn.", prefix+"mlp."
	a.Q = linear(attn+"q_proj", a.Heads*a.HeadDim, hidden, p.qkvBias)
	a.K = linear(attn+"k_proj", a.KVHeads*a.HeadDim, hidden, p.qkvBias)
	a.V = linear(attn+"v_proj", a.KVHeads*a.HeadDim, hidden, p.qkvBias)
	a.O = linear(attn+"o_proj", hidden, a.Heads*a.HeadDim, p.outBias)
	if p.headNorm {
		q, k := norm(attn+"q_norm", a.HeadDim, eps), norm(attn+"k_norm", a.HeadDim, eps)
		a.QNorm, a.KNorm = &q, &k
	}
	return Layer{
		AttentionNorm: norm(prefix+"input_layernorm", hidden, eps),
		Attention:     a,
		MLPNorm:       norm(prefix+"post_attention_layernorm", hidden, eps),
		MLP: MLP{
			Intermediate: intermediate,
			Gate:         linear(mlp+"gate_proj", intermediate, hidden, p.mlpBias),
			Up:           linear(mlp+"up_proj", intermediate, hidden, p.mlpBias),
			Down:         linear(mlp+"down_proj", hidden, intermediate, p.mlpBias),
		},
	}
}

// refuseWindows reads the keys of sliding windows and refuses what would make a layer use one. With
// use_sliding_window false, transformers ignores sliding_window and max_window_layers.
func refuseWindows(c *Config, layers int) {
	c.take("sliding_window")
	c.take("max_window_layers")
	if c.Bool("use_sliding_window", false) {
		c.Refuse("use_sliding_window", "true is not supported, only false")
	}
	types := c.Strings("layer_types")
	if types != nil && c.Good("num_hidden_layers") && len(types) != layers {
		c.Wrong("layer_types", "%d entries for %d layers", len(types), layers)
	}
	for _, t := range types {
		if t != "full_attention" {
			c.Refuse("layer_types", "%s is not supported, only \"full_attention\"", show(t))
			break
		}
	}
}

func linear(name string, rows, cols int, bias bool) Linear {
	l := Linear{Weight: Weight{name + ".weight", rows, cols}}
	if bias {
		l.Bias = Weight{Tensor: name + ".bias", Rows: rows}
	}
	return l
}

func norm(name string, n int, eps float64) Norm {
	return Norm{Gamma: Weight{Tensor: name + ".weight", Rows: n}, Eps: eps}
}
