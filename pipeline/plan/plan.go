// Package plan decides every byte of a package's weight files before a weight is read, and writes each of them in one pass.
//
// [New] lays out the slots of a lowered model according to a policy; the result is a value that can be printed.
// [Part.Graph] enters offsets into a graph. [Part.Write] streams and hashes the weights of a part within a memory limit.
// It writes the same bytes for any number of threads and decides nothing.
package plan

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Item is the span of a weight file that one slot takes.
type Item struct {
	Slot   *lower.Slot
	Choice quant.Choice // of matrices
	// Source describes the checkpoint's tensor, BiasSource that of the bias; nil without a bias.
	Source, BiasSource *tensor.Info
	// Offset is the first byte of the span. Header, Codes, Alpha and Bias are the lengths of its pieces in bytes, in this
	// order. A norm has its gamma as Codes and its beta as Bias, a constant its values as Codes, all in float32.
	Offset                     int64
	Header, Codes, Alpha, Bias int64
	Layout                     quant.Layout
}

// Size returns the length of the span in bytes.
func (it *Item) Size() int64 { return it.Header + it.Codes + it.Alpha + it.Bias }

// Equal reports whether two items are the same bytes of their files, given sources with the same content.
func (it Item) Equal(other Item) bool {
	same := func(a, b *tensor.Info) bool {
		return a == b || a != nil && b != nil && a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	}
	if !same(it.Source, other.Source) || !same(it.BiasSource, other.BiasSource) {
		return false
	}
	if *it.Slot != *other.Slot {
		return false
	}
	it.Source, it.BiasSource, it.Slot, other.Source, other.BiasSource, other.Slot = nil, nil, nil, nil, nil, nil
	return it == other
}

// Matrix reports whether the item is stored in the form of a [quant.Spec]. Norms and constants are float32.
func (it *Item) Matrix() bool {
	return it.Slot.Kind == lower.LinearSlot || it.Slot.Kind == lower.TableSlot
}

// Spec names the storage form: "w4-b64-asym", "f16", or "f32" for norms and constants.
func (it *Item) Spec() string {
	if !it.Matrix() {
		return "f32"
	}
	return it.Choice.Spec.String()
}

// Plan is the layout of a package's weights.
type Plan struct {
	// Model is what was laid out.
	Model *lower.Model
	// Parts are the layouts of the model's parts, in the same order.
	Parts []*Part
}

// Part is the layout of the weight file of one part.
type Part struct {
	// Lowered is what was laid out.
	Lowered *lower.Part
	Items   []Item
	// Bytes is the length of the file.
	Bytes int64
}

// New lays out the weights of a lowered model. tensors describe the checkpoint. The error names every matrix that cannot
// be stored as the policy demands, and every override that matches nothing.
func New(m *lower.Model, tensors []tensor.Info, p *quant.Policy) (*Plan, error) {
	infos := tensor.ByName(tensors)
	pl := &Plan{Model: m}
	var errs []error
	used := make([]bool, len(p.Overrides))
	for _, part := range m.Parts {
		x, err := newPart(part, infos, p, used)
		pl.Parts, errs = append(pl.Parts, x), append(errs, err)
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

// newPart lays out the weights of one part and marks the overrides that it uses.
func newPart(part *lower.Part, infos map[string]*tensor.Info, p *quant.Policy, used []bool) (*Part, error) {
	x := &Part{Lowered: part, Items: make([]Item, 0, len(part.Slots))}
	var errs []error
	for i := range part.Slots {
		s := &part.Slots[i]
		it := Item{Slot: s, Source: infos[s.Weight.Tensor], BiasSource: infos[s.Bias.Tensor], Offset: x.Bytes}
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
		x.Items = append(x.Items, it)
		x.Bytes += it.Size()
	}
	return x, errors.Join(errs...)
}

// Text returns the layout of the text model.
func (p *Plan) Text() *Part { return p.Parts[0] }

// Items iterates over the items of all parts.
func (p *Plan) Items() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for _, part := range p.Parts {
			for i := range part.Items {
				if !yield(&part.Items[i]) {
					return
				}
			}
		}
	}
}

// Len returns the number of items of all parts.
func (p *Plan) Len() (n int) {
	for _, part := range p.Parts {
		n += len(part.Items)
	}
	return n
}

// Bytes returns the length of all weight files.
func (p *Plan) Bytes() int64 {
	var n int64
	for _, part := range p.Parts {
		n += part.Bytes
	}
	return n
}

