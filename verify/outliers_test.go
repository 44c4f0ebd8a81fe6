package verify_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	madeoutliers "github.com/llmexport/llmexport/internal/outliers"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// outliers is a checkpoint that computes the same as qwen3-tied, with the outliers of real models: channels of the
// residual stream whose inputs are 32 times as large as the others', rows 512 times as large as others, activations
// above 10,000.
func outliers(t *testing.T) string {
	const (
		channel = 5 // factors are powers of two, so that nothing is rounded
		wide    = 9
	)
	heavy := func(i int) bool { return i%31 == 3 }
	at := func(hit bool, exponent int) int {
		if hit {
			return exponent
		}
		return 0
	}
	return editCheckpoint(t, families+"qwen3-tied", func(path func(string) string) {
		file := path("model.safetensors")
		for _, norm := range []string{".input_layernorm", ".post_attention_layernorm"} {
			scaleBF16At(t, file, norm, func(_, c int) int { return at(heavy(c), channel) })
		}
		for _, m := range []string{"q_proj", "k_proj", "gate_proj"} {
			scaleBF16At(t, file, m, func(_, c int) int { return at(heavy(c), -channel) })
		}
		scaleBF16At(t, file, "up_proj", func(r, c int) int { return at(heavy(c), -channel) + at(heavy(r), wide) })
		scaleBF16At(t, file, "down_proj", func(_, c int) int { return at(heavy(c), -wide) })
		// Two heads of keys and values, of 32 channels, and two of queries for each.
		scaleBF16At(t, file, "v_proj", func(r, c int) int { return at(heavy(c), -channel) + at(heavy(r), wide) })
		scaleBF16At(t, file, "o_proj", func(_, c int) int { return at(heavy(c/64*32+c%32), -wide) })
	})
}

// fits reads what the methods left in the cache of an export below dir; nil if none watched the model.
func fits(t *testing.T, dir string, base tensor.Source) *verify.Fits {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(dir, "cache", "codes-*"))
	if err != nil || len(entries) == 0 {
		return nil
	}
	finished, err := calibrate.OpenFinished(entries[0], filepath.Base(entries[0]))
	if err != nil {
		t.Fatal(err)
	}
	f := &verify.Fits{Reported: map[string]verify.Fit{}}
	if f.Floats, err = finished.Source(base); err != nil {
		t.Fatal(err)
	}
	for _, o := range finished.Ops {
		f.Reported[o.Tensor] = verify.Fit{Spec: o.Spec, Weights: o.WeightError, Outputs: o.OutputError}
	}
	return f
}

// Packages of all methods of a model with heavy outliers pass the check weights, and one wrong row or scale anywhere in them
// does not.
func TestOutlierWeights(t *testing.T) {
	t.Parallel()
	source := outliers(t)
	checkpoint := openSource(t, source, 1<<30)
	const calibration = "calibrate: {tokens: 1024, window: 64, probe: 64}\nverify: {enabled: false}"
	widths := map[string][]int{}
	for _, method := range []string{`"rtn"`, `"search"`, `"hqq"`, `"gptq"`, `["awq", "gptq"]`, `{"omniquant": {"steps": 5}}`} {
		widths[method] = []int{8, 4, 3}
	}
	for _, method := range []string{
		`{"search": {"importance": "weights"}}`, `{"search": {"importance": "mixed"}}`, `["awq", "rtn"]`, `{"omniquant": {"steps": 5, "let": false}}`,
		`["gptq", {"distill": {"steps": 2, "tokens": 128}}]`,
	} {
		widths[method] = []int{4}
	}
	if testing.Short() {
		widths = map[string][]int{`"rtn"`: {4}, `"gptq"`: {8}}
	}
	for method, widths := range widths {
		for _, bits := range widths {
			t.Run(fmt.Sprintf("%s at %d bits", method, bits), func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				dir, err := stagetest.Export(t.Context(), root, source, fmt.Sprintf("quantize: {method: %s, bits: %d, block: 32}\n%s", method, bits, calibration))
				if err != nil {
					t.Fatal(err)
				}
				methods := chain(t, method)
				check := func(e *edition, withFloats bool) verify.Finding {
					e.seal()
					s := open(t, e.dir, "")
					s.Source, s.Closeness = checkpoint, methods
					if s.Fits = fits(t, root, s.Source.Tensors); s.Fits != nil && !withFloats {
						s.Fits.Floats = nil
					}
					f, err := verify.CheckWeights(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					return f
				}
				for _, withFloats := range []bool{true, false} {
					if f := check(edit(t, dir), withFloats); !f.Passed {
						t.Errorf("the good package: %s", f.Detail)
					} else if withFloats {
						t.Log(f.Detail)
					} else if unknown := strings.Contains(f.Detail, "were rewritten before"); unknown != (methods.Floats != quant.Kept) {
						t.Errorf("without the rewritten weights: %s", f.Detail)
					}
				}
				matrices := []string{"layers.1.self_attn.o_proj", "layers.2.mlp.up_proj", "layers.0.mlp.down_proj"}
				for i, name := range slices.Sorted(maps.Keys(wrongRows)) {
					matrix := matrices[(i+bits)%len(matrices)]
					e := edit(t, dir)
					wrongRows[name](e, matrix)
					// The report of a package whose floats are the checkpoint's serves without the cache.
					if f := check(e, methods.Floats != quant.Kept); f.Passed || !strings.Contains(f.Detail, matrix) || strings.Contains(f.Detail, "corrupt") {
						t.Errorf("%s of %s: passed %v, %s", name, matrix, f.Passed, f.Detail)
					}
				}
			})
		}
	}
}

