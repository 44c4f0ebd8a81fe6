package calibrate

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a source in memory.
type memory struct {
	infos []tensor.Info
	data  map[string][]byte
}

func (m *memory) Tensors() []tensor.Info { return m.infos }

func (m *memory) Open(name string) (*io.SectionReader, error) {
	return io.NewSectionReader(bytes.NewReader(m.data[name]), 0, int64(len(m.data[name]))), nil
}

// base holds a matrix that takes several conversions, in BF16, its values in F32 and a vector.
func base() (*memory, []float32) {
	const rows, cols = 37, 1001
	r := rand.New(rand.NewPCG(5, 6))
	wide := make([]float32, rows*cols)
	for i := range wide {
		wide[i] = float32(r.NormFloat64())
	}
	narrow := make([]uint16, len(wide))
	kernel.F32ToBF16(narrow, wide)
	raw := make([]byte, 0, 2*len(wide))
	for _, v := range narrow {
		raw = append(raw, byte(v), byte(v>>8))
	}
	kernel.BF16ToF32(wide, raw)
	m := &memory{data: map[string][]byte{"ids": make([]byte, 16), "matrix": raw, "other": raw[:4], "vector": putFloats(nil, wide[:8])}}
	m.infos = []tensor.Info{
		{Name: "ids", DType: tensor.I32, Shape: tensor.Shape{4}, Size: 16},
		{Name: "matrix", DType: tensor.BF16, Shape: tensor.Shape{rows, cols}, File: "a", Size: int64(len(raw))},
		{Name: "other", DType: tensor.BF16, Shape: tensor.Shape{2}, File: "a", Size: 4},
		{Name: "vector", DType: tensor.F32, Shape: tensor.Shape{8}, File: "a", Size: 32},
	}
	return m, wide
}

