// Package plan decides every byte of llm.mnn.weight before a weight is read, and writes it in one pass.
//
// [New] takes the slots of a lowered model and a policy and lays them out; the result is a value that can
// be printed. [Plan.Link] enters offsets into the graph. [Plan.Write] streams the weights, hashing as it
// goes, within a memory limit, the same bytes for any number of threads; it decides nothing.
package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Item is one slot's span of the weight file.
type Item struct {
	Slot   lower.Slot
	Choice quant.Choice // of matrices
	// Source is what the checkpoint says of the tensor.
	Source *tensor.Info
	// BiasSource is the same of the bias, nil if there is none.
	BiasSource *tensor.Info
	// Offset is the first byte; the span is Header, Codes, Alpha and Bias bytes long, in this order.
	// A norm has its gamma as Codes and its beta as Bias, a constant its values as Codes; both are float32.
	Offset                     int64
	Header, Codes, Alpha, Bias int64
	Layout                     quant.Layout
}

// Size is the length of the span in bytes.
func (it *Item) Size() int64 { return it.Header + it.Codes + it.Alpha + it.Bias }

// Equal says that two items are the same bytes of their files, of sources of the same content.
func (it Item) Equal(other Item) bool {
	same := func(a, b *tensor.Info) bool {
		return a == b || a != nil && b != nil && a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	}
	if !same(it.Source, other.Source) || !same(it.BiasSource, other.BiasSource) {
		return false
	}
	it.Source, it.BiasSource, other.Source, other.BiasSource = nil, nil, nil, nil
	return it == other
}

// Matrix says that the item is stored as a [quant.Spec] says. Norms and constants are float32.
func (it *Item) Matrix() bool {
	return it.Slot.Kind == lower.LinearSlot || it.Slot.Kind == lower.TableSlot
}

// Spec names the storage form: "w4-b64-asym", "f16", or "f32" of a norm or constant.
func (it *Item) Spec() string {
	if !it.Matrix() {
		return "f32"
	}
	return it.Choice.Spec.String()
}

// Plan is the layout of a weight file.
type Plan struct {
	Items []Item
	// Bytes is the length of the file.
	Bytes int64
	// Model is what was laid out.
	Model *lower.Model
}

