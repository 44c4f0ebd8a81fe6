package lower

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// checkWellFormed demands that ops come after the ops whose results they read, that ops and tensors have names of their
// own over all graphs, that everything is needed, that every tensor of the Decoder is in one slot, which belongs to the op
// of its name, and that the graph can be written.
func checkWellFormed(t *testing.T, d *arch.Decoder, m *Model) {
	t.Helper()
	g := m.Parts[0].Graph
	g.Expand()
	seen := map[string]bool{}
	check := func(ops []mnn.Op, tensors []string) {
		for _, n := range tensors {
			if seen[n] {
				t.Errorf("two tensors are called %s", n)
			}
			seen[n] = true
		}
		written := make([]bool, len(tensors))
		for i := range ops {
			for _, in := range ops[i].Inputs {
				if !written[in] {
					t.Errorf("%s reads %s before it is written", ops[i].Name, tensors[in])
				}
			}
			for _, out := range ops[i].Outputs {
				written[out] = true
			}
		}
	}
	check(g.Ops, g.Tensors)
	for i, live := range g.Live() {
		// The engine binds its inputs whether they are read or not.
		if !live && g.Ops[i].Type != mnn.OpInput {
			t.Errorf("nothing needs %s", g.Ops[i].Name)
		}
	}
	for _, s := range g.Subgraphs {
		check(s.Ops, s.Tensors)
	}
	checkSlots(t, d, m)
	for i := range d.Layers {
		if !seen[mnn.LayerOutput(i)] {
			t.Errorf("no tensor %s", mnn.LayerOutput(i))
		}
	}
	place(m)
	file, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mnn.Open(file); err != nil {
		t.Error(err)
	}
}

func checkSlots(t *testing.T, d *arch.Decoder, m *Model) {
	t.Helper()
	lookups, heads := 0, 0
	count := map[string]int{}
	for _, s := range m.Parts[0].Slots {
		for _, w := range []arch.Weight{s.Weight, s.Bias} {
			if w.Tensor != "" {
				count[w.Tensor]++
			}
		}
		if s.Lookup {
			lookups++
		}
		if s.Name == HeadOp {
			heads++
		}
		if s.Kind == TableSlot {
			if s.Op != -1 || d.Tied {
				t.Errorf("table %+v", s)
			}
			continue
		}
		want := map[SlotKind]mnn.OpType{LinearSlot: mnn.OpConvolution, NormSlot: mnn.OpLayerNorm, ConstSlot: mnn.OpConst}
		if op := m.Parts[0].Op(&s); op.Name != s.Name || op.Type != want[s.Kind] {
			t.Errorf("slot %s is of op %s (%v)", s.Name, op.Name, op.Type)
		}
	}
	if lookups != 1 || heads != 1 {
		t.Errorf("%d lookup slots, %d heads", lookups, heads)
	}
	want := map[string]int{}
	weights(reflect.ValueOf(d), func(w arch.Weight) { want[w.Tensor] = 1 })
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if count[name] != 1 {
			t.Errorf("%d slots have %s", count[name], name)
		}
		delete(count, name)
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		t.Errorf("a slot has %s, which is not of the model", name)
	}
}

// weights calls f with everything within v that names a tensor.
func weights(v reflect.Value, f func(arch.Weight)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			weights(v.Elem(), f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			weights(v.Index(i), f)
		}
	case reflect.Struct:
		if w, ok := v.Interface().(arch.Weight); ok {
			if w.Tensor != "" {
				f(w)
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				weights(v.Field(i), f)
			}
		}
	}
}

// place fills the external lists, as a plan does that stores all weights in float32.
func place(m *Model) (end int64) {
	size := func(w arch.Weight) int64 {
		if w.Tensor == "" {
			return 0
		}
		return 4 * int64(w.Rows) * int64(max(w.Cols, 1))
	}
	for i := range m.Parts[0].Slots {
		s := &m.Parts[0].Slots[i]
		if s.Kind == TableSlot {
			continue
		}
		n, bias := size(s.Weight), size(s.Bias)
		switch p := m.Parts[0].Op(s).Param.(type) {
		case *mnn.Convolution:
			bias = 4 * int64(p.Outputs)
			p.External = []int64{end, n, bias}
		case *mnn.LayerNorm:
			p.External = []int64{end, n, bias}
		case *mnn.Blob:
			p.External = []int64{end, n}
		}
		end += n + bias
	}
	return end
}