func factors(seed uint64, n int) []float32 { return randomScales(rand.New(rand.NewPCG(seed, 0)), n) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOverlayComputesOnReading(t *testing.T) {
	m, wide := base()
	o := NewOverlay(m)
	r1, r2, c1 := factors(1, 37), factors(2, 37), factors(3, 1001)
	check(t, o.ScaleRows("matrix", r1))
	check(t, o.ScaleColumns("matrix", c1))
	early, err := o.Open("matrix")
	check(t, err)
	check(t, o.ScaleRows("matrix", r2))
	check(t, o.ScaleVector("vector", factors(4, 8)))

	expect := func(row func(int) float32) []byte {
		v := make([]float32, len(wide))
		for i := range v {
			v[i] = float32(wide[i]*row(i/1001)) * c1[i%1001]
		}
		return putFloats(nil, v)
	}
	want := expect(func(r int) float32 { return r1[r] * r2[r] })
	if !bytes.Equal(readAll(t, o, "matrix"), want) {
		t.Error("matrix: other values")
	}
	first, err := io.ReadAll(early)
	if err != nil || !bytes.Equal(first, expect(func(r int) float32 { return r1[r] })) {
		t.Errorf("a reader from before changed: %v", err)
	}
	if !bytes.Equal(readAll(t, o, "other"), m.data["other"]) {
		t.Error("other: changed")
	}
	infos := o.Tensors()
	if diff := cmp.Diff(tensor.Info{Name: "matrix", DType: tensor.F32, Shape: tensor.Shape{37, 1001}, Size: int64(len(want))}, infos[1]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(m.infos[2], infos[2]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	t.Run("any range", func(t *testing.T) {
		r, err := o.Open("matrix")
		check(t, err)
		var wait sync.WaitGroup
		for k := range 4 {
			wait.Go(func() {
				x := rand.New(rand.NewPCG(uint64(k), 1))
				for range 50 {
					lo := x.IntN(len(want))
					p := make([]byte, x.IntN(len(want)-lo+1))
					if n, err := r.ReadAt(p, int64(lo)); n != len(p) || err != nil || !bytes.Equal(p, want[lo:lo+len(p)]) {
						t.Errorf("%d bytes at %d: %d, %v", len(p), lo, n, err)
					}
				}
			})
		}
		wait.Wait()
		if n, err := r.ReadAt(make([]byte, 10), int64(len(want)-3)); n != 3 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

func TestOverlayReplaces(t *testing.T) {
	m, wide := base()
	o := NewOverlay(m)
	path := filepath.Join(t.TempDir(), "m.f32")
	check(t, os.WriteFile(path, putFloats(nil, wide), 0o600))
	check(t, o.ScaleRows("matrix", factors(1, 37)))
	check(t, o.ReplaceFile("matrix", path))
	if !bytes.Equal(readAll(t, o, "matrix"), putFloats(nil, wide)) {
		t.Error("a file and factors from before it")
	}
	check(t, o.ScaleVector("other", []float32{2, 3}))
	check(t, o.ReplaceValues("other", []float32{5, 6}))
	check(t, o.ScaleVector("other", []float32{2, 3}))
	if !bytes.Equal(readAll(t, o, "other"), putFloats(nil, []float32{10, 18})) {
		t.Error("values with factors from after them")
	}
	check(t, os.Truncate(path, 8))
	r, err := o.Open("matrix")
	check(t, err)
	if _, err := io.ReadAll(r); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("a file that became shorter: %v", err)
	}
}

func TestOverlayRefuses(t *testing.T) {
	m, _ := base()
	o := NewOverlay(m)
	one := []float32{1}
	inf := float32(math.Inf(1))
	for name, c := range map[string]struct{ got, want error }{
		"unknown":         {o.ScaleRows("none", one), tensor.ErrCorrupt},
		"integers":        {o.ScaleVector("ids", []float32{1, 1, 1, 1}), tensor.ErrUnsupported},
		"length":          {o.ScaleColumns("matrix", one), tensor.ErrCorrupt},
		"rows of vector":  {o.ScaleRows("vector", one), tensor.ErrCorrupt},
		"infinite factor": {o.ScaleVector("other", []float32{1, inf}), tensor.ErrCorrupt},
		"values":          {o.ReplaceValues("other", one), tensor.ErrCorrupt},
		"infinite value":  {o.ReplaceValues("other", []float32{1, inf}), tensor.ErrCorrupt},
		"no file":         {o.ReplaceFile("other", filepath.Join(t.TempDir(), "none")), os.ErrNotExist},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	for _, info := range m.infos {
		if o.Changed(info.Name) {
			t.Errorf("%s changed", info.Name)
		}
	}
}

func TestOverlayDescription(t *testing.T) {
	m, wide := base()
	dir := t.TempDir()
	o := NewOverlay(m)
	check(t, os.WriteFile(filepath.Join(dir, "m.f32"), putFloats(nil, wide), 0o600))
	check(t, o.ReplaceFile("matrix", filepath.Join(dir, "m.f32")))
	check(t, o.ScaleRows("matrix", factors(1, 37)))
	check(t, o.ScaleColumns("matrix", factors(2, 1001)))
	check(t, o.ReplaceValues("other", []float32{5, 6}))
	check(t, o.ScaleVector("vector", factors(3, 8)))
	b, err := o.Marshal()
	check(t, err)
	again, err := OpenOverlay(m, b, dir)
	check(t, err)
	if diff := cmp.Diff(o.Tensors(), again.Tensors()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, info := range m.infos {
		if !bytes.Equal(readAll(t, o, info.Name), readAll(t, again, info.Name)) {
			t.Errorf("%s: other bytes", info.Name)
		}
	}

	text := string(b)
	for name, bad := range map[string]string{
		"empty":        "",
		"truncated":    text[:len(text)-3],
		"space":        text + " ",
		"unknown key":  strings.Replace(text, `{"version":1`, `{"version":1,"more":2`, 1),
		"key twice":    strings.Replace(text, `{"version":1`, `{"version":1,"version":1`, 1),
		"upper case":   strings.Replace(text, `"version"`, `"Version"`, 1),
		"other name":   strings.Replace(text, `"other"`, `"another"`, 1),
		"other shape":  strings.Replace(text, `[37,1001]`, `[1001,37]`, 1),
		"path":         strings.Replace(text, `m.f32`, `../m.f32`, 1),
		"parent":       strings.Replace(text, `m.f32`, `..`, 1),
		"no such file": strings.Replace(text, `m.f32`, `n.f32`, 1),
		"two contents": strings.Replace(text, `"file":`, `"values":"AACAPw==","file":`, 1),
		"bytes":        strings.Replace(text, `"values":"`, `"values":"AACA`, 1),
		"no change":    `{"version":1,"tensors":[{"name":"other","shape":[2]}]}`,
		"not finite":   `{"version":1,"tensors":[{"name":"other","shape":[2],"columns":"AACAfwAAgH8="}]}`,
		"not sorted":   `{"version":1,"tensors":[{"name":"vector","shape":[8],"columns":""},{"name":"other","shape":[2],"columns":"AACAPwAAgD8="}]}`,
	} {
		if _, err := OpenOverlay(m, []byte(bad), dir); !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenOverlay(m, []byte(strings.Replace(text, `"version":1`, `"version":2`, 1)), dir); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("version 2: %v", err)
	}
	empty, err := NewOverlay(m).Marshal()
	check(t, err)
	if _, err := OpenOverlay(m, empty, dir); err != nil {
		t.Errorf("empty: %v", err)
	}
}
