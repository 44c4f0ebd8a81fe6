package depcheck

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/cli.md")

const (
	cliDoc = "docs/cli.md"
	marker = "<!-- generated -->\n"
)

// TestCLIDoc compares docs/cli.md with what the program prints for --help.
func TestCLIDoc(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("builds the program")
	case runtime.GOOS == "windows":
		t.Skip("help texts write environment variables in another way here")
	}
	bin := filepath.Join(t.TempDir(), "llmexport")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/llmexport")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got strings.Builder
	var describe func(words ...string)
	describe = func(words ...string) {
		out, err := exec.CommandContext(t.Context(), bin, append(words, "--help")...).Output()
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		var text strings.Builder
		for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		fmt.Fprintf(&got, "\n### %s\n\n```\n%s```\n", strings.Join(append([]string{"llmexport"}, words...), " "), text.String())
		for _, c := range commands(text.String()) {
			describe(append(words[:len(words):len(words)], c)...)
		}
	}
	describe()

	doc := string(read(t, cliDoc))
	prose, was, ok := strings.Cut(doc, marker)
	if !ok {
		t.Fatalf("%s has no line %q", cliDoc, strings.TrimSpace(marker))
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(cliDoc)), []byte(prose+marker+got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, got.String()); diff != "" {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", cliDoc, diff)
	}
	for _, c := range commands(got.String()) {
		if !strings.Contains(prose, "| `"+c+"` |") {
			t.Errorf("the table of %s does not have %s", cliDoc, c)
		}
	}
}

// commands are the names below COMMANDS: in a help text, without help itself.
func commands(help string) []string {
	_, list, _ := strings.Cut(help, "\nCOMMANDS:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "help," {
			names = append(names, f[0])
		}
	}
	return names
}

// TestRecipesDoc: docs/recipes.md has every key of the schema, and no other in its tables.
func TestRecipesDoc(t *testing.T) {
	b, err := recipes.Schema(stage.Defaults().BySection())
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
		Defs       map[string]json.RawMessage `json:"$defs"`
	}
	var top schema
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	var collect func(prefix string, raw json.RawMessage)
	collect = func(prefix string, raw json.RawMessage) {
		var s schema
		if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
			return
		}
		for key, child := range s.Properties {
			var c schema
			if json.Unmarshal(child, &c) == nil && len(c.Properties) > 0 {
				collect(prefix+key+".", child)
				continue
			}
			known[prefix+key] = true
		}
		collect(prefix, s.Items)
	}
	for key := range top.Properties {
		known[key] = true
	}
	for _, raw := range top.Defs {
		collect("", raw)
	}
	doc := string(read(t, "docs/recipes.md"))
	for key := range known {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("docs/recipes.md does not have `%s`", key)
		}
	}
	for line := range strings.Lines(doc) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			if key, _, _ := strings.Cut(rest, "`"); !known[key] {
				t.Errorf("docs/recipes.md has `%s`, the schema does not", key)
			}
		}
	}
}
