package depcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

const (
	tokenizersDoc = "docs/internals/tokenizers.md"
	// tokenizersData is written by verify/tokenizerstest.
	tokenizersData = "docs/internals/tokenizers.json"
)

// comparison is one cell of the table: a refusal, or differences.
type comparison struct {
	Refused string                  `json:"refused"`
	Plain   parity.Count            `json:"plain"`
	Hard    parity.Count            `json:"hard"`
	Invalid parity.Count            `json:"invalid"`
	Groups  map[string]parity.Count `json:"groups"`
}

// TestTokenizersDoc compares the tables of docs/internals/tokenizers.md with docs/internals/tokenizers.json and the corpus.
func TestTokenizersDoc(t *testing.T) {
	var data struct {
		Library    string `json:"library"`
		Corpus     string `json:"corpus"`
		Tokenizers map[string]*struct {
			Source  string                `json:"source"`
			Library comparison            `json:"library"`
			Engine  comparison            `json:"engine"`
			Stock   map[string]comparison `json:"stock"`
		} `json:"tokenizers"`
	}
	if err := json.Unmarshal(read(t, tokenizersData), &data); err != nil {
		t.Fatal(err)
	}
	if data.Corpus != parity.SHA256 {
		t.Errorf("%s is of corpus %s, the corpus is %s: run make tokenizers-doc", tokenizersData, data.Corpus, parity.SHA256)
	}
	var releases []string
	for _, p := range data.Tokenizers {
		for r := range p.Stock {
			if !slices.Contains(releases, r) {
				releases = append(releases, r)
			}
		}
	}
	slices.Sort(releases)

	notes := map[string]int{}
	note := func(text string) string {
		if notes[text] == 0 {
			notes[text] = len(notes) + 1
		}
		return fmt.Sprintf("no [%d]", notes[text])
	}
	cells := func(c *comparison) string {
		switch {
		case c == nil || c.Refused == "" && c.Plain.Strings == 0:
			return "| |"
		case c.Refused == "not loaded":
			return "- | - |"
		case c.Refused != "":
			return note(c.Refused) + " | |"
		}
		return fmt.Sprintf("%d | %d |", c.Plain.Different, c.Hard.Different)
	}
	invalid := func(c *comparison) string {
		if c.Refused != "" {
			return " |"
		}
		return fmt.Sprintf(" %d |", c.Invalid.Different)
	}
	var b, groups, late strings.Builder
	taken := takenByEngines()
	fmt.Fprintf(&b, "\nLibrary: `tokenizers` %s. %s\n\n", data.Library, halves())
	b.WriteString("| tokenizer | library / ours: plain | hard | ours / engine: plain | hard | not UTF-8 |")
	for _, r := range releases {
		fmt.Fprintf(&b, " engine / %s: plain | hard |", r)
	}
	b.WriteString(" source |\n| --- |" + strings.Repeat(" ---: |", 5+2*len(releases)) + " --- |\n")
	for _, name := range slices.Sorted(maps.Keys(data.Tokenizers)) {
		p := data.Tokenizers[name]
		fmt.Fprintf(&b, "| %s | %s %s%s", name, cells(&p.Library), cells(&p.Engine), invalid(&p.Engine))
		all := map[string]*comparison{"library / ours": &p.Library, "ours / engine": &p.Engine}
		for _, r := range releases {
			var c *comparison
			if s, ok := p.Stock[r]; ok {
				c = &s
				all["engine / "+r] = c
				if n := taken - c.Plain.Strings - c.Hard.Strings; n > 0 {
					fmt.Fprintf(&late, "- %s, engine / %s: %d\n", name, r, n)
				}
			}
			b.WriteString(" " + cells(c))
		}
		fmt.Fprintf(&b, " %s |\n", p.Source)
		for _, what := range slices.Sorted(maps.Keys(all)) {
			var list []string
			for _, g := range slices.Sorted(maps.Keys(all[what].Groups)) {
				list = append(list, fmt.Sprintf("%s %d", g, all[what].Groups[g].Different))
			}
			if len(list) > 0 {
				fmt.Fprintf(&groups, "- %s, %s: %s\n", name, what, strings.Join(list, ", "))
			}
		}
	}
	if len(notes) > 0 {
		b.WriteString("\nRefused:\n\n")
		for _, n := range slices.SortedFunc(maps.Keys(notes), func(x, y string) int { return notes[x] - notes[y] }) {
			fmt.Fprintf(&b, "%d. %s\n", notes[n], n)
		}
	}
	if late.Len() > 0 {
		b.WriteString("\nThe longest strings, to which an engine did not come in time:\n\n" + late.String())
	}
	if groups.Len() > 0 {
		b.WriteString("\nDifferences by class:\n\n" + groups.String())
	}
	b.WriteString("\nStrings by class:\n\n" + classes())

	prose, was, ok := strings.Cut(string(read(t, tokenizersDoc)), marker)
	if !ok {
		t.Fatalf("%s has no line %q", tokenizersDoc, strings.TrimSpace(marker))
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(tokenizersDoc)), []byte(prose+marker+b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, b.String()); diff != "" {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", tokenizersDoc, diff)
	}
}

func halves() string {
	none := func(string) []int32 { return nil }
	r := parity.Compare(none, none, parity.Corpus(), 1)
	return fmt.Sprintf("Corpus: %d plain and %d hard strings, and %d that are not UTF-8; SHA-256 of the lines %s.", r.Plain.Strings,
		r.Hard.Strings, r.Invalid.Strings, parity.SHA256[:16])
}

// takenByEngines is how many strings the Python binding of the engine takes: UTF-8 without U+0000.
func takenByEngines() int {
	n := 0
	for _, s := range parity.Corpus() {
		if utf8.ValidString(s.Text) && !strings.ContainsRune(s.Text, 0) {
			n++
		}
	}
	return n
}

// classes lists how many strings of every group the corpus has.
func classes() string {
	counts := map[string][2]int{}
	for _, s := range parity.Corpus() {
		n := counts[s.Group()]
		if s.Hard {
			n[1]++
		} else {
			n[0]++
		}
		counts[s.Group()] = n
	}
	var b strings.Builder
	b.WriteString("| class | plain | hard |\n| --- | ---: | ---: |\n")
	for _, g := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", g, counts[g][0], counts[g][1])
	}
	return b.String()
}
