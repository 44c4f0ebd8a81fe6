package quantized

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func gptqConfig(format string, bits, group int, sym bool) string {
	const config = `{"quant_method":"gptq","checkpoint_format":%q,"bits":%d,"group_size":%d,"sym":%t,"desc_act":false,"damp_percent":0.01}`
	return fmt.Sprintf(config, format, bits, group, sym)
}

func awqConfig(group int) string {
	return fmt.Sprintf(`{"quant_method":"awq","version":"gemm","bits":4,"group_size":%d,"zero_point":true,"modules_to_not_convert":null}`, group)
}

func compressedConfig(bits, group int, sym bool) string {
	strategy := fmt.Sprintf(`"strategy":"group","group_size":%d`, group)
	if group < 0 {
		strategy = `"strategy":"channel","group_size":null`
	}
	return fmt.Sprintf(`{"quant_method":"compressed-tensors","format":"pack-quantized","quantization_status":"compressed","ignore":["lm_head"],
		"config_groups":{"group_0":{"targets":["Linear"],"input_activations":null,"weights":{"num_bits":%d,"type":"int","symmetric":%t,%s}}}}`, bits, sym, strategy)
}

// withQuantization is a config.json.
func withQuantization(q string) []byte {
	return []byte(`{"model_type":"qwen3","hidden_size":64,"quantization_config":` + q + `}`)
}

// goldens are the files of testdata/golden, which golden.py wrote: packed by the programs that define the formats. The
// wanted spec, or what the refusal says.
var goldens = []struct {
	file, config, spec, refusal string
}{
	{"gptq-2-asym", gptqConfig("gptq", 2, 32, false), "w2-b32-asym", ""},
	{"gptq-3-asym", gptqConfig("gptq", 3, 32, false), "w3-b32-asym-s32", ""},
	{"gptq-4-asym", gptqConfig("gptq", 4, 32, false), "w4-b32-asym-s32", ""},
	{"gptq-8-asym", gptqConfig("gptq", 8, 32, false), "w8-b32-asym-s32", ""},
	{"gptq_v2-2-asym", gptqConfig("gptq_v2", 2, 32, false), "w2-b32-asym", ""},
	{"gptq_v2-3-asym", gptqConfig("gptq_v2", 3, 32, false), "w3-b32-asym-s32", ""},
	{"gptq_v2-4-asym", gptqConfig("gptq_v2", 4, 32, false), "w4-b32-asym-s32", ""},
	{"gptq_v2-8-asym", gptqConfig("gptq_v2", 8, 32, false), "w8-b32-asym-s32", ""},
	{"gptq-4-sym", gptqConfig("gptq", 4, 64, true), "w4-b64-sym", ""},
	{"gptq-4-row", gptqConfig("gptq", 4, -1, false), "w4-brow-asym-s32", ""},
	{"gptq-4-256", gptqConfig("gptq", 4, 256, true), "w4-b128-sym", ""},
	{"gptq-4-16", gptqConfig("gptq", 4, 16, true), "", "groups of 16 in 64 columns do not divide"},
	{"gptq-4-order", gptqConfig("gptq", 4, 32, false), "", "g_idx: groups of columns in the order of their activations"},
	{"awq-4", awqConfig(64), "w4-b64-asym-s32", ""},
	{"awq-4-row", awqConfig(-1), "w4-brow-asym-s32", ""},
	{"compressed-2-sym", compressedConfig(2, 32, true), "w2-b32-sym", ""},
	{"compressed-3-sym", compressedConfig(3, 32, true), "w3-b32-sym", ""},
	{"compressed-4-sym", compressedConfig(4, 32, true), "w4-b32-sym", ""},
	{"compressed-5-sym", compressedConfig(5, 32, true), "w5-b32-sym", ""},
	{"compressed-6-sym", compressedConfig(6, 32, true), "w6-b32-sym", ""},
	{"compressed-8-sym", compressedConfig(8, 32, true), "w8-b32-sym", ""},
	{"compressed-2-asym", compressedConfig(2, 32, false), "w2-b32-asym", ""},
	{"compressed-3-asym", compressedConfig(3, 32, false), "w3-b32-asym-s32", ""},
	{"compressed-4-asym", compressedConfig(4, 32, false), "w4-b32-asym-s32", ""},
	{"compressed-5-asym", compressedConfig(5, 32, false), "w5-b32-asym-s32", ""},
	{"compressed-6-asym", compressedConfig(6, 32, false), "w6-b32-asym-s32", ""},
	{"compressed-8-asym", compressedConfig(8, 32, false), "w8-b32-asym-s32", ""},
	{"compressed-4-row", compressedConfig(4, -1, true), "w4-brow-sym", ""},
	{"compressed-4-f32", compressedConfig(4, 32, true), "w4-b32-sym-s32", ""},
	{"compressed-4-f32-asym", compressedConfig(4, 32, false), "", "is not a float32"},
	{"compressed-3-padded", compressedConfig(3, 32, false), "w3-b32-asym-s32", ""},
	{"compressed-6-padded", compressedConfig(6, 32, false), "w6-b32-asym-s32", ""},
}

