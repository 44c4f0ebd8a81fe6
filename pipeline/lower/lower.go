// Package lower turns the description of a model into graphs for an engine, each with a list of the slots
// that weights must fill. It reads no weights: offsets and lengths enter a graph when its weight file has been
// laid out by pipeline/plan.
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

// Target is an engine release as a recipe names it, with the differences between releases.
type Target struct {
	// Engine is the recipe's word, such as "3.6"; Minimum is the oldest release that runs the package.
	Engine, Minimum string
	// Scale is the type of scales and zero terms.
	Scale tensor.DType
}

// targets is the table of engines.
var targets = map[string]Target{
	"3.5":   {Engine: "3.5", Minimum: "3.5.0", Scale: tensor.F32},
	"3.6":   {Engine: "3.6", Minimum: "3.6.0", Scale: tensor.F16},
	"3.6.1": {Engine: "3.6.1", Minimum: "3.6.1", Scale: tensor.F16},
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

// TargetOf returns the target of an engine by the recipe's word.
func TargetOf(engine string) (Target, error) {
	t, ok := targets[engine]
	if !ok {
		return Target{}, fmt.Errorf("engine %q: known are %s", engine, strings.Join(Engines(), ", "))
	}
	return t, nil
}

// SlotKind is the kind of content that a slot holds.
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
	// Fine marks small, sensitive matrices (routers and gates), which stay in 16 bits unless an override changes that.
	Fine bool
	// Table marks the head and the embedding, whose precision matters more than that of the body.
	Table bool
	// Tower marks the matrices of a tower, and the table of a text model whose rows have marks of pictures. Calibration has no input for them.
	Tower bool
	// Lookup marks the slot in which the engine looks up token rows: the head of a tied model, or the table.
	Lookup bool
}

// Part is one of the graphs of a package, with places for weights: the graph's external lists are still empty.
type Part struct {
	// Name is empty for the text model. The names of the files follow from it, see [mnn.GraphFile].
	Name string
	// Graph has subgraphs that are made on demand, see [mnn.Subgraph].
	Graph *mnn.Graph
	// Slots are in the order of the weight file.
	Slots []Slot
}

// GraphFile returns the name of the part's graph file.
func (p *Part) GraphFile() string { return mnn.GraphFile(p.Name) }

// WeightFile returns the name of the part's weight file.
func (p *Part) WeightFile() string { return mnn.WeightFile(p.Name) }

// Model is a lowered model: its parts, and what the engine and its users have to know about them.
type Model struct {
	// Parts of the package, the text model first.
	Parts []*Part
	// Context is the number of positions that the package can hold.
	Context int
	// Window, if not 0, is sliding_window of llm_config.json, whose attention_type is then "mix".
	Window int
	// Oldest is the oldest engine that runs all parts, if not all engines do.
	Oldest string
	// Precision is the lowest precision at which the model works, as the engine names it; "" stands for "low".
	Precision string
	// Pooled: the graph makes one vector of a text, in place of logits.
	Pooled bool
	// Whole: a prompt must not be divided, so "chunk" must not be set.
	Whole bool
	// CacheElements is the number of keys and values that the engine keeps for a token, in all layers. StateBytes is the
	// size of the states, which does not depend on the length of the conversation.
	CacheElements, StateBytes int64
	// Caches is the number of ops that keep keys and values or a state: layer_nums of llm_config.json. It is the number of layers
	// in a model with a pooling, which keeps nothing.
	Caches int
	// Features are those in which backends differ, without storage forms.
	Features backends.Features
	// Conditions are sentences for the manifest, the card and the plan.
	Conditions []string
}

// Op returns the op of a slot. It makes the op's subgraph if that has not been made yet.
func (p *Part) Op(s *Slot) *mnn.Op {
	if s.Subgraph > 0 {
		g := &p.Graph.Subgraphs[s.Subgraph-1]
		*g = *g.Full()
		return &g.Ops[s.Op]
	}
	return &p.Graph.Ops[s.Op]
}

// Options of a lowering.
type Options struct {
	// Context bounds the positions of the package; 0 stands for all that the checkpoint declares.
	Context int
	// Form is [FormC4], or empty for the classic form.
	Form string
	// Latent is the form of latent attention, LatentExpanded or LatentCached. If it is empty, the dimensions decide.
	Latent string
	// SpelledGELU writes the exact GELU as simple ops, for backends that take the op for its tanh form.
	SpelledGELU bool
	// TabledQuotients looks quotients of positions up in tables of integers, for backends that do not divide integers. The numbers are the
	// same. Chunks of masks are still divided.
	TabledQuotients bool
	// StoredAttention computes attention with windows or sinks from simple ops, over at most [MaxStoredContext] positions, for backends
	// whose Attention op ignores them.
	StoredAttention bool
}

// Lower lowers the text model of m by [Classic], and each tower to a part of its own.
func Lower(m *arch.Model, o Options) (*Model, error) {
	low, err := Classic(m.Text, o)
	if err != nil {
		return nil, err
	}
	for _, t := range m.Towers {
		lower := tower
		switch {
		case t.Padded > 0:
			lower, low.Oldest = paddedTower, paddedEngine
		case t.Slices != nil:
			lower = slicedTower
		case t.Grid:
			lower = gridTower
		case len(t.Stages) > 0:
			lower = stagedTower
		}
		part, err := lower(t)
		if err != nil {
			return nil, err
		}
		low.Parts, low.Conditions = append(low.Parts, part), append(low.Conditions, towerConditions(t)...)
	}
	if m.Ear != nil {
		if m.Ear.Features == arch.USMFeatures {
			low.Oldest = usmEngine
		}
		part, err := ear(m.Ear)
		if err != nil {
			return nil, err
		}
		low.Parts, low.Conditions = append(low.Parts, part), append(low.Conditions, earConditions(m.Ear)...)
	}
	return low, nil
}
