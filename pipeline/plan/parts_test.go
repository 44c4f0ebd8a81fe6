package plan

import (
	"bytes"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// The parts of a model have files of their own, as if each were alone; overrides, thread counts and memory are judged over
// all of them.
func TestParts(t *testing.T) {
	text, src := expertModel()
	draft, _ := expertModel()
	draft.Parts[0].Name = "draft"
	// The draft has a matrix that is unsafe at other thread counts, and an override of its own.
	draft.Parts[0].Slots[3].Weight.Tensor, src["wide"] = "wide", src["experts.0.weight"]
	four := spec(t, "w4-b32-asym")
	policy := &quant.Policy{Default: four, Table: four, Overrides: []quant.Override{override(t, "^wide$:bits=8")}}
	if _, err := New(text, src.Tensors(), policy); err == nil {
		t.Error("an override that matches nothing in the only part")
	}
	m := *text
	m.Parts = slices.Concat(text.Parts, draft.Parts)
	p, err := New(&m, src.Tensors(), policy)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := New(text, src.Tensors(), &quant.Policy{Default: four, Table: four})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Parts) != 2 || p.Text() != p.Parts[0] || p.Bytes() != p.Parts[0].Bytes+p.Parts[1].Bytes || p.Text().Bytes != alone.Bytes() {
		t.Fatalf("%d parts, %d bytes", len(p.Parts), p.Bytes())
	}
	if p.Parts[1].Items[0].Offset != 0 || p.Lookup() != alone.Lookup() {
		t.Errorf("the second part begins at %d, lookup %+v", p.Parts[1].Items[0].Offset, p.Lookup())
	}
	if n := len(slices.Collect(p.Items())); n != len(p.Parts[0].Items)+len(p.Parts[1].Items) {
		t.Errorf("%d items", n)
	}
	o := WriteOptions{Threads: 2, Memory: 1 << 20}
	if !bytes.Equal(written(t, p.Text(), src, o), written(t, alone.Text(), src, o)) {
		t.Error("the weights of the text model are not those that it has alone")
	}
	file := memory(written(t, p.Parts[1], src, o))
	for _, op := range p.Parts[1].Link().AllOps() {
		if c, ok := op.Param.(*mnn.Convolution); ok {
			w, err := c.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if wide := op.Name == "/expert/2_0/linear"; (w.Bits == 8) != wide {
				t.Errorf("%s has %d bits", op.Name, w.Bits)
			}
		}
	}
	// Codes, scales and floats are counted for both; the cache is that of the model.
	const codes, scales, floats = 2*32*32/2 + 32*32 + 32*32/2, 2 * (2*2*32 + 2*4), 2 * (2*32 + 32 + 3*32 + 2*32 + 2)
	if r := p.Memory(); r.Weights != codes+4*floats || r.Scales != 4*scales || r.PerToken != 48 || r.State != 1000 {
		t.Errorf("memory %+v", r)
	}
	for _, pack := range PackWidths {
		p.Parts[1].Items[3].Layout.Cols = 40 // 10 packs of 4, 5 of 8 and 3 of 16
		want := slices.DeleteFunc(threads(), func(n int) bool { return !UnsafeThreads(32, pack, n) && !UnsafeThreads(40, pack, n) })
		if got := p.UnsafeThreads(pack); !slices.Equal(got, want) {
			t.Errorf("pack %d: %v, want %v", pack, got, want)
		}
	}
}

// threads counts from 1 to MaxThreads.
func threads() (list []int) {
	for n := range MaxThreads {
		list = append(list, n+1)
	}
	return list
}
