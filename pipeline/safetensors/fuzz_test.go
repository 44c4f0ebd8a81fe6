package safetensors

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
		// Writing what was read gives the same tensors and bytes, in the writer's order.
		infos := make([]tensor.Info, len(h.Entries))
		bytesOf := map[string][]byte{}
		for i, e := range h.Entries {
			infos[i] = e.Info
			bytesOf[e.Name] = b[e.Offset : e.Offset+e.Size]
		}
		out := new(bytes.Buffer)
		err = Write(out, infos, func(name string) (io.Reader, error) { return bytes.NewReader(bytesOf[name]), nil })
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
