package arch

import (
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of the dimensions. They are far above every published model, and small enough that a hostile config.json
// causes no large allocation before the tensors have been compared with it.
const (
	maxLayers       = 4096
	maxHidden       = 1 << 20
	maxIntermediate = 1 << 22
	maxVocab        = 1 << 24
	maxHeads        = 1 << 14
	maxHeadDim      = 1 << 12
	maxPositions    = 1 << 30
	maxExperts      = 1 << 14
	maxElements     = 1 << 40 // of one matrix
)

// builder makes a Decoder. A family calls begin, reads its own keys, and ends with finish, whose function describes one
// layer with the methods below; these use the names of most checkpoints, such as model.layers.N.self_attn.q_proj, and a
// family changes what is different. Keys that a family does not read are rejected.
//
// Defaults that the file leaves open (key-value heads, head_dim) are confirmed by the shapes of the tensors. Otherwise,
// the default is that of the family's class in transformers, or the key is required.
type builder struct {
	*Config
	d      *Decoder
	layers int
	// eps is that of all norms. centered makes them LayerNorms, normBias gives them a bias; onePlus means that the
	// checkpoint stores gamma - 1.
	eps                         float64
	centered, normBias, onePlus bool
	// prefix is the prefix of the layers, mostly "model.".
	prefix string
	// Names of the tensors outside the layers.
	embedding, finalNorm, head string
	activation                 Activation
	intermediate               int
	// headBias gives the head a bias.
	headBias bool
	// mlpBias gives the matrices of MLPs a bias, for families with that key.
	mlpBias bool
	// tables are the rotary tables in use.
	tables []ropeTable
	// runs is the total number of runs of the views.
	runs int
	// broken lists problems of tensors found while describing layers.
	broken []problem
}

// begin reads the keys that all families share. eps is the name of the key of the norms' epsilon, with its default; if
// that is 0, the key is required.
func begin(c *Config, eps string, missing float64) *builder {
	prefix, head := c.base("model.", "embed_tokens"), "lm_head"
	if c.model != "" {
		prefix, head = c.model, c.head
	}
	b := &builder{
		Config: c,
		d: &Decoder{
			Hidden:       c.Int("hidden_size", maxHidden),
			Vocab:        c.Int("vocab_size", maxVocab),
			MaxPositions: c.positions(),
		},
		layers: c.Int("num_hidden_layers", maxLayers), eps: missing, activation: SiLU,
		prefix: prefix, embedding: prefix + "embed_tokens", finalNorm: prefix + "norm", head: head,
	}
	if missing == 0 || c.Has(eps) {
		b.eps = c.Float(eps, 1e-30, 1)
	}
	return b
}

// base returns the prefix of the tensors other than the head: prefix, or "" in a checkpoint of the base model, which
// was saved without the head. embedding is the name of the embedding after the prefix.
func (c *Config) base(prefix, embedding string) string {
	_, whole := c.Tensor(prefix + embedding + ".weight")
	if _, bare := c.Tensor(embedding + ".weight"); bare && !whole {
		return ""
	}
	return prefix
}

// positions reads max_position_embeddings, whose default is that of the class in transformers.
func (c *Config) positions() int {
	const key = "max_position_embeddings"
	if _, there := c.fields.values[key]; !there && c.class != nil && c.class.positions > 0 {
		c.note("%s has no %s: %d is the default of transformers %s", configName, key, c.class.positions, transformers().version)
		c.provide(key, c.class.positions)
	}
	return c.Int(key, maxPositions)
}

// tied reads tie_word_embeddings, whose default is that of the family's class.
func (b *builder) tied(missing bool) { b.d.Tied = b.Bool("tie_word_embeddings", missing) }

// mlpKeys reads intermediate_size and the activation of the MLP, under the family's key.
func (b *builder) mlpKeys(key string, want ...string) {
	b.intermediate = b.Int("intermediate_size", maxIntermediate)
	if act, ok := b.OptString(key); ok {
		if !slices.Contains(want, act) {
			b.Refuse(key, "%s is not supported, only %s", show(act), quoted(want))
		}
	}
}

// heads reads the dimensions of attention. dim is the default of head_dim; 0 means hidden_size / num_attention_heads.
func (b *builder) heads(dim int) Attention {
	a := Attention{Heads: b.Int("num_attention_heads", maxHeads)}
	var ok bool
	if a.KVHeads, ok = b.OptInt("num_key_value_heads", maxHeads); !ok {
		a.KVHeads = a.Heads
	}
	if b.Good("num_attention_heads", "num_key_value_heads") && a.Heads%a.KVHeads != 0 {
		b.Wrong("num_attention_heads", "%d heads cannot share %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.HeadDim, ok = b.OptInt("head_dim", maxHeadDim); !ok {
		a.HeadDim = dim
	}
	if a.HeadDim == 0 {
		if !b.Good("hidden_size", "num_attention_heads") {
			return a
		}
		if b.d.Hidden%a.Heads != 0 {
			b.Wrong("head_dim", "missing, and hidden_size %d is not divisible by num_attention_heads %d", b.d.Hidden, a.Heads)
		}
		if a.HeadDim = b.d.Hidden / a.Heads; a.HeadDim > maxHeadDim {
			b.unsupported("head_dim", "%d is more than %d", a.HeadDim, maxHeadDim)
		}
	}
	if a.HeadDim%2 != 0 && b.Good("head_dim") {
		b.unsupported("head_dim", "%d is odd, and rotation needs pairs", a.HeadDim)
	}
	return a
}

// finish checks the keys, and builds the description if they are valid: f describes layer i, whose tensors begin with
// prefix ("model.layers.3.").
func (b *builder) finish(a *Attention, f func(i int, prefix string) Layer) (*Decoder, error) {
	d := b.d
	for _, m := range []struct {
		key  string
		rows int
	}{{"vocab_size", d.Vocab}, {"intermediate_size", b.intermediate}, {"num_attention_heads", a.Heads * a.HeadDim}} {
		if n, err := tensor.Mul(int64(m.rows), int64(d.Hidden)); err != nil || n > maxElements {
			b.unsupported(m.key, "a matrix of %d x %d elements is too large", m.rows, d.Hidden)
		}
	}
	if err := b.Finish(); err != nil {
		return nil, err
	}
	d.Embedding = Weight{b.embedding + ".weight", d.Vocab, d.Hidden}
	d.Layers = make([]Layer, 0, b.layers)
	for i := range b.layers {
		d.Layers = append(d.Layers, f(i, b.prefix+layerName(i)))
		if len(b.problems) > 0 {
			return nil, problems{scope: configName, list: b.problems}
		}
		if len(b.broken) > 0 {
			return nil, problems{scope: "tensors", list: b.broken}
		}
	}
	d.FinalNorm = b.norm(b.finalNorm, d.Hidden)
	d.Head = b.linear(b.head, d.Vocab, d.Hidden, b.headBias)
	if d.Tied {
		d.HeadTensor, d.Head.Weight = d.Head.Weight.Tensor, d.Embedding
	}
	return d, nil
}

// preNorm is the layer of most families: attention and MLP, each after a norm.
func (b *builder) preNorm(p string, attention, mlp Block) Layer {
	return Layer{
		{Norm: b.norms(p + "input_layernorm"), Block: attention},
		{Norm: b.norms(p + "post_attention_layernorm"), Block: mlp},
	}
}

// projections sets q, k, v and o with their usual names, p being "model.layers.3.self_attn.". a has the dimensions, and
// other fields that the family sets.
func (b *builder) projections(p string, a Attention, qkvBias, outBias bool) *Attention {
	a.Q = b.linear(p+"q_proj", a.Heads*a.HeadDim, b.d.Hidden, qkvBias)
	a.K = b.linear(p+"k_proj", a.KVHeads*a.HeadDim, b.d.Hidden, qkvBias)
	a.V = b.linear(p+"v_proj", a.KVHeads*a.HeadDim, b.d.Hidden, qkvBias)
	a.O = b.linear(p+"o_proj", b.d.Hidden, a.Heads*a.HeadDim, outBias)
	return &a
}

// headNorms adds norms of every head of q and k.
func (b *builder) headNorms(a *Attention, q, k string) {
	qn, kn := b.norm(q, a.HeadDim), b.norm(k, a.HeadDim)
	a.QNorm, a.KNorm = &qn, &kn
}

// mlp returns the gated MLP with its usual names, p being "model.layers.3.mlp.".
func (b *builder) mlp(p string, intermediate int, bias bool) *MLP {
	return &MLP{
		Intermediate: intermediate,
		Activation:   b.activation,
		Gate:         b.linear(p+"gate_proj", intermediate, b.d.Hidden, bias),
		Up:           b.linear(p+"up_proj", intermediate, b.d.Hidden, bias),
		Down:         b.linear(p+"down_proj", b.d.Hidden, intermediate, bias),
	}
}

// linear returns a linear layer by its name without ".weight".
func (b *builder) linear(name string, rows, cols int, bias bool) Linear {
	l := Linear{Weight: Weight{name + ".weight", rows, cols}}
	if bias {
		l.Bias = Weight{Tensor: name + ".bias", Rows: rows}
	}
	return l
}

// norms returns a norm of the hidden size, as a pointer.
func (b *builder) norms(name string) *Norm {
	n := b.norm(name, b.d.Hidden)
	return &n
}

// norm returns a norm of n elements, of the family's kind.
func (b *builder) norm(name string, n int) Norm {
	out := Norm{Gamma: Weight{Tensor: name + ".weight", Rows: n}, Eps: b.eps, Centered: b.centered}
	if b.onePlus {
		out.Gamma = b.view(View{Name: name + ".gamma", Tensor: name + ".weight", Rows: n, Map: OnePlus})
	}
	if b.normBias {
		out.Beta = Weight{Tensor: name + ".bias", Rows: n}
	}
	return out
}

// partNorm returns a norm of n elements in equal parts.
func (b *builder) partNorm(name string, n, parts int) *Norm {
	out := b.norm(name, n)
	out.Parts = parts
	return &out
}

// maxRuns bounds the rows that views list one by one. The largest models have about ten thousand.
const maxRuns = 1 << 21

// view adds a view unless it exists, and returns its name.
func (b *builder) view(v View) Weight {
	if b.runs += len(v.Runs); b.runs > maxRuns && len(b.broken) == 0 {
		b.breaks(tensor.ErrUnsupported, "%s and the views before it have more than %d pieces", v.Name, maxRuns)
	}
	b.d.Views = append(b.d.Views, v)
	return Weight{v.Name, v.Rows, v.Cols}
}

// part returns a linear layer made of rows of a fused one, both named without ".weight".
func (b *builder) part(name, of string, cols int, bias bool, runs ...Run) Linear {
	rows := 0
	for _, r := range runs {
		rows += r.Count
	}
	l := Linear{Weight: b.view(View{Name: name + ".weight", Tensor: of + ".weight", Rows: rows, Cols: cols, Runs: runs})}
	if bias {
		l.Bias = b.view(View{Name: name + ".bias", Tensor: of + ".bias", Rows: rows, Runs: runs})
	}
	return l
}

// halves returns the rows of heads with interleaved rotary pairs, (0, 1), (2, 3) and so on of the first turned elements
// of every head of dim, in half-split order: 0, 2, 4, ..., 1, 3, 5, .... The rows begin at start, and heads are stride
// apart.
func halves(start, heads, dim, stride, turned int) []Run {
	runs := make([]Run, 0, 3*heads)
	for h := range heads {
		at := start + h*stride
		runs = append(runs, Run{Start: at, Count: turned / 2, Step: 2}, Run{Start: at + 1, Count: turned / 2, Step: 2})
		if turned < dim {
			runs = append(runs, Run{Start: at + turned, Count: dim - turned})
		}
	}
	return runs
}

// interleaved makes q and k half-split, whose pairs the checkpoint interleaves. Scores do not change, because both get
// the same order.
func (b *builder) interleaved(a *Attention, bias bool) {
	for _, x := range []struct {
		l     *Linear
		heads int
	}{{&a.Q, a.Heads}, {&a.K, a.KVHeads}} {
		name := x.l.Weight.Tensor[:len(x.l.Weight.Tensor)-len(".weight")]
		*x.l = b.part(name+".half_split", name, b.d.Hidden, bias, halves(0, x.heads, a.HeadDim, a.HeadDim, a.Rope.Dim)...)
	}
}

// layerTypes reads layer_types, which must have one of known for every layer; nil if the key is missing.
func (b *builder) layerTypes(known ...string) []string {
	return b.layerTypesOf("layer_types", known...)
}

// layerTypesOf is layerTypes under another key.
func (b *builder) layerTypesOf(key string, known ...string) []string {
	types := b.Strings(key)
	if types == nil || !b.Good("num_hidden_layers") {
		return nil
	}
	if len(types) != b.layers {
		b.Wrong(key, "%d entries for %d layers", len(types), b.layers)
		return nil
	}
	for i, t := range types {
		if !slices.Contains(known, t) {
			b.Refuse(key, "%s of layer %d is not supported, only %s", show(t), i, quoted(known))
			return nil
		}
	}
	return types
}

// quoted formats words of a config file.
func quoted(words []string) string {
	list := make([]string, 0, len(words))
	for _, w := range words {
		list = append(list, show(w))
	}
	return strings.Join(list, " or ")
}