// openGolden opens a file as a checkpoint.
func openGolden(t *testing.T, name string) *safetensors.Checkpoint {
	t.Helper()
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name+".safetensors"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.safetensors"), b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func readTensor(t *testing.T, src tensor.Source, name string) []byte {
	t.Helper()
	r, err := src.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(t *testing.T, b []byte) []float32 {
	t.Helper()
	v := make([]float32, len(b)/4)
	if err := kernel.ToF32(v, b, tensor.F32); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestGolden: codes and weights are those of the programs that define the formats, bit for bit, for any cut into rows.
func TestGolden(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil || len(files) != len(goldens) {
		t.Fatalf("%d files, %d cases, %v", len(files), len(goldens), err)
	}
	for _, g := range goldens {
		t.Run(g.file, func(t *testing.T) {
			base := openGolden(t, g.file)
			s, err := Open(withQuantization(g.config), base)
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"m.weight"}; !slices.Equal(s.Names(), want) {
				t.Fatalf("names %q", s.Names())
			}
			want := readTensor(t, base, "float")
			if got := readTensor(t, s, "m.weight"); string(got) != string(want) {
				t.Fatal("the float view differs")
			}
			spec, ok, err := s.Spec("m.weight")
			if g.refusal != "" {
				if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), g.refusal) || !strings.HasPrefix(err.Error(), "m.weight: ") {
					t.Fatalf("refused with %v", err)
				}
				return
			}
			if err != nil || !ok || spec.String() != g.spec {
				t.Fatalf("spec %v, want %s, %v", spec, g.spec, err)
			}
			rows, cols := s.linears["m.weight"].rows, s.linears["m.weight"].cols
			codes, weights := readTensor(t, base, "codes"), floats(t, want)
			for _, step := range []int{rows, 1, 3, 7} {
				for lo := 0; lo < rows; lo += step {
					hi := min(lo+step, rows)
					checkBlocks(t, s, spec, lo, hi, codes[lo*cols:hi*cols], weights[lo*cols:hi*cols])
				}
			}
		})
	}
}

