package mnn

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// openOrRefuse opens any bytes and checks what holds for all: an error is one of two, and a graph survives
// Marshal and Open.
func openOrRefuse(t *testing.T, b []byte) {
	t.Helper()
	g, err := Open(b)
	if err != nil {
		if g != nil {
			t.Errorf("a graph together with the error %v", err)
		}
		if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v is neither ErrCorrupt nor ErrUnsupported", err)
		}
		return
	}
	if d := cmp.Diff(g, reopen(t, g), sameGraph); d != "" {
		t.Errorf("Open(Marshal(g)) differs:\n%s", d)
	}
}

func marshal(t testing.TB, g *Graph) []byte {
	t.Helper()
	b, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTruncated(t *testing.T) {
	for _, b := range [][]byte{marshal(t, smallGraph()), marshal(t, expertGraph()), marshal(t, fullGraph()), foreignSample(t)} {
		for n := 0; n < len(b); n += 7 {
			openOrRefuse(t, b[:n:n])
		}
	}
}

func TestFlippedBytes(t *testing.T) {
	for _, g := range []*Graph{smallGraph(), expertGraph()} {
		file := marshal(t, g)
		for i := range file {
			for _, flip := range []byte{0x01, 0x04, 0x80, 0xff} {
				b := slices.Clone(file)
				b[i] ^= flip
				openOrRefuse(t, b)
			}
		}
	}
	full, step := marshal(t, fullGraph()), 1
	if testing.Short() {
		step = 31
	}
	for i := 0; i < len(full); i += step {
		b := slices.Clone(full)
		b[i] ^= 0xff
		openOrRefuse(t, b)
	}
}

func foreignSample(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/foreign.mnn")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// repeatFirst makes all elements of the vector of offsets at pos point to where the first one does.
func repeatFirst(b []byte, pos int) {
	n := int(binary.LittleEndian.Uint32(b[pos:]))
	target := pos + 4 + int(binary.LittleEndian.Uint32(b[pos+4:]))
	for i := range n {
		at := pos + 4 + 4*i
		binary.LittleEndian.PutUint32(b[at:], uint32(target-at))
	}
}

func TestManyOffsetsToOneTable(t *testing.T) {
	// 20,000 ops that all point to one table of 1 MB would be 20 GB of floats.
	const ops, floats = 20_000, 1 << 18
	b := graphBuilder{&Graph{}}
	b.op("table", OpConst, &Blob{Dims: []int32{floats}, DType: DTFloat, Float32s: make([]float32, floats)})
	for range ops {
		b.op("", OpRank, nil, 0)
	}
	file := marshal(t, b.Graph)
	net := int(binary.LittleEndian.Uint32(file))
	vt := net - int(int32(binary.LittleEndian.Uint32(file[net:])))
	field := net + int(binary.LittleEndian.Uint16(file[vt+4+2*3:])) // slot 3 is oplists
	repeatFirst(file, field+int(binary.LittleEndian.Uint32(file[field:])))
	if _, err := Open(file); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "too many offsets point to the same bytes") {
		t.Errorf("error %v", err)
	}
}

func TestRefusedBuffers(t *testing.T) {
	small := marshal(t, smallGraph())
	net := int(binary.LittleEndian.Uint32(small))
	vt := net - int(int32(binary.LittleEndian.Uint32(small[net:])))
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
		want   error
	}{
		{"empty", func([]byte) []byte { return nil }, tensor.ErrCorrupt},
		{"root outside", func(b []byte) []byte { binary.LittleEndian.PutUint32(b, uint32(len(b))); return b }, tensor.ErrCorrupt},
		{"root at itself", func(b []byte) []byte { clear(b[:4]); return b }, tensor.ErrCorrupt},
		{"vtable before the file", func(b []byte) []byte { binary.LittleEndian.PutUint32(b[net:], 1<<20); return b }, tensor.ErrCorrupt},
		{"vtable after the file", func(b []byte) []byte { binary.LittleEndian.PutUint32(b[net:], 0xfff00000); return b }, tensor.ErrCorrupt},
		{"vtable of odd length", func(b []byte) []byte { b[vt]++; return b }, tensor.ErrCorrupt},
		{"field outside its table", func(b []byte) []byte { b[vt+4+2*3] = 200; return b }, tensor.ErrCorrupt},
		{"vector longer than the file", func(b []byte) []byte {
			field := net + int(b[vt+4+2*3])
			at := field + int(binary.LittleEndian.Uint32(b[field:]))
			binary.LittleEndian.PutUint32(b[at:], 0xffffffff)
			return b
		}, tensor.ErrCorrupt},
		{"string without end", func(b []byte) []byte {
			i := slices.Index(b, 'l') // of "logits"
			for ; string(b[i:i+6]) != "logits"; i++ {
			}
			b[i+6] = 'x'
			return b
		}, tensor.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.damage(slices.Clone(small)))
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			t.Log(err)
		})
	}
}

