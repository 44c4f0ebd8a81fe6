package arch

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Pooling makes one vector v of the states of a text after the final norm:
//
//	v = the state of the first or the last token, or the mean of all
//	v = Dense v or tanh(Dense v), for each layer of Dense
//	v = v / |v| if Normalize
type Pooling struct {
	Of        Pooled
	Dense     []Dense
	Normalize bool
	// Pairs: the text is a query with a document, and the vector has one element, the score of the document.
	Pairs bool
}

// Pooled is what the vector is made of.
type Pooled string

// The states that a vector is made of.
const (
	FirstToken Pooled = "first"
	LastToken  Pooled = "last"
	MeanTokens Pooled = "mean"
)

// Dense is a layer after the pooling.
type Dense struct {
	Linear
	Tanh bool // is applied to the result
}

// Size returns the number of elements of the vector, for states of hidden elements.
func (p *Pooling) Size(hidden int) int {
	if n := len(p.Dense); n > 0 {
		return p.Dense[n-1].Weight.Rows
	}
	return hidden
}

// Module is an entry of modules.json, in which sentence-transformers lists what a text goes through.
type Module struct {
	// Type is the name of its class, "sentence_transformers.models.Pooling".
	Type string
	// Path is its directory within the checkpoint, and Config the content of config.json there, nil if there is none.
	Path   string
	Config []byte
}

// name is that of the class without its package.
func (m *Module) name() string { return m.Type[strings.LastIndexByte(m.Type, '.')+1:] }

// Weighted reports whether a module of its kind has tensors, in the file model.safetensors of its directory. Their names in the
// checkpoint begin with the directory.
func (m *Module) Weighted() bool { return m.name() == "Dense" && m.Path != "" }

// pooledDecoders are the families of language models that embedding models are made of.
var pooledDecoders = []string{"gemma3_text", "qwen3"}

// bothWays reports whether a token attends to later ones, so that no text can be continued.
func (d *Decoder) bothWays() bool {
	for _, l := range d.Layers {
		for b := range l.Blocks() {
			if a, ok := b.(*Attention); ok && a.Bidirectional {
				return true
			}
		}
	}
	return false
}