// checkBlocks compares rows lo to hi-1 with their codes and weights.
func checkBlocks(t *testing.T, s *Source, spec quant.Spec, lo, hi int, codes []uint8, weights []float32) {
	t.Helper()
	lay, err := spec.Layout(hi-lo, len(codes)/(hi-lo))
	if err != nil {
		t.Fatal(err)
	}
	b := quant.NewBlocks(lay, spec)
	if err := s.Blocks(b, "m.weight", lo, hi); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Codes, codes) {
		t.Fatalf("rows %d to %d: codes differ", lo, hi)
	}
	for i, want := range weights {
		k := i / lay.BlockCols
		scale, zero := b.Scale[k], float32(0)
		if !spec.Symmetric {
			zero = b.Zero[k]
		}
		if spec.Scale == tensor.F16 && (kernel.RoundF16(scale) != scale || kernel.RoundF16(zero) != zero) {
			t.Fatalf("%g and %g are not halves", scale, zero)
		}
		// Exact in float64, so that the grid is compared in real arithmetic. Only products with float32 scales round.
		got := float64(float64(scale)*float64(int(codes[i])-1<<(spec.Bits-1))) + float64(zero)
		if float32(got) != want || (got != float64(want) && zero != 0) {
			t.Fatalf("weight %d is %g, want %g", i, got, want)
		}
	}
}

// TestReadAt: any range of the float view has the same bytes.
func TestReadAt(t *testing.T) {
	base := openGolden(t, "gptq-3-asym")
	s, err := Open(withQuantization(gptqConfig("gptq", 3, 32, false)), base)
	if err != nil {
		t.Fatal(err)
	}
	want := readTensor(t, base, "float")
	for _, n := range []int{1, 2, 3, 4, 5, 255, 256, 257, 1000} {
		r, err := s.Open("m.weight")
		if err != nil {
			t.Fatal(err)
		}
		for off := 0; off < len(want); off += n {
			b := make([]byte, n)
			k, err := r.ReadAt(b, int64(off))
			if end := min(off+n, len(want)); string(b[:k]) != string(want[off:end]) || (k < n) != (err == io.EOF) {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, k, err)
			}
		}
	}
	if _, err := s.Open("m.qweight"); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("qweight opens: %v", err)
	}
	for _, i := range s.Tensors() {
		if i.Name == "m.weight" && (i.DType != tensor.F32 || i.Size != int64(len(want)) || i.Shape.String() != "[32 64]" || i.File != "model.safetensors") {
			t.Errorf("%+v", i)
		}
		if strings.Contains(i.Name, "qweight") {
			t.Errorf("%s is shown", i.Name)
		}
	}
}

// TestThreads: readers at the same time get the same numbers.
func TestThreads(t *testing.T) {
	base := openGolden(t, "awq-4")
	s, err := Open(withQuantization(awqConfig(64)), base)
	if err != nil {
		t.Fatal(err)
	}
	want := readTensor(t, base, "float")
	for _, threads := range []int{1, 2, 7} {
		got := make([]byte, len(want))
		r, err := s.Open("m.weight")
		if err != nil {
			t.Fatal(err)
		}
		kernel.Parallel(threads, len(want)/512, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				if _, err := r.ReadAt(got[i*512:(i+1)*512], int64(i*512)); err != nil && err != io.EOF {
					t.Error(err)
				}
			}
		})
		if string(got) != string(want) {
			t.Errorf("%d threads: differs", threads)
		}
	}
}

func TestPassThrough(t *testing.T) {
	base := openGolden(t, "awq-4")
	if s, err := Open([]byte(`{"hidden_size":64}`), base); s != nil || err != nil {
		t.Errorf("without quantization_config: %v, %v", s, err)
	}
	if s, err := Open([]byte(`{"quantization_config":null}`), base); s != nil || err != nil {
		t.Errorf("quantization_config null: %v, %v", s, err)
	}
	s, err := Open(withQuantization(awqConfig(64)), base)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(s.Config()), `{"hidden_size":64,"model_type":"qwen3"}`; got != want || s.Method() != "awq" {
		t.Errorf("config %s of %s", got, s.Method())
	}
	if string(readTensor(t, s, "codes")) != string(readTensor(t, base, "codes")) {
		t.Error("codes differ")
	}
	if sp, ok, err := s.Spec("codes"); ok || err != nil {
		t.Errorf("spec of a tensor that is not packed: %v, %v", sp, err)
	}
	if bits := math.Float32bits(zeroTerm(-1, 0)); bits != 0 {
		t.Errorf("zero term %x", bits)
	}
}
