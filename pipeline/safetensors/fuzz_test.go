package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	writer "github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func FuzzReadHeader(f *testing.F) {
	seeds := 0
	for seed := range uint64(20) {
		f.Add(generate(f, seed))
		seeds++
	}
	for _, c := range hostile {
		f.Add(file(c.header, c.data))
		seeds++
	}
	if seeds < 20 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := read(b)
		if err != nil {
			if h != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("%v, %v", h, err)
			}
			return
		}
		// Whatever is accepted, the other parser reads in the same way.
		if err := crossCheck(b, h); err != nil {
			t.Fatal(err)
		}
		checkJSON(t, b, h)
		// Writing what was read gives the same tensors and bytes, in the writer's order.
		infos := make([]tensor.Info, len(h.Entries))
		bytesOf := map[string][]byte{}
		for i, e := range h.Entries {
			infos[i] = e.Info
			bytesOf[e.Name] = b[e.Offset : e.Offset+e.Size]
		}
		out := new(bytes.Buffer)
		err = writer.Write(out, infos, func(name string) (io.Reader, error) { return bytes.NewReader(bytesOf[name]), nil })
		if err != nil {
			t.Fatal(err)
		}
		again, err := read(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		byName := cmpopts.SortSlices(func(a, b tensor.Info) bool { return a.Name < b.Name })
		back := make([]tensor.Info, len(again.Entries))
		for i, e := range again.Entries {
			back[i] = e.Info
			if !bytes.Equal(out.Bytes()[e.Offset:e.Offset+e.Size], bytesOf[e.Name]) {
				t.Fatalf("%q: other bytes", e.Name)
			}
		}
		if d := cmp.Diff(infos, back, byName, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// checkJSON holds our JSON decoder, which is faster and rejects repeated keys, to encoding/json.
func checkJSON(t *testing.T, b []byte, h *Header) {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b[8:h.Size], &all); err != nil {
		t.Fatal(err)
	}
	delete(all, metadataKey)
	if len(all) != len(h.Entries) {
		t.Fatalf("%d tensors, encoding/json finds %d", len(h.Entries), len(all))
	}
	for _, e := range h.Entries {
		var want struct {
			DType   string
			Shape   tensor.Shape
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(all[e.Name], &want); err != nil {
			t.Fatal(err)
		}
		begin := e.Offset - h.Size
		if want.DType != e.DType.String() || !slices.Equal(want.Shape, e.Shape) || want.Offsets != [2]int64{begin, begin + e.Size} {
			t.Fatalf("%q is %+v, encoding/json reads %+v", e.Name, e, want)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":33},"weight_map":{"c":"s2.safetensors","a":"s1.safetensors"}}`))
	f.Add([]byte(`{"metadata":{"total_size":3.3e1},"weight_map":{"c":"../s2.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"c":"s","c":"s"},"x":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseIndex(string(b))
		if err != nil {
			if x != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("%v, %v", x, err)
			}
			return
		}
		for _, shard := range x.shards {
			if bytes.ContainsAny([]byte(shard), "/\\") || shard == ".." || shard == "" {
				t.Fatalf("shard %q", shard)
			}
		}
	})
}
