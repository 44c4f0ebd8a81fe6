package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// preGolden is how the Python library cuts the texts of the corpus; see testdata/pre.py.
type preGolden struct {
	Patterns []struct {
		Pattern string
		Digests []string
	}
	Steps []struct {
		Name    string
		Step    json.RawMessage
		Digests []string
	}
}

func readPreGolden(t testing.TB) preGolden {
	t.Helper()
	var g preGolden
	tokenizertest.ReadJSON(t, "pre.json", &g)
	if len(g.Patterns) < 80 || len(g.Steps) < 80 {
		t.Fatalf("%d patterns and %d steps", len(g.Patterns), len(g.Steps))
	}
	return g
}

// comparePieces holds the pieces of every text against the digests of a hundred texts each.
func comparePieces(t *testing.T, p preTokenizer, digests []string) {
	t.Helper()
	texts := tokenizertest.Corpus(t)
	for i, want := range digests {
		var all []string
		for _, s := range texts[i*100 : min(i*100+100, len(texts))] {
			var pieces []string
			if s = lossy(s); s != "" {
				p.split(piece{text: s, head: 1}, func(p piece) { pieces = append(pieces, p.text) })
			}
			all = append(all, strings.Join(pieces, "\x01"))
		}
		if tokenizertest.Digest(strings.Join(all, "\x02")) != want {
			t.Errorf("texts %d to %d are not cut as in the library", i*100, i*100+99)
			return
		}
	}
}

// refusedPatterns are those of the golden file that Oniguruma takes and we do not.
var refusedPatterns = map[string]string{
	`\pL+\pM*`:                           "property without braces", // letters to Oniguruma 6.9.8
	`(\w)\1`:                             "back reference",
	`(?(1)a|b)`:                          "condition",
	`\g<0>`:                              "call of a group",
	`\p{Alnum}+|\p{Lowercase}|\p{Punct}`: "property",
}

func TestPatterns(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	scanned := 0
	defer func() {
		if scanned < len(regex.Scanners) {
			t.Errorf("%d of %d regex.Scanners are held to the library", scanned, len(regex.Scanners))
		}
	}()
	for _, g := range readPreGolden(t).Patterns {
		t.Run(g.Pattern, func(t *testing.T) {
			find, err := regex.Compile(g.Pattern)
			if what, ok := refusedPatterns[g.Pattern]; ok || g.Digests == nil {
				if err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("error %v, want %q", err, what)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			comparePieces(t, &splitStage{find: find, behavior: isolated}, g.Digests)
			if scan := regex.Scanners[g.Pattern]; scan != nil {
				scanned++
				comparePieces(t, &splitStage{scan: scan, behavior: isolated}, g.Digests)
			}
		})
	}
}

func TestPreTokenizers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, g := range readPreGolden(t).Steps {
		t.Run(g.Name, func(t *testing.T) {
			p, _, err := preTokenizers.read(g.Step, maxNesting)
			if err != nil {
				t.Fatal(err)
			}
			flat := preTokenizerSequence{p}.flat()
			for _, s := range flat {
				if b, ok := s.(*byteLevelStage); ok {
					b.spell = true
				}
			}
			comparePieces(t, flat, g.Digests)
		})
	}
}
