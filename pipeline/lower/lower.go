// Package lower turns the description of a model into the graph of an engine, with a list of the slots
// that weights must fill. It reads no weights: offsets and lengths enter the graph when a plan has laid
// the weight file out.
package lower

import (
	"fmt"
	"sort"
	"strings"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Target is an engine release as a recipe names it, and what differs between releases.
type Target struct {
	// Engine is the recipe's word, "3.5" or "3.6"; Minimum the oldest release that runs the package.
	Engine, Minimum string
	// Scale is the type of scales and zero terms.
	Scale tensor.DType
}

// targets is the table of engines.
var targets = map[string]Target{
	"3.5": {Engine: "3.5", Minimum: "3.5.0", Scale: tensor.F32},
	"3.6": {Engine: "3.6", Minimum: "3.6.0", Scale: tensor.F16},
}

// Engines lists the names of the known engines, sorted.
func Engines() []string {
	var names []string
	for n := range targets {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// TargetOf looks an engine up.
func TargetOf(engine string) (Target, error) {
	t, ok := targets[engine]
	if !ok {
		return Target{}, fmt.Errorf("engine %q: known are %s", engine, strings.Join(Engines(), ", "))
	}
	return t, nil
}

// SlotKind says what a slot holds.
type SlotKind int

// The kinds of slots.
const (
	LinearSlot SlotKind = iota // a matrix and perhaps a bias, of a Convolution
	NormSlot                   // a vector, the gamma of a LayerNorm, and perhaps its beta, the bias
	TableSlot                  // the embedding table, which no op reads
	ConstSlot                  // a vector or matrix of float32, the value of a Const
)

// Slot is a place for weights.
type Slot struct {
	Kind SlotKind
	// Name is the op's name, or "embedding" for a table.
	Name string
	// Op indexes Graph.Ops; -1 for a table. If Subgraph is not 0, it indexes the ops of Graph.Subgraphs[Subgraph-1].
	Op       int
	Subgraph int
	Weight   arch.Weight
	Bias     arch.Weight
	// Fine marks matrices that are small and sensitive, routers and gates: they stay in 16 bits unless an override says
	// otherwise.
	Fine bool
	// Table marks the head and the embedding, whose precision counts more than that of the body.
	Table bool
	// Lookup marks the slot in which the engine looks token rows up: the head of a tied model, or the table.
	Lookup bool
}

// Model is a lowered Decoder: a graph whose external lists are still empty, its slots in file order, and what the engine
// and its users have to know of it.
type Model struct {
	// Graph has subgraphs that are made when they are needed, see [mnn.Subgraph].
	Graph *mnn.Graph
	Slots []Slot
	// Context is the number of positions that the package can hold.
	Context int
	// Window, if not 0, is sliding_window of llm_config.json, whose attention_type is then "mix".
	Window int
	// Precision is the lowest that the model can be run in, of the engine's words; "" where "low" is enough.
	Precision string
	// Whole says that a prompt must not be divided: "chunk" must not be set.
	Whole bool
	// CacheElements is the number of keys and values that the engine keeps of a token, in all layers; StateBytes is what
	// it keeps besides, however long the conversation is.
	CacheElements, StateBytes int64
	// Caches is the number of ops that keep keys and values or a state, layer_nums of llm_config.json.
	Caches int
	// Features are those on which backends differ, without storage forms.
	Features backends.Features
	// Conditions are sentences for manifest, card and plan.
	Conditions []string
}

// Op finds the op of a slot. Its subgraph is no longer one that is made.
func (m *Model) Op(s *Slot) *mnn.Op {
	if s.Subgraph > 0 {
		g := &m.Graph.Subgraphs[s.Subgraph-1]
		*g = *g.Full()
		return &g.Ops[s.Op]
	}
	return &m.Graph.Ops[s.Op]
}

// Options of a lowering.
type Options struct {
	// Context bounds the positions of the package; 0 stands for all that the checkpoint declares.
	Context int
	// Latent is the form of latent attention, LatentExpanded or LatentCached; empty leaves it to the dimensions.
	Latent string
}
