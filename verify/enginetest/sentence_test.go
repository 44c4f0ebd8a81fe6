//go:build engine

package enginetest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/sentence"
)

const (
	// maxVectorDistance bounds one minus the cosine between vectors of the engine and of transformers, maxScoreDifference the
	// difference of scores.
	maxVectorDistance  = 1e-6
	maxScoreDifference = 1e-5
	// maxRounded bounds what becomes of other sums of attention without a cache, which differ in the last bit and may change the
	// rounding of an activation.
	maxRounded = 1e-4
)

// sentenceGolden is what transformers computes of texts, or of documents for a query.
type sentenceGolden struct {
	Texts     []string    `json:"texts"`
	Vectors   [][]float32 `json:"vectors"`
	Query     string      `json:"query"`
	Instruct  string      `json:"instruct"`
	Documents []string    `json:"documents"`
	Scores    []float32   `json:"scores"`
}

// TestSentences: the classes Embedding and Reranker of every engine compute of packages at 16 bits what transformers computes, and of
// quantized ones what our runtime computes, bit by bit with int8 activations.
func TestSentences(t *testing.T) {
	t.Parallel()
	all := engines(t)
	dirs, err := filepath.Glob(filepath.Join("..", "..", "testdata", "sentence", "*", "golden.json"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no checkpoints", err)
	}
	cache := t.TempDir()
	for _, path := range dirs {
		from := filepath.Dir(path)
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			var g sentenceGolden
			b, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(b, &g)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range []string{"3.5", "3.6"} {
				whole := exportAs(t, cache, from, "target: {engine: \""+target+"\"}\nquantize: {bits: 16}\nverify: {enabled: false}")
				coded := exportAs(t, cache, from, "target: {engine: \""+target+"\"}\nquantize: {bits: 8, block: row}\nverify: {enabled: false}")
				for _, e := range runs(all, form{engine: target}) {
					checkSentences(t, e, whole, g)
					sameSentences(t, e, coded, g)
				}
			}
		})
	}
}

// compute returns what an engine computes: a vector of each text, or the scores of the documents, twice.
func compute(t *testing.T, e *engine, dir string, config map[string]any, g sentenceGolden) [][]float32 {
	t.Helper()
	j := job{Package: dir, Config: config, Embed: g.Texts, Query: g.Query, Instruct: g.Instruct, Documents: g.Documents}
	if g.Texts == nil {
		j.Reranker = "gte"
		if g.Instruct != "" {
			j.Reranker = "qwen3"
		}
	}
	a, err := e.do(j)
	if err != nil {
		t.Fatal(err)
	}
	return a.Vectors
}

// checkSentences compares an engine with transformers.
func checkSentences(t *testing.T, e *engine, dir string, g sentenceGolden) {
	t.Helper()
	got := compute(t, e, dir, nil, g)
	worst := 0.0
	for i := range g.Texts {
		d := cosineDistance(got[i], g.Vectors[i])
		if worst = max(worst, d); !(d <= maxVectorDistance) {
			t.Errorf("engine %s, text %d: 1 - cosine %.3g", e.version, i, d)
		}
	}
	for _, scores := range got[len(g.Texts):] {
		for i, s := range g.Scores {
			d := math.Abs(float64(scores[i]) - float64(s))
			if worst = max(worst, d); !(d <= maxScoreDifference) {
				t.Errorf("engine %s, document %d: score %g, want %g", e.version, i, scores[i], s)
			}
		}
	}
	t.Logf("engine %s: %.2g", e.version, worst)
}

// sameSentences compares an engine with our runtime on int8 activations. Of several documents at once only single ones are compared.
func sameSentences(t *testing.T, e *engine, dir string, g sentenceGolden) {
	t.Helper()
	got := compute(t, e, dir, map[string]any{"memory": "low"}, g)
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{
		Mode: backend.Int8, DynamicOption: p.Config.DynamicOption, RepackLowBits: e.version < "3.6", Threads: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sentence.Open(p, g.Texts == nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range g.Texts {
		v, _, err := m.Embed(t.Context(), s, text)
		if err != nil {
			t.Fatal(err)
		}
		if p.Config.ModelType != "qwen3" {
			sameBits(t, e.version+" "+text, got[i], v)
		} else if d := cosineDistance(got[i], v); !(d <= maxRounded) {
			t.Errorf("engine %s, text %d: 1 - cosine %.3g from ours", e.version, i, d)
		}
	}
	var scores []float32
	for _, d := range g.Documents {
		s.Reset()
		v, _, err := m.Score(t.Context(), s, sentence.Query{Instruct: g.Instruct, Text: g.Query}, d)
		if err != nil {
			t.Fatal(err)
		}
		scores = append(scores, v)
	}
	for i := range scores {
		if one := got[len(got)-1][i]; !(math.Abs(float64(one)-float64(scores[i])) <= maxScoreDifference) {
			t.Errorf("engine %s, document %d: score %g, ours %g", e.version, i, one, scores[i])
		}
	}
}

// cosineDistance is one minus the cosine between two vectors; NaN if their sizes differ.
func cosineDistance(a, b []float32) float64 {
	var ab, aa, bb float64
	if len(a) != len(b) {
		return math.NaN()
	}
	for i, x := range a {
		ab, aa, bb = ab+float64(x)*float64(b[i]), aa+float64(x)*float64(x), bb+float64(b[i])*float64(b[i])
	}
	return 1 - ab/math.Sqrt(aa*bb)
}