// A trained model with all kinds of outliers, among them a sink before every text, passes every check at 8, 4 and 3 bits when
// their scales are folded, and damage of single rows still shows.
func TestOutlierPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	source := filepath.Join(t.TempDir(), "outliers")
	if err := madeoutliers.Make(source, tiny, madeoutliers.Kinds()...); err != nil {
		t.Fatal(err)
	}
	checkpoint := openSource(t, source, 1<<30)
	for _, bits := range []int{8, 4, 3} {
		t.Run(fmt.Sprint(bits), func(t *testing.T) {
			root := t.TempDir()
			dir, err := stagetest.Export(t.Context(), root, source, fmt.Sprintf("quantize: {method: [awq, gptq], bits: %d}\n"+
				"calibrate: {tokens: 8192, window: 128, probe: 256}\nverify: {perplexity: {windows: 2, window: 128, decode: 32}}", bits))
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range slices.Sorted(maps.Keys(wrongRows)) {
				matrix := []string{"layers.1.self_attn.o_proj", "layers.2.mlp.up_proj", "layers.0.mlp.down_proj"}[(i+bits)%3]
				e := edit(t, dir)
				e.shape = [3]int{256, 256, 768}
				wrongRows[name](e, matrix)
				e.seal()
				s := open(t, e.dir, "")
				s.Source, s.Closeness = checkpoint, chain(t, `["awq", "gptq"]`)
				s.Fits = fits(t, root, s.Source.Tensors)
				f, err := verify.CheckWeights(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if f.Passed || !strings.Contains(f.Detail, matrix) {
					t.Errorf("%s of %s: passed %v, %s", name, matrix, f.Passed, f.Detail)
				}
			}
		})
	}
}

// chain is what methods of a recipe promise.
func chain(t *testing.T, text string) quant.Closeness {
	t.Helper()
	var m stage.Methods
	err := json.Unmarshal([]byte(text), &m)
	if err != nil {
		t.Fatal(err)
	}
	c, err := quant.NewChain(m)
	if err != nil {
		t.Fatal(err)
	}
	return c.Closeness()
}

// wrongRows break one row, or two, of a matrix of a package.
var wrongRows = map[string]func(e *edition, matrix string){
	"two rows swapped": func(e *edition, matrix string) {
		e.rows(matrix, func(codes, alpha func(r int) []byte) {
			swap(codes(4), codes(20))
			swap(alpha(4), alpha(20))
		})
	},
	"a zero row": func(e *edition, matrix string) {
		e.rows(matrix, func(_, alpha func(r int) []byte) { clear(alpha(7)) })
	},
	"two scales swapped": func(e *edition, matrix string) {
		e.rows(matrix, func(_, alpha func(r int) []byte) {
			a := alpha(11)
			swap(a[:len(a)/2], a[len(a)/2:len(a)/2*2])
		})
	},
	"a row of another layer": func(e *edition, matrix string) {
		var c, a []byte
		e.rows("layers.0"+matrix[len("layers.0"):], func(codes, alpha func(r int) []byte) {
			c, a = slices.Clone(codes(9)), slices.Clone(alpha(9))
		})
		if strings.HasPrefix(matrix, "layers.0") {
			e.rows("layers.1"+matrix[len("layers.0"):], func(codes, alpha func(r int) []byte) {
				c, a = slices.Clone(codes(9)), slices.Clone(alpha(9))
			})
		}
		e.rows(matrix, func(codes, alpha func(r int) []byte) {
			copy(codes(9), c)
			copy(alpha(9), a)
		})
	},
}

func swap(a, b []byte) {
	c := bytes.Clone(a)
	copy(a, b)
	copy(b, c)
}

// rows changes codes and scales of rows of a matrix.
func (e *edition) rows(matrix string, change func(codes, alpha func(r int) []byte)) {
	e.t.Helper()
	x := e.tensor(matrix)
	spec, err := quant.ParseSpec(x.Spec)
	if err != nil {
		e.t.Fatal(err)
	}
	shape := e.shape
	if shape == [3]int{} {
		shape = [3]int{64, 128, 160} // of qwen3-tied
	}
	rows, cols := shape[0], shape[0]
	switch {
	case strings.Contains(matrix, "o_proj"):
		cols = shape[1]
	case strings.Contains(matrix, "down_proj"):
		cols = shape[2]
	case strings.Contains(matrix, "up_proj"):
		rows = shape[2]
	}
	l, err := spec.Layout(rows, cols)
	if err != nil {
		e.t.Fatal(err)
	}
	e.span(matrix, func(b []byte) {
		head := int64(len(b)) - l.Codes - l.Alpha
		of := func(b []byte) func(r int) []byte {
			n := len(b) / rows
			return func(r int) []byte { return b[r*n : (r+1)*n] }
		}
		change(of(b[head:head+l.Codes]), of(b[head+l.Codes:]))
	})
}
