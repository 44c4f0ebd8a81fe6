package depcheck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/template/conversations"
)

const (
	// templatesData is written by verify/enginetest; the page is that of the tokenizers.
	templatesData = "docs/internals/templates.json"
	// The rows stand between these lines.
	templatesBegin = "<!-- generated templates -->\n"
	templatesEnd   = "<!-- end of generated templates -->\n"
)

// TestTemplatesDoc compares the table of templates in docs/internals/tokenizers.md with docs/internals/templates.json.
func TestTemplatesDoc(t *testing.T) {
	type row struct {
		Name     string         `json:"name"`
		Texts    int            `json:"texts"`
		Equal    int            `json:"equal"`
		Refused  int            `json:"refused"`
		Alike    int            `json:"alike"`
		Package  string         `json:"package"`
		Why      string         `json:"why"`
		Emulated int            `json:"emulated"`
		Stock    map[string]int `json:"stock"`
	}
	var data struct {
		Conversations int            `json:"conversations"`
		Templates     map[string]row `json:"templates"`
	}
	if err := json.Unmarshal(read(t, templatesData), &data); err != nil {
		t.Fatal(err)
	}
	if n := len(conversations.All()); data.Conversations != n {
		t.Errorf("%s is of %d conversations, there are %d: run make templates-doc", templatesData, data.Conversations, n)
	}
	rows := slices.SortedFunc(maps.Values(data.Templates), func(a, b row) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name))
	})
	var releases []string
	as := map[string]int{}
	for _, r := range rows {
		as[r.Package]++
		for release := range r.Stock {
			if !slices.Contains(releases, release) {
				releases = append(releases, release)
			}
		}
	}
	slices.Sort(releases)
	var b, notes strings.Builder
	var counts []string
	for _, how := range slices.Sorted(maps.Keys(as)) {
		counts = append(counts, fmt.Sprintf("%d %s", as[how], how))
	}
	fmt.Fprintf(&b, "\n%d templates, %d conversations. In packages: %s.\n\n", len(rows), data.Conversations, strings.Join(counts, ", "))
	b.WriteString("| template | transformers: texts | refused | ours: texts | refused | in the package | engine, emulated |")
	for _, r := range releases {
		fmt.Fprintf(&b, " MNN %s |", r)
	}
	b.WriteString("\n| --- | ---: | ---: | ---: | ---: | --- | ---: |" + strings.Repeat(" ---: |", len(releases)) + "\n")
	noted := 0
	for _, r := range rows {
		how := r.Package
		if r.Why != "" {
			noted++
			how = fmt.Sprintf("%s [%d]", how, noted)
			why, _, _ := strings.Cut(r.Why, "; set rewrite.")
			fmt.Fprintf(&notes, "%d. %s\n", noted, why)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s |", r.Name, r.Texts, r.Refused, r.Equal, r.Alike, how)
		if r.Package == "refused" {
			b.WriteString(strings.Repeat(" |", 1+len(releases)) + "\n")
			continue
		}
		fmt.Fprintf(&b, " %d |", r.Emulated)
		for _, release := range releases {
			if n, ok := r.Stock[release]; ok {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	if noted > 0 {
		b.WriteString("\nRefused, where the recipe does not ask for a simplified one:\n\n" + notes.String())
	}
	b.WriteString("\n")

	before, rest, ok := strings.Cut(string(read(t, tokenizersDoc)), templatesBegin)
	was, after, ok2 := strings.Cut(rest, templatesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", tokenizersDoc, strings.TrimSpace(templatesBegin), strings.TrimSpace(templatesEnd))
	}
	if *update {
		text := before + templatesBegin + b.String() + templatesEnd + after
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(tokenizersDoc)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(was, b.String()); diff != "" {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", tokenizersDoc, diff)
	}
}