// New lays out the weights of a lowered model. tensors are the checkpoint's facts. Errors name every
// matrix that cannot be stored as the policy says, and every override that matches nothing.
func New(m *lower.Model, tensors []tensor.Info, p *quant.Policy) (*Plan, error) {
	infos := tensor.ByName(tensors)
	pl := &Plan{Model: m}
	var errs []error
	used := make([]bool, len(p.Overrides))
	pl.Items = make([]Item, 0, len(m.Slots))
	for _, s := range m.Slots {
		it := Item{Slot: s, Source: infos[s.Weight.Tensor], BiasSource: infos[s.Bias.Tensor], Offset: pl.Bytes}
		if it.Source == nil || s.Bias.Tensor != "" && it.BiasSource == nil {
			return nil, fmt.Errorf("internal error: slot %s has no tensor", s.Name)
		}
		for i, o := range p.Overrides {
			used[i] = used[i] || it.Matrix() && o.Match.MatchString(s.Weight.Tensor)
		}
		if !it.Matrix() {
			it.Codes, it.Bias = 4*int64(s.Weight.Rows)*int64(max(s.Weight.Cols, 1)), it.biasBytes()
		} else if err := it.choose(p); err != nil {
			errs = append(errs, err)
			continue
		}
		pl.Items = append(pl.Items, it)
		pl.Bytes += it.Size()
	}
	for i, u := range used {
		if !u {
			errs = append(errs, &UnusedOverride{Index: i, Pattern: p.Overrides[i].Match.String()})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return pl, nil
}

// Take makes another source of the same tensors, in which some may have another element type, the one that is written.
func (p *Plan) Take(tensors []tensor.Info) {
	infos := tensor.ByName(tensors)
	for i := range p.Items {
		it := &p.Items[i]
		if it.Source = infos[it.Source.Name]; it.BiasSource != nil {
			it.BiasSource = infos[it.BiasSource.Name]
		}
	}
}

// UnusedOverride is the error of an override that matches no matrix.
type UnusedOverride struct {
	Index   int
	Pattern string
}

func (e *UnusedOverride) Error() string {
	return fmt.Sprintf("overrides[%d]: %q matches no matrix of the checkpoint", e.Index, e.Pattern)
}

func (it *Item) choose(p *quant.Policy) error {
	s := &it.Slot
	var err error
	role := quant.Body
	switch {
	case s.Table:
		role = quant.Table
	case s.Fine:
		role = quant.Fine
	}
	it.Choice, err = p.Choose(s.Weight.Tensor, role, s.Weight.Rows, s.Weight.Cols)
	if err != nil {
		return err
	}
	return it.store(it.Choice.Spec)
}

// store lays the item out as sp says.
func (it *Item) store(sp quant.Spec) error {
	s := &it.Slot
	it.Choice.Spec, it.Header, it.Bias = sp, 0, it.biasBytes()
	var err error
	// Released engines look token rows up in 4, 8 and 16 bits and take everything else for 4.
	if s.Lookup && sp.Bits != 4 && sp.Bits != 8 && sp.Bits != 16 {
		return fmt.Errorf("%s: the engine looks embeddings up in 4, 8 or 16 bits only, not in %d: %w", s.Weight.Tensor, sp.Bits, tensor.ErrUnsupported)
	}
	if it.Layout, err = sp.Layout(s.Weight.Rows, s.Weight.Cols); err != nil {
		return fmt.Errorf("%s: %w", s.Weight.Tensor, err)
	}
	// A table that no op reads has no header either.
	if sp.Bits != 16 && s.Kind == lower.LinearSlot {
		it.Header = mnn.HeaderSize(s.Weight.Rows, s.Weight.Cols, sp.Bits)
	}
	it.Codes, it.Alpha = it.Layout.Codes, it.Layout.Alpha
	return nil
}

// biasBytes is the length of the vector behind the item's weights.
func (it *Item) biasBytes() int64 {
	if it.Slot.Bias.Tensor == "" {
		return 0
	}
	return 4 * int64(it.Slot.Bias.Rows)
}

// Link enters spans and storage forms into the graph, all of it, and returns it.
func (p *Plan) Link() *mnn.Graph {
	for i := range p.Items {
		if it := &p.Items[i]; it.Slot.Kind != lower.TableSlot {
			it.link(p.Model.Op(&it.Slot))
		}
	}
	p.Model.Graph.Expand() // what has no slots
	return p.Model.Graph
}

// Graph is what Link gives, with experts that are made when they are needed: that of a large mixture takes a tenth of the
// memory of Link's.
func (p *Plan) Graph() *mnn.Graph {
	g := *p.Model.Graph
	g.Subgraphs = slices.Clone(g.Subgraphs)
	like := 0
	var before []Item // of the last subgraph that is made
	for lo := 0; lo < len(p.Items); {
		hi := lo + 1
		for hi < len(p.Items) && p.Items[hi].Slot.Subgraph == p.Items[lo].Slot.Subgraph {
			hi++
		}
		items := p.Items[lo:hi]
		lo = hi
		if k := items[0].Slot.Subgraph; k > 0 && g.Subgraphs[k-1].Make != nil {
			if len(before) == 0 || !alike(before, items) || before[len(before)-1].Slot.Subgraph != k-1 {
				like++
			}
			before = items
			make := g.Subgraphs[k-1].Make
			g.Subgraphs[k-1].Like = like
			g.Subgraphs[k-1].Make = func() ([]string, []mnn.Op) {
				tensors, ops := make()
				for i := range items {
					items[i].link(&ops[items[i].Slot.Op])
				}
				return tensors, ops
			}
			continue
		}
		for i := range items {
			if it := &items[i]; it.Slot.Kind != lower.TableSlot {
				it.link(p.Model.Op(&it.Slot))
			}
		}
	}
	return &g
}

// alike says that the subgraphs of items take as many bytes, if one follows the other and their names are equally long.
func alike(a, b []Item) bool {
	return slices.EqualFunc(a, b, func(x, y Item) bool {
		return x.Slot.Kind == y.Slot.Kind && x.Slot.Op == y.Slot.Op && x.Choice.Spec == y.Choice.Spec && x.Layout == y.Layout
	})
}

// link enters span and storage form into the item's op.
func (it *Item) link(op *mnn.Op) {
	switch it.Slot.Kind {
	case lower.NormSlot:
		op.Param.(*mnn.LayerNorm).External = []int64{it.Offset, it.Codes, it.Bias}
	case lower.ConstSlot:
		op.Param.(*mnn.Blob).External = []int64{it.Offset, it.Codes}
	case lower.LinearSlot:
		c := op.Param.(*mnn.Convolution)
		c.External = []int64{it.Offset, it.Header + it.Codes, it.Alpha, it.Bias, 0}
		c.Quan = quan(it)
	}
}

func quan(it *Item) *mnn.Quan {
	sp := it.Choice.Spec
	if sp.Bits == 16 {
		return &mnn.Quan{Type: 3}
	}
	q := &mnn.Quan{
		Type: 1, MaxOrBits: int32(sp.Bits), QuantScale: 1,
		ShapeInt32: mnn.WideShape(it.Layout.Rows, it.Layout.Cols),
		ScaleFP16:  sp.Scale == tensor.F16,
	}
	if !sp.Symmetric {
		q.Min = 1
		q.ReadType = int32(min(int64(it.Layout.Rows)*int64(it.Layout.Blocks), 1<<31-1))
	}
	return q
}

// Lookup is where the engine finds embedding rows.
type Lookup struct {
	// WeightOffset is the first byte of the codes, AlphaOffset and AlphaSize the scales.
	WeightOffset, AlphaOffset, AlphaSize int64
	Bits                                 int
	// Block is the number of columns per scale; 0 at 16 bits.
	Block int
	// FP16 says that scales are halves.
	FP16 bool
}

// Lookup describes the table of token embeddings.
func (p *Plan) Lookup() Lookup {
	for i := range p.Items {
		it := &p.Items[i]
		if !it.Slot.Lookup {
			continue
		}
		l := Lookup{
			WeightOffset: it.Offset + it.Header,
			AlphaOffset:  it.Offset + it.Header + it.Codes,
			AlphaSize:    it.Alpha,
			Bits:         it.Choice.Spec.Bits,
			Block:        it.Layout.BlockCols,
			FP16:         it.Choice.Spec.Scale == tensor.F16 && it.Choice.Spec.Bits != 16,
		}
		return l
	}
	panic("internal error: plan without an embedding table")
}