// pool reads how the states become a vector, unless the checkpoint is a language model.
func (d *Decoder) pool(modules []Module) error {
	encoder := d.bothWays()
	var p *Pooling
	for i, m := range modules {
		var err error
		switch name := m.name(); {
		case name == "Transformer" && i == 0:
		case name == "Pooling" && i == 1:
			p, err = readPooling(m, d.Hidden)
		case name == "Dense" && p != nil && !p.Normalize:
			var dense Dense
			dense, err = readDense(m, p.Size(d.Hidden))
			p.Dense = append(p.Dense, dense)
		case name == "Normalize" && p != nil:
			p.Normalize = true
		case name == "LogitScore" && i == 1 && len(modules) == 2 && !encoder: // of a reranker that answers yes or no
			return nil
		default:
			err = fmt.Errorf("modules.json: %s as module %d is not supported: %w", printable(m.Type), i, tensor.ErrUnsupported)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case d.Pooling != nil:
		return nil // a reranker, whose head is part of its architecture
	case p == nil && encoder:
		return fmt.Errorf("model_type %s is an encoder, and the checkpoint has no modules.json with a module Pooling that says how a text becomes one vector: %w",
			d.Family, tensor.ErrUnsupported)
	case p == nil:
		return nil
	case !encoder && !slices.Contains(pooledDecoders, d.Family):
		return fmt.Errorf("modules.json: an embedding model of model_type %s is not supported, only of %s: %w",
			d.Family, strings.Join(pooledDecoders, ", "), tensor.ErrUnsupported)
	}
	if name := d.Head.Weight.Tensor; name != "" {
		if d.Tied {
			name = d.HeadTensor
		}
		d.Skips = append(d.Skips, Skip{Match: regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$"), Reason: "head of another task"})
	}
	d.Pooling, d.Head, d.HeadTensor, d.Tied = p, Linear{}, "", false
	return nil
}

// denseActivations are the classes that a Dense module may name, and whether they are a tanh.
var denseActivations = map[string]bool{"torch.nn.modules.linear.Identity": false, "torch.nn.modules.activation.Tanh": true}

// readDense reads the configuration of a module Dense for vectors of width elements.
func readDense(m Module, width int) (Dense, error) {
	scope := m.Path + "/" + configName
	if m.Config == nil {
		return Dense{}, fmt.Errorf("%s: missing: %w", scope, tensor.ErrCorrupt)
	}
	c, err := ParseConfig(m.Config)
	if err != nil {
		return Dense{}, fmt.Errorf("%s: %w", scope, err)
	}
	if n := c.Int("in_features", maxHidden); n != width && c.Good("in_features") {
		c.Wrong("in_features", "%d, but the vector has %d elements", n, width)
	}
	rows, bias := c.Int("out_features", maxHidden), c.Bool("bias", true)
	word, there := c.OptString("activation_function")
	if !there {
		word = "torch.nn.modules.activation.Tanh" // the default of the class
	}
	turned, known := denseActivations[word]
	if !known {
		c.unsupported("activation_function", "%s is not supported, only %s", show(word), quoted(slices.Sorted(maps.Keys(denseActivations))))
	}
	if err := c.accounted(scope, "module Dense"); err != nil {
		return Dense{}, err
	}
	d := Dense{Linear: Linear{Weight: Weight{m.Path + "/linear.weight", rows, width}}, Tanh: turned}
	if bias {
		d.Bias = Weight{Tensor: m.Path + "/linear.bias", Rows: rows}
	}
	return d, nil
}

// accounted rejects the keys of a module that nothing read, and other problems of its file.
func (c *Config) accounted(scope, owner string) error {
	for _, key := range c.fields.keys {
		if !c.consumed[key] {
			c.unsupported(key, "unknown to the %s", owner)
		}
	}
	if len(c.problems) > 0 {
		return problems{scope: scope, list: c.problems}
	}
	return nil
}

// poolingModes are the keys of the module Pooling for what is supported.
var poolingModes = map[string]Pooled{
	"pooling_mode_cls_token": FirstToken, "pooling_mode_mean_tokens": MeanTokens, "pooling_mode_lasttoken": LastToken,
}

// otherModes are those for what is not.
var otherModes = []string{"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"}

// newModes are the words of the key pooling_mode, which newer releases of sentence-transformers write.
var newModes = map[string]Pooled{"cls": FirstToken, "mean": MeanTokens, "lasttoken": LastToken}

// readPooling reads the configuration of the module Pooling for states of hidden elements.
func readPooling(m Module, hidden int) (*Pooling, error) {
	scope := m.Path + "/" + configName
	if m.Config == nil {
		return nil, fmt.Errorf("%s: missing: %w", scope, tensor.ErrCorrupt)
	}
	c, err := ParseConfig(m.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scope, err)
	}
	var modes []Pooled
	for _, key := range slices.Sorted(maps.Keys(poolingModes)) {
		if c.Bool(key, false) {
			modes = append(modes, poolingModes[key])
		}
	}
	for _, key := range otherModes {
		if c.Bool(key, false) {
			c.unsupported(key, "is not supported")
		}
	}
	if word, ok := c.OptString("pooling_mode"); ok {
		mode, known := newModes[word]
		if !known && c.Good("pooling_mode") {
			c.unsupported("pooling_mode", "%s is not supported, only %s", show(word), quoted(slices.Sorted(maps.Keys(newModes))))
		}
		modes = append(modes, mode)
	}
	if len(modes) != 1 && len(c.problems) == 0 {
		c.unsupported("pooling_mode", "%d modes together are not supported, only one", len(modes))
	}
	if !c.Bool("include_prompt", true) {
		c.unsupported("include_prompt", "false is not supported: the engine does not tell a prompt from a text")
	}
	for _, key := range []string{"word_embedding_dimension", "embedding_dimension"} {
		if n, ok := c.OptInt(key, maxHidden); ok && n != hidden {
			c.Wrong(key, "%d contradicts hidden_size %d", n, hidden)
		}
	}
	if err := c.accounted(scope, "module Pooling"); err != nil {
		return nil, err
	}
	return &Pooling{Of: modes[0]}, nil
}
