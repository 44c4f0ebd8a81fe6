package quantized

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a tensor.Source.
type memory []packed.Tensor

func (m memory) Tensors() []tensor.Info {
	var infos []tensor.Info
	for _, t := range m {
		t.Size = int64(len(t.Data))
		infos = append(infos, t.Info)
	}
	slices.SortFunc(infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

func (m memory) Open(name string) (*io.SectionReader, error) {
	for _, t := range m {
		if t.Name == name {
			return io.NewSectionReader(bytes.NewReader(t.Data), 0, int64(len(t.Data))), nil
		}
	}
	return nil, fs.ErrNotExist
}

// weights are made up: no two rows alike, one row constant, one all zero.
func weights(rows, cols int) []float32 {
	w := make([]float32, rows*cols)
	seed := uint32(1)
	for i := range w {
		seed = seed*1664525 + 1013904223
		w[i] = float32(int32(seed)>>8) * 0x1p-27
	}
	for c := range cols {
		w[c], w[cols+c] = 0, 0.25
	}
	return w
}

var packings = []packed.Options{
	{Format: packed.GPTQ, Bits: 4, Group: 128, Symmetric: true, Scale: tensor.F16},
	{Format: packed.GPTQ, Bits: 3, Group: 64, Scale: tensor.F16},
	{Format: packed.GPTQv2, Bits: 8, Group: -1, Scale: tensor.BF16},
	{Format: packed.GPTQv2, Bits: 2, Group: 32, Symmetric: true, Scale: tensor.F32},
	{Format: packed.AWQ, Bits: 4, Group: 128, Scale: tensor.F16},
	{Format: packed.Compressed, Bits: 4, Group: 128, Symmetric: true, Scale: tensor.BF16},
	{Format: packed.Compressed, Bits: 5, Group: 32, Scale: tensor.F16},
	{Format: packed.Compressed, Bits: 8, Group: -1, Symmetric: true, Scale: tensor.F32},
}

func (s *Source) all(t *testing.T, name string) (quant.Blocks, quant.Spec) {
	t.Helper()
	spec, ok, err := s.Spec(name)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	l := s.linears[name]
	lay, err := spec.Layout(l.rows, l.cols)
	if err != nil {
		t.Fatal(err)
	}
	b := quant.NewBlocks(lay, spec)
	if err := s.Blocks(b, name, 0, l.rows); err != nil {
		t.Fatal(err)
	}
	return b, spec
}

// TestTiles: a matrix of more than one tile reads the same in pieces of any size.
func TestTiles(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const rows, cols = 1096, 512 // two tiles and a bit
	w := weights(rows, cols)
	for _, o := range packings {
		t.Run(fmt.Sprintf("%s-%d", o.Format, o.Bits), func(t *testing.T) {
			m, err := o.Round(w, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(withQuantization(string(o.Config())), memory(o.Pack("m", m)))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := s.all(t, "m.weight")
			if !slices.Equal(b.Codes, m.Codes) {
				t.Fatal("codes differ")
			}
			want := make([]float32, rows*cols)
			for i := range want {
				g := i / (cols / m.Groups)
				want[i] = m.Scale[g] * float32(int(m.Codes[i])-m.Zeros[g])
			}
			raw := readTensor(t, s, "m.weight")
			if !slices.Equal(floats(t, raw), want) {
				t.Fatal("weights differ")
			}
			for _, threads := range []int{1, 2, 7} {
				got := make([]byte, len(raw))
				r, err := s.Open("m.weight")
				if err != nil {
					t.Fatal(err)
				}
				kernel.Parallel(threads, rows, func(lo, hi int) {
					if _, err := r.ReadAt(got[lo*cols*4:hi*cols*4], int64(lo*cols*4)); err != nil && err != io.EOF {
						t.Error(err)
					}
				})
				if !bytes.Equal(got, raw) {
					t.Errorf("%d threads: bytes differ", threads)
				}
			}
		})
	}
}

// TestEncoded: the bytes for a package are those of blocks, packed, whatever piece is read, also with wider scales.
func TestEncoded(t *testing.T) {
	const rows, cols = 40, 256
	for _, o := range packings {
		t.Run(fmt.Sprintf("%s-%d", o.Format, o.Bits), func(t *testing.T) {
			m, err := o.Round(weights(rows, cols), rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(withQuantization(string(o.Config())), memory(o.Pack("m", m)))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := s.all(t, "m.weight")
			for _, scale := range []tensor.DType{tensor.F16, tensor.F32} {
				specs, err := s.Specs(scale)
				if err != nil {
					t.Fatal(err)
				}
				spec := specs["m.weight"]
				if scale == tensor.F32 && spec.Scale != tensor.F32 {
					t.Errorf("spec %v", spec)
				}
				lay, err := spec.Layout(rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]byte, lay.Bytes())
				quant.Pack(want[:lay.Codes], b.Codes, spec.Bits)
				quant.PackAlpha(want[lay.Codes:], b, spec)
				r := s.Encoded(specs)("m.weight")
				for _, n := range []int{1, 17, 1000, len(want), len(want) + 1} {
					for off := 0; off < len(want); off += n {
						got := make([]byte, n)
						k, err := r.ReadAt(got, int64(off))
						if end := min(off+n, len(want)); !bytes.Equal(got[:k], want[off:end]) || (k < n) != (err == io.EOF) {
							t.Fatalf("%d bytes at %d: %d, %v", n, off, k, err)
						}
					}
				}
				if s.Encoded(specs)("other") != nil {
					t.Error("opens what is not packed")
				}
			}
		})
	}
}

// TestDigest holds the bits of views and blocks still, on every machine.
func TestDigest(t *testing.T) {
	const rows, cols = 64, 256
	h := sha256.New()
	for _, o := range packings {
		m, err := o.Round(weights(rows, cols), rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(withQuantization(string(o.Config())), memory(o.Pack("m", m)))
		if err != nil {
			t.Fatal(err)
		}
		b, spec := s.all(t, "m.weight")
		fmt.Fprint(h, spec, b)
		h.Write(readTensor(t, s, "m.weight"))
	}
	const want = "13ec9a06d6c0efd2fd8ebdc56da4f8a0a473a99b287de01ad6fd8e785e842ad0"
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// TestModel: a checkpoint of a trained model, packed, is described like the float one, and its weights are as near as
// the grid allows.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	src := filepath.Join("..", "..", "testdata", "tiny-qwen3")
	float, err := safetensors.OpenDir(src)
	if err != nil {
		t.Fatal(err)
	}
	defer float.Close()
	for _, o := range []packed.Options{packings[0], packings[2], packings[4], packings[5]} {
		t.Run(fmt.Sprintf("%s-%d", o.Format, o.Bits), func(t *testing.T) {
			dir := t.TempDir()
			if err := packed.Convert(dir, src, o); err != nil {
				t.Fatal(err)
			}
			c, err := safetensors.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(config, c)
			if err != nil {
				t.Fatal(err)
			}
			described, err := arch.Describe(s.Config(), s.Tensors(), arch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Names()) != 7*4 || described.Text.ModelType != "qwen3" {
				t.Errorf("%d matrices of %s", len(s.Names()), described.Text.ModelType)
			}
			const name = "model.layers.1.mlp.down_proj.weight"
			spec, _, err := s.Spec(name)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Bits != o.Bits || spec.Symmetric != o.Symmetric {
				t.Errorf("spec %v", spec)
			}
			l := s.linears[name]
			want := make([]float32, l.rows*l.cols)
			if err := kernel.ToF32(want, readTensor(t, float, name), tensor.BF16); err != nil {
				t.Fatal(err)
			}
			m, err := o.Round(want, l.rows, l.cols)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range floats(t, readTensor(t, s, name)) {
				g := i / (l.cols / m.Groups)
				// Half a step, the ends of the range by the rounding of scale and zero point, symmetric grids a whole step
				// where +2^(bits-1) is missing.
				if diff := max(v-want[i], want[i]-v); diff > 1.5*m.Scale[g] {
					t.Fatalf("weight %d is %g, was %g, step %g", i, v, want[i], m.Scale[g])
				}
			}
		})
	}
}

func BenchmarkSource(b *testing.B) {
	const rows, cols = 1024, 4096
	for _, o := range packings {
		m, err := o.Round(weights(rows, cols), rows, cols)
		if err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		if err := packed.Write(dir, o.Pack("m", m)); err != nil {
			b.Fatal(err)
		}
		c, err := safetensors.OpenDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		s, err := Open(withQuantization(string(o.Config())), c)
		if err != nil {
			b.Fatal(err)
		}
		spec, _, err := s.Spec("m.weight")
		if err != nil {
			b.Fatal(err)
		}
		const step = 64
		lay, err := spec.Layout(step, cols)
		if err != nil {
			b.Fatal(err)
		}
		blocks := quant.NewBlocks(lay, spec)
		b.Run(fmt.Sprintf("blocks/%s-%d", o.Format, o.Bits), func(b *testing.B) {
			b.SetBytes(rows * cols) // one a weight
			for b.Loop() {
				for lo := 0; lo < rows; lo += step {
					if err := s.Blocks(blocks, "m.weight", lo, lo+step); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("view/%s-%d", o.Format, o.Bits), func(b *testing.B) {
			b.SetBytes(rows * cols)
			buf := make([]byte, 4*step*cols)
			for b.Loop() {
				for lo := 0; lo < rows; lo += step {
					r, err := s.Open("m.weight")
					if err != nil {
						b.Fatal(err)
					}
					if _, err := r.ReadAt(buf, int64(4*lo*cols)); err != nil && err != io.EOF {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