// TestFieldsWithoutAPlace has buffers with a field that the graph could not give back: values that mean
// something are refused, and the zero values that MNN's converter writes everywhere are not.
func TestFieldsWithoutAPlace(t *testing.T) {
	slot := func(l *layout, name string) int {
		i := slices.IndexFunc(l.fields, func(f field) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("%s has no field %s", l.name, name)
		}
		return i
	}
	usage := slot(netLayout, "usage")
	subgraphs := slot(netLayout, "subgraphs")
	// opOf is a graph of one op with the parameter that set fills.
	opOf := func(b *flatbuffers.Builder, typ ParamType, set func()) func() {
		b.StartObject(len(paramLayouts[typ].fields))
		set()
		p := b.EndObject()
		b.StartObject(len(opLayout.fields))
		b.PrependByteSlot(slot(opLayout, "main_type"), byte(typ), 0)
		b.PrependUOffsetTSlot(slot(opLayout, "main"), p, 0)
		v := b.CreateVectorOfTables([]flatbuffers.UOffsetT{b.EndObject()})
		return func() { b.PrependUOffsetTSlot(slot(netLayout, "oplists"), v, 0) }
	}
	for _, c := range []struct {
		name  string
		want  string // in the error; empty if none
		build func(b *flatbuffers.Builder) func()
	}{
		{"usage 0", "", func(b *flatbuffers.Builder) func() { return func() { b.PrependByte(0); b.Slot(usage) } }},
		{"usage 2", "usage: value 2", func(b *flatbuffers.Builder) func() { return func() { b.PrependByte(2); b.Slot(usage) } }},
		{"no subgraphs", "", func(b *flatbuffers.Builder) func() {
			v := b.CreateVectorOfTables(nil)
			return func() { b.PrependUOffsetTSlot(subgraphs, v, 0) }
		}},
		{"described subgraph", "extraTensorDescribe: list of length 1", func(b *flatbuffers.Builder) func() {
			b.StartVector(4, 1, 4)
			b.PrependUint32(1)
			d := b.EndVector(1)
			b.StartObject(len(subgraphLayout.fields))
			b.PrependUOffsetTSlot(slot(subgraphLayout, "extraTensorDescribe"), d, 0)
			v := b.CreateVectorOfTables([]flatbuffers.UOffsetT{b.EndObject()})
			return func() { b.PrependUOffsetTSlot(subgraphs, v, 0) }
		}},
		{"attribute of a float", "f: value 0x3f800000", func(b *flatbuffers.Builder) func() {
			extra := paramLayouts[ParamExtra]
			attribute := extra.fields[slot(extra, "attr")].of
			b.StartObject(len(attribute.fields))
			b.PrependFloat32Slot(slot(attribute, "f"), 1, 0)
			v := b.CreateVectorOfTables([]flatbuffers.UOffsetT{b.EndObject()})
			return opOf(b, ParamExtra, func() { b.PrependUOffsetTSlot(slot(extra, "attr"), v, 0) })
		}},
		{"folded gates", "gate_fold: value 1", func(b *flatbuffers.Builder) func() {
			return opOf(b, ParamLinearAttentionParam, func() { b.PrependBoolSlot(slot(paramLayouts[ParamLinearAttentionParam], "gate_fold"), true, false) })
		}},
		{"reduction with a factor", "coeff: value 0x40000000", func(b *flatbuffers.Builder) func() {
			return opOf(b, ParamReductionParam, func() { b.PrependFloat32Slot(slot(paramLayouts[ParamReductionParam], "coeff"), 2, 0) })
		}},
		{"field of a later format", "field number 12", func(b *flatbuffers.Builder) func() {
			return func() { b.PrependInt32Slot(len(netLayout.fields), 1, 0) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := flatbuffers.NewBuilder(0)
			set := c.build(b)
			b.StartObject(len(netLayout.fields) + 1)
			set()
			b.Finish(b.EndObject())
			err := verify(b.FinishedBytes())
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	seeds := [][]byte{marshal(f, smallGraph()), marshal(f, expertGraph()), marshal(f, fullGraph()), foreignSample(f)}
	if len(seeds) == 0 || slices.ContainsFunc(seeds, func(b []byte) bool { return len(b) == 0 }) {
		f.Fatal("no seeds")
	}
	for _, b := range seeds {
		if _, err := Open(b); err != nil {
			f.Fatalf("seed: %v", err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(openOrRefuse)
}
