package arch

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Normalisation of pixels from 0 to 1 by the processors of the library.
var (
	clipMean, clipDeviation         = [3]float64{0.48145466, 0.4578275, 0.40821073}, [3]float64{0.26862954, 0.26130258, 0.27577711}
	imageNetMean, imageNetDeviation = [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	halves3                         = [3]float64{0.5, 0.5, 0.5}
)

// maxPixels bounds the edge of a tower's pictures.
const maxPixels = 1 << 14

// maxPatches bounds the learned positions of a tower.
const maxPatches = 1 << 20

// activations are the library's words for functions of towers.
var activations = map[string]Activation{
	"gelu": GELU, "gelu_pytorch_tanh": GELUTanh, "quick_gelu": QuickGELU, "relu": ReLU, "silu": SiLU,
}

// vision makes a Tower. A family reads the keys of its vision_config with the methods below and then describes layers, whose
// number layer chooses.
type vision struct {
	*Config // vision_config
	outer   *Config
	t       *Tower
	// prefix is that of the transformer's tensors, joiner that of the projector's.
	prefix, joiner string
	all, layers    int // layers of the checkpoint, and those that are used
	heads          int
	intermediate   int
	activation     Activation
	eps            float64
	rms            bool
	// marked: tokens of a picture attend to later ones of the same.
	marked bool
	// clipped: matrices have bounds of what they read and compute.
	clipped bool
	// apart: queries, keys and values of a tower of patches are matrices of their own.
	apart bool
	views []View
	skips []Skip
	// text is the config of the text model, rope its key of rotary parameters, and sections says how many pairs each axis turns.
	text        *Config
	rope        string
	sections    []int
	interleaved bool
}

// visionDefaults are values of the library's class that files leave out.
type visionDefaults struct {
	hidden, intermediate, layers, heads, size, patch int
	activation                                       string
	eps                                              float64
}

// beginVision reads the keys of vision_config that vision transformers share. It returns nil after a problem with the object itself.
func beginVision(c *Config, missing visionDefaults) *vision {
	v := &vision{Config: c.Object("vision_config"), outer: c}
	if v.Config == nil {
		c.missing("vision_config")
		return nil
	}
	for key, n := range map[string]int{
		"hidden_size": missing.hidden, "intermediate_size": missing.intermediate, "num_hidden_layers": missing.layers,
		"num_attention_heads": missing.heads, "image_size": missing.size, "patch_size": missing.patch,
	} {
		v.provide(key, n)
	}
	v.t = &Tower{Cell: 1, Hidden: v.Int("hidden_size", maxHidden), Size: v.square("image_size"), Patch: v.square("patch_size")}
	v.t.ModelType, _ = v.OptString("model_type")
	v.all, v.heads, v.intermediate = v.Int("num_hidden_layers", maxLayers), v.Int("num_attention_heads", maxHeads), v.Int("intermediate_size", maxIntermediate)
	v.Only("num_channels", "3")
	v.activation = v.function("hidden_act", missing.activation)
	if v.eps = missing.eps; v.Has("layer_norm_eps") {
		v.eps = v.Float("layer_norm_eps", 1e-30, 1)
	}
	v.Inert("architectures", "attention_dropout", "dropout", "hidden_dropout_prob", "initializer_factor", "initializer_range", "projection_dim", "vocab_size")
	if v.Good("hidden_size", "num_attention_heads") && v.t.Hidden%v.heads != 0 {
		v.Wrong("num_attention_heads", "hidden_size %d is not divisible by %d heads", v.t.Hidden, v.heads)
	}
	if v.Good("image_size", "patch_size") && v.t.Size < v.t.Patch {
		v.Wrong("patch_size", "%d pixels are more than image_size %d", v.t.Patch, v.t.Size)
		v.t.Patch = v.t.Size
	}
	v.layers = v.all
	v.prefix, v.joiner = v.locate("embeddings.", "vision_tower.vision_model.", "vision_tower."), v.locate("", "multi_modal_projector.")
	return v
}

// locate returns the first of some prefixes, each also after "model.", with which a tensor begins when followed by rest.
func (v *vision) locate(rest string, prefixes ...string) string {
	names := slices.Sorted(maps.Keys(v.tensors))
	for _, p := range prefixes {
		for _, p := range []string{p, "model." + p} {
			if i, _ := slices.BinarySearch(names, p+rest); i < len(names) && strings.HasPrefix(names[i], p+rest) {
				return p
			}
		}
	}
	return prefixes[len(prefixes)-1]
}

// square reads a number of pixels, or a list of two equal ones.
func (c *Config) square(key string) int {
	if _, list := c.fields.values[key].([]any); !list {
		return c.Int(key, maxPixels)
	}
	n := c.Ints(key, 1, maxPixels)
	switch {
	case !c.Good(key):
	case len(n) != 2:
		c.Wrong(key, "%d numbers instead of 2", len(n))
	case n[0] != n[1]:
		c.unsupported(key, "%d x %d is not a square", n[0], n[1])
	default:
		return n[0]
	}
	return 1
}

// function reads the name of an activation.
func (c *Config) function(key, missing string) Activation {
	if name, ok := c.OptString(key); ok {
		missing = name
	}
	f, ok := activations[missing]
	if !ok && c.Good(key) {
		c.Refuse(key, "%s is not supported, only %s", show(missing), quoted(slices.Sorted(maps.Keys(activations))))
	}
	return f
}

// layer reads vision_feature_layer: the states of which layer are used, counted from 1, or if negative from the end, -1 being the last.
// It reports whether that is the last layer, counted from the end.
func (v *vision) layer(missing int) (last bool) {
	const key = "vision_feature_layer"
	n := v.outer.Range(key, -maxLayers, maxLayers, missing)
	last = n == -1
	if n < 0 {
		n += v.all + 1
	}
	if n < 0 || n > v.all {
		if v.outer.Good(key) && v.Good("num_hidden_layers") {
			v.outer.Wrong(key, "%d, but there are %d layers", n, v.all)
		}
		return false
	}
	v.layers = n
	return last
}

// tokenID reads a token's id under one of two keys, which must agree.
func (c *Config) tokenID(key, other string, missing int) int {
	n := c.Range(key, 0, maxVocab-1, missing)
	if !c.Has(other) {
		return n
	}
	m := c.Range(other, 0, maxVocab-1, n)
	if c.Has(key) && m != n && c.Good(key, other) {
		c.Wrong(other, "%d contradicts %s %d", m, key, n)
	}
	return m
}

// selectRows reads vision_feature_select_strategy.
func (v *vision) selectRows() {
	const key = "vision_feature_select_strategy"
	v.t.DropFirst = true
	if word, ok := v.outer.OptString(key); ok {
		v.t.DropFirst = word == "default"
		if word != "default" && word != "full" {
			v.outer.Refuse(key, "%s is not supported, only %s", show(word), quoted([]string{"default", "full"}))
		}
	}
}

// skip leaves out tensors of the transformer that the computation does not use.
func (v *vision) skip(pattern string) {
	v.skips = append(v.skips, Skip{Match: regexp.MustCompile(`^` + regexp.QuoteMeta(v.prefix) + pattern), Reason: "not used by the vision tower"})
}

// view adds a view and returns its slot.
func (v *vision) view(x View) Weight {
	v.views = append(v.views, x)
	return Weight{x.Name, x.Rows, x.Cols}
}

// patches is the linear layer of a convolution whose steps are as wide as its window.
func (v *vision) patches(name string, bias bool) {
	n := 3 * max(1, v.t.Frames) * v.t.Patch * v.t.Patch
	v.t.Embedding.Weight = v.view(View{Name: name + "_matrix.weight", Tensor: name + ".weight", Rows: v.t.Hidden, Cols: n, Flat: true})
	if bias {
		v.t.Embedding.Bias = Weight{Tensor: name + ".bias", Rows: v.t.Hidden}
	}
}

// linearOf returns a linear layer by its name without ".weight".
func linearOf(name string, rows, cols int, bias bool) Linear {
	l := Linear{Weight: Weight{name + ".weight", rows, cols}}
	if bias {
		l.Bias = Weight{Tensor: name + ".bias", Rows: rows}
	}
	return l
}

// norm returns a norm of n elements: LayerNorm, or RMSNorm where the file says so.
func (v *vision) norm(name string, n int) *Norm {
	out := &Norm{Gamma: Weight{Tensor: name + ".weight", Rows: n}, Eps: v.eps, Centered: !v.rms}
	if !v.rms {
		out.Beta = Weight{Tensor: name + ".bias", Rows: n}
	}
	return out
}

// visionNames are the names within a layer.
type visionNames struct{ layers, before, after, attention, out string }

// block describes a layer of attention and MLP, each after a norm; p is its prefix. qkv says whether queries, keys and values have a bias.
func (v *vision) block(n visionNames, p string, qkv bool) Layer {
	hidden := v.t.Hidden
	at := p + n.attention
	return Layer{
		{Norm: v.norm(p+n.before, hidden), Block: &Attention{
			Heads: v.heads, KVHeads: v.heads, HeadDim: hidden / v.heads, Bidirectional: true,
			Q: linearOf(at+"q_proj", hidden, hidden, qkv), K: linearOf(at+"k_proj", hidden, hidden, qkv), V: linearOf(at+"v_proj", hidden, hidden, qkv),
			O: linearOf(at+n.out, hidden, hidden, true),
		}},
		{Norm: v.norm(p+n.after, hidden), Block: &MLP{
			Intermediate: v.intermediate, Activation: v.activation,
			Up: linearOf(p+"mlp.fc1", v.intermediate, hidden, true), Down: linearOf(p+"mlp.fc2", hidden, v.intermediate, true),
		}},
	}
}

// layersOf describes the layers that are used with f, and leaves out the others.
func (v *vision) layersOf(n visionNames, f func(p string) Layer) {
	for i := range v.layers {
		v.t.Layers = append(v.t.Layers, f(v.prefix+n.layers+strconv.Itoa(i)+"."))
	}
	for i := v.layers; i < v.all; i++ {
		v.skip(regexp.QuoteMeta(fmt.Sprintf("%s%d.", n.layers, i)))
	}
}

// project describes the projector to rows of width elements.
func (v *vision) project(width int, bias bool) {
	t := v.t
	t.In = linearOf(v.joiner+"linear_1", width, t.Cell*t.Cell*t.Hidden, bias)
	t.Out = linearOf(v.joiner+"linear_2", width, width, bias)
	t.Activation = v.outer.function("projector_hidden_act", "gelu")
}

// finish rejects what was not read.
func (v *vision) finish() *vision {
	v.checkInert()
	v.checkObjects()
	for _, key := range v.fields.keys {
		v.take(key) // the file may be the object that is checked as a whole
	}
	if !v.t.Grid && v.t.Rows() < 1 && v.Good("image_size", "patch_size") {
		v.Wrong("image_size", "no rows are left of %d x %d patches", v.t.Side(), v.t.Side())
	}
	return v
}
