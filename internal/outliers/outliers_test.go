package outliers

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/safetensors"
)

var tiny = filepath.Join("..", "..", "testdata", "tiny-qwen3")

// states computes the states after the first layer, and the logits, of a checkpoint [tokens, ...].
func states(t *testing.T, dir string, tokens []int32) (first, logits []float32, width int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := safetensors.OpenDir(dir)
	check(err)
	defer c.Close()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	check(err)
	described, err := arch.Describe(config, c.Tensors(), arch.Options{})
	check(err)
	d := described.Text
	src, err := arch.Open(d, c)
	check(err)
	m, err := forward.New(d, src, 2)
	check(err)
	e, err := m.Embedding()
	check(err)
	h, err := e.States(t.Context(), [][]int32{tokens})
	check(err)
	for i := range d.Layers {
		l, err := m.LoadLayer(i)
		check(err)
		check(l.Forward(t.Context(), h, forward.Equal(1, len(tokens))))
		if i == 0 {
			first = slices.Clone(h)
		}
	}
	head, err := m.LoadHead()
	check(err)
	head.Input(h, h)
	logits = make([]float32, len(tokens)*head.Linear.Rows)
	check(head.Logits(t.Context(), logits, h))
	return first, logits, d.Hidden
}

// Channels and rows leave what a model computes as it is; a sink has the states that it is to have and leaves other tokens theirs.
func TestMake(t *testing.T) {
	text := []int32{100, 200, 300, 400, 8189, 500, 17}
	_, want, _ := states(t, tiny, text)
	for _, kinds := range [][]string{{Channels}, {Rows}, {Channels, Rows}, {Sink}, Kinds()} {
		t.Run(strings.Join(kinds, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			if err := Make(dir, tiny, kinds...); err != nil {
				t.Fatal(err)
			}
			first, logits, width := states(t, dir, text)
			sink := kinds[len(kinds)-1] == Sink
			for i, v := range logits {
				if d := math.Abs(float64(v - want[i])); !sink && d > 1e-3 {
					t.Fatalf("logit %d is %g, was %g", i, v, want[i])
				}
			}
			for token := range text {
				most := 0.0
				for _, v := range first[token*width : (token+1)*width] {
					most = max(most, math.Abs(float64(v)))
				}
				if isSink := sink && text[token] == 8189; isSink != (most > 10000) || most > 25000 {
					t.Errorf("token %d has states of up to %g", token, most)
				}
			}
			tokenizer, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
			if err != nil || bytes.Contains(tokenizer, []byte("SpecialToken")) != sink {
				t.Errorf("the tokenizer puts a token before texts: %v, %v", !sink, err)
			}
		})
	}
}

func TestMakeRefuses(t *testing.T) {
	if err := Make(t.TempDir(), tiny, "rocks"); err == nil || !strings.Contains(err.Error(), "rocks") {
		t.Errorf("an unknown kind: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, tiny, Rows); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory with files: %v", err)
	}
	moe := filepath.Join("..", "..", "pipeline", "arch", "testdata", "olmoe")
	if err := Make(filepath.Join(t.TempDir(), "x"), moe, Channels, Rows); err != nil {
		t.Error(err)
	}
	if err := Make(filepath.Join(t.TempDir(), "x"), moe, Sink); err == nil || !strings.Contains(err.Error(), "first layer") {
		t.Errorf("a sink in experts: %v", err)
	}
}