// From returns the plan for another source with the same tensors, some of which may have another element type. These are
// the types that Write reads.
func (p *Plan) From(tensors []tensor.Info) *Plan {
	infos := tensor.ByName(tensors)
	q := &Plan{Model: p.Model}
	for _, part := range p.Parts {
		q.Parts = append(q.Parts, &Part{Lowered: part.Lowered, Items: slices.Clone(part.Items), Bytes: part.Bytes})
	}
	for it := range q.Items() {
		if it.Source = infos[it.Source.Name]; it.BiasSource != nil {
			it.BiasSource = infos[it.BiasSource.Name]
		}
	}
	return q
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
	s := it.Slot
	var err error
	role := quant.Body
	switch {
	case s.Table:
		role = quant.Table
	case s.Fine:
		role = quant.Fine
	case s.Tower:
		role = quant.Tower
	}
	it.Choice, err = p.Choose(s.Weight.Tensor, role, s.Weight.Rows, s.Weight.Cols)
	if err != nil {
		return err
	}
	return it.store(it.Choice.Spec)
}

// store lays the item out in the form sp.
func (it *Item) store(sp quant.Spec) error {
	s := it.Slot
	it.Choice.Spec, it.Header, it.Bias = sp, 0, it.biasBytes()
	var err error
	// Released engines look up token rows of 4, 8 and 16 bits and read every other width as 4 bits.
	if s.Lookup && sp.Bits != 4 && sp.Bits != 8 && sp.Bits != 16 {
		return fmt.Errorf("%s: the engine supports embeddings of 4, 8 and 16 bits only, not of %d: %w", s.Weight.Tensor, sp.Bits, tensor.ErrUnsupported)
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

// biasBytes returns the length of the vector that follows the item's weights.
func (it *Item) biasBytes() int64 {
	if it.Slot.Bias.Tensor == "" {
		return 0
	}
	return 4 * int64(it.Slot.Bias.Rows)
}

// Link enters spans and storage forms into the whole graph and returns it.
func (p *Part) Link() *mnn.Graph {
	for i := range p.Items {
		if it := &p.Items[i]; it.Slot.Kind != lower.TableSlot {
			it.link(p.Lowered.Op(it.Slot))
		}
	}
	p.Lowered.Graph.Expand() // subgraphs without slots
	return p.Lowered.Graph
}

// Graph returns the graph of Link, with experts that are made on demand: for a large mixture it takes a tenth of the memory
// of Link's.
func (p *Part) Graph() *mnn.Graph {
	g := *p.Lowered.Graph
	g.Subgraphs = slices.Clone(g.Subgraphs)
	like := 0
	var before []Item // of the last subgraph that is made on demand
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
				it.link(p.Lowered.Op(it.Slot))
			}
		}
	}
	return &g
}

// alike reports whether the subgraphs of two lists of items have equal sizes in the graph file, provided that one follows the
// other and their names are equally long.
func alike(a, b []Item) bool {
	return slices.EqualFunc(a, b, func(x, y Item) bool {
		return x.Slot.Kind == y.Slot.Kind && x.Slot.Op == y.Slot.Op && x.Choice.Spec == y.Choice.Spec && x.Layout == y.Layout
	})
}

// link enters the span and the storage form into the item's op.
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
		Type: 1, MaxOrBits: int32(sp.HeaderBits()), QuantScale: 1,
		ShapeInt32: mnn.WideShape(it.Layout.Rows, it.Layout.Cols),
		ScaleFP16:  sp.Scale == tensor.F16,
	}
	if !sp.Symmetric {
		q.Min = 1
		q.ReadType = int32(min(int64(it.Layout.Rows)*int64(it.Layout.Blocks), 1<<31-1))
	}
	return q
}

// Lookup is where the engine finds embedding rows in the weight file of the text model.
type Lookup struct {
	// WeightOffset is the first byte of the codes. The scales are AlphaSize bytes from AlphaOffset on.
	WeightOffset, AlphaOffset, AlphaSize int64
	Bits                                 int
	// Block is the number of columns per scale; 0 at 16 bits.
	Block int
	// FP16: scales are halves.
	FP16 bool
}

// Lookup describes the table of token embeddings.
func (p *Plan) Lookup() Lookup {
	for it := range p.Items() {
		if it.Slot.Lookup {
			return Lookup{
				WeightOffset: it.Offset + it.Header,
				AlphaOffset:  it.Offset + it.Header + it.Codes,
				AlphaSize:    it.Alpha,
				Bits:         it.Choice.Spec.Bits,
				Block:        it.Layout.BlockCols,
				FP16:         it.Choice.Spec.Scale == tensor.F16 && it.Choice.Spec.Bits != 16,
			}
		}
	}
	panic("internal error: plan without an embedding table")
}
