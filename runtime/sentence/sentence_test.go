package sentence_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/sentence"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkpoints is the directory of the checkpoints, with what transformers computes of texts.
const checkpoints = "../../testdata/sentence"

// golden is a golden.json.
type golden struct {
	Texts     []string    `json:"texts"`
	Vectors   [][]float32 `json:"vectors"`
	Query     string      `json:"query"`
	Instruct  string      `json:"instruct"`
	Documents []string    `json:"documents"`
	Scores    []float64   `json:"scores"`
	IDs       [][]int32   `json:"ids"`
}

func readGolden(t testing.TB, dir string) (g golden) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil || len(g.IDs) < 5 || len(g.Vectors) != len(g.Texts) || len(g.Scores) != len(g.Documents) {
		t.Fatal(dir, err)
	}
	return g
}

// open opens a package with a session.
func open(t testing.TB, dir string, b backend.Backend) (*runtime.Package, *runtime.Session) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := runtime.NewSession(p, b, runtime.Options{Mode: backend.Float, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

const (
	// maxDistance is a thousand times what two float32 programs differ by, and a tenth of what the tanh form of GELU costs.
	maxDistance = 1e-10
	// maxScore is ten times the difference of two float32 programs.
	maxScore = 1e-5
)

// TestGoldens: packages at 16 bits give the ids and the vectors or scores that transformers gives, on both backends, in any order.
func TestGoldens(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(checkpoints, "*", "golden.json"))
	if err != nil || len(dirs) < 12 {
		t.Fatalf("%d checkpoints: %v", len(dirs), err)
	}
	for i, path := range dirs {
		if testing.Short() && i%4 > 0 {
			continue
		}
		from := filepath.Dir(path)
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			g := readGolden(t, from)
			engine := []string{"3.5", "3.6"}[i%2]
			dir, err := stagetest.Export(t.Context(), t.TempDir(), from, "target: {engine: \""+engine+"\"}\nquantize: {bits: 16}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []backend.Backend{cpu.Backend{}, generic.Backend{}} {
				p, s := open(t, dir, b)
				if len(g.Vectors) > 0 {
					checkVectors(t, p, s, g)
				} else {
					checkScores(t, p, s, g)
				}
			}
		})
	}
}

// checkVectors compares vectors with those of transformers.
func checkVectors(t *testing.T, p *runtime.Package, s *runtime.Session, g golden) {
	t.Helper()
	if p.Task() != runtime.Embed {
		t.Fatal(p.Task())
	}
	m, err := sentence.Open(p, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range append(slices.Collect(indices(len(g.Texts))), 0) { // the first once more, after others
		ids, err := m.Tokens(t.Context(), g.Texts[i])
		if err != nil || !slices.Equal(ids, g.IDs[i]) {
			t.Errorf("text %d: ids %v, %v, want %v", i, ids, err, g.IDs[i])
			continue
		}
		v, tokens, err := m.Embed(t.Context(), s, g.Texts[i])
		if err != nil || tokens != len(ids) {
			t.Fatal(tokens, err)
		}
		if d := distance(v, g.Vectors[i]); !(d <= maxDistance) {
			t.Errorf("text %d: 1 - cosine %.3g", i, d)
		}
	}
}

func indices(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func distance(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		ab, aa, bb = ab+float64(x)*float64(b[i]), aa+float64(x)*float64(x), bb+float64(b[i])*float64(b[i])
	}
	if len(a) != len(b) || math.Abs(aa-bb) > 1e-4*bb {
		return math.NaN()
	}
	return 1 - ab/math.Sqrt(aa*bb)
}

// checkScores compares scores with those of transformers.
func checkScores(t *testing.T, p *runtime.Package, s *runtime.Session, g golden) {
	t.Helper()
	m, err := sentence.Open(p, true)
	if err != nil {
		t.Fatal(err)
	}
	q := sentence.Query{Instruct: g.Instruct, Text: g.Query}
	for i, d := range g.Documents {
		ids, err := m.PairTokens(q, d)
		if p.Task() == runtime.Rerank && err == nil { // without the mark of the engine
			ids = slices.Delete(ids, 1, 2)
		}
		if err != nil || !slices.Equal(ids, g.IDs[i]) {
			t.Errorf("document %d: ids %v, %v, want %v", i, ids, err, g.IDs[i])
			continue
		}
		score, _, err := m.Score(t.Context(), s, q, d)
		if err != nil || !(math.Abs(float64(score)-g.Scores[i]) <= maxScore) {
			t.Errorf("document %d: score %g, %v, want %g", i, score, err, g.Scores[i])
		}
	}
}

// TestRefused: a package is opened for what it computes only, and texts that it cannot hold are refused.
func TestRefused(t *testing.T) {
	export := func(from string) *runtime.Package {
		dir, err := stagetest.Export(context.Background(), t.TempDir(), from, "quantize: {block: row}\nverify: {enabled: false}")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := open(t, dir, cpu.Backend{})
		return p
	}
	bert := export(filepath.Join(checkpoints, "bert-mean"))
	pairs := export(filepath.Join(checkpoints, "xlm-roberta-pairs"))
	text := export("../../testdata/tiny-qwen3")
	for _, c := range []struct {
		p      *runtime.Package
		rerank bool
		want   string
	}{
		{bert, true, "no reranker: its graph computes vectors of texts"},
		{pairs, false, "no embedding model: its graph computes scores of documents"},
		{text, false, "no embedding model: its graph computes logits"},
	} {
		if _, err := sentence.Open(c.p, c.rerank); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if _, err := sentence.Open(text, true); err != nil { // any qwen3 answers yes or no
		t.Error(err)
	}
	m, err := sentence.Open(bert, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Tokens(t.Context(), strings.Repeat("people ", 200))
	if long := (*sentence.LengthError)(nil); !errors.As(err, &long) || long.Most != 128 || long.Tokens < 200 {
		t.Error(err)
	}
	if r, err := sentence.Open(pairs, true); err != nil {
		t.Error(err)
	} else if _, err = r.PairTokens(sentence.Query{Text: "people"}, strings.Repeat("people ", 400)); !errors.As(err, new(*sentence.LengthError)) {
		t.Error(err)
	}
}
