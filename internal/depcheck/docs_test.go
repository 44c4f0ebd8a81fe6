package depcheck

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs")

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
	var table, got strings.Builder
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
			all := append(words[:len(words):len(words)], c.name)
			if len(words) == 0 {
				fmt.Fprintf(&table, "| [`%s`](#llmexport-%[1]s) | %s |\n", c.name, c.usage)
			}
			describe(all...)
		}
	}
	describe()
	list := "\n| command | does |\n| --- | --- |\n" + table.String() + got.String()

	doc := string(read(t, cliDoc))
	prose, was, ok := strings.Cut(doc, marker)
	if !ok {
		t.Fatalf("%s has no line %q", cliDoc, strings.TrimSpace(marker))
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(cliDoc)), []byte(prose+marker+list), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, list); diff != "" {
		t.Errorf("%s is old; run go generate ./docs (-doc +program):\n%s", cliDoc, diff)
	}
}

// command is a line below COMMANDS: in a help text.
type command struct{ name, usage string }

// commands lists the commands of a help text, without help itself.
func commands(help string) []command {
	_, list, _ := strings.Cut(help, "\nCOMMANDS:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var found []command
	for line := range strings.Lines(list) {
		name, usage, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && name != "help," {
			found = append(found, command{name, strings.TrimSpace(usage)})
		}
	}
	return found
}

// schemaDoc is the schema that the first line of a recipe of init names for editors.
const schemaDoc = "docs/recipe.schema.json"

// TestSchemaDoc: the published schema is that of the program.
func TestSchemaDoc(t *testing.T) {
	want, err := recipes.Schema(stage.Defaults().BySection())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(schemaDoc)), want, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, schemaDoc)), string(want)); diff != "" {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", schemaDoc, diff)
	}
}

// recipesDoc describes recipes. TestRecipesDoc adds rows for new keys with -update.
const recipesDoc = "docs/recipes.md"

// recipeKey is what the schema of recipes says about a key.
type recipeKey struct{ section, standard, meaning string }

// recipeKeys lists the keys of a recipe; those of a section with their path in it.
func recipeKeys(t *testing.T) map[string]recipeKey {
	t.Helper()
	b, err := recipes.Schema(stage.Defaults().BySection())
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties  map[string]json.RawMessage `json:"properties"`
		Items       json.RawMessage            `json:"items"`
		Defs        map[string]json.RawMessage `json:"$defs"`
		Description string                     `json:"description"`
		Default     json.RawMessage            `json:"default"`
	}
	var top schema
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	known := map[string]recipeKey{}
	var collect func(section, prefix, meaning string, raw json.RawMessage)
	collect = func(section, prefix, meaning string, raw json.RawMessage) {
		var s schema
		if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
			return
		}
		for key, child := range s.Properties {
			var c schema
			if json.Unmarshal(child, &c) == nil && len(c.Properties) > 0 {
				collect(section, prefix+key+".", c.Description, child)
				continue
			}
			k := recipeKey{section: section, meaning: strings.TrimSpace(meaning + " " + c.Description)}
			if len(c.Default) > 0 {
				k.standard = "`" + string(c.Default) + "`"
			}
			known[prefix+key] = k
		}
		collect(section, prefix, meaning, s.Items)
	}
	for key := range top.Properties {
		known[key] = recipeKey{}
	}
	for section, raw := range top.Defs {
		collect(section, "", "", raw)
	}
	return known
}

// withRows returns the page with a row for every key that it lacks, at the end of the first table of the key's section, in the
// words of the schema.
func withRows(doc string, known map[string]recipeKey) string {
	for _, key := range slices.Sorted(maps.Keys(known)) {
		k := known[key]
		at := strings.Index(doc, "\n## "+k.section+"\n")
		if strings.Contains(doc, "`"+key+"`") || k.section == "" || at < 0 {
			continue
		}
		table := strings.Index(doc[at:], "\n| ")
		if table < 0 {
			continue
		}
		at += table
		at += strings.Index(doc[at:], "|\n\n") + len("|\n")
		doc = doc[:at] + fmt.Sprintf("| `%s` | %s | %s |\n", key, k.standard, k.meaning) + doc[at:]
	}
	return doc
}

// TestRecipesDoc: docs/recipes.md has every key of the schema, and no other in its tables.
func TestRecipesDoc(t *testing.T) {
	known, doc := recipeKeys(t), string(read(t, recipesDoc))
	if *update {
		doc = withRows(doc, known)
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(recipesDoc)), []byte(doc), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for key := range known {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("%s does not have `%s`; go test ./internal/depcheck -run TestRecipesDoc -update adds it", recipesDoc, key)
		}
	}
	for line := range strings.Lines(doc) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ := strings.Cut(rest, "`")
			if _, ok := known[key]; !ok {
				t.Errorf("%s has `%s`, the schema does not", recipesDoc, key)
			}
		}
	}
}

// A key without a row gets one in the first table of its section.
func TestWithRows(t *testing.T) {
	const before = "## kl\n\n| `a` | | first |\n\n## verify\n\n| `b` | | second |\n"
	const after = "\ntext\n\n| `c` | | third |\n"
	got := withRows(before+after, map[string]recipeKey{
		"a": {"kl", "", "first"}, "b": {"verify", "", "second"}, "kl.max": {"verify", "`0.5`", "Limit."}, "top": {}, "x": {"none", "", ""},
	})
	if diff := cmp.Diff(before+"| `kl.max` | `0.5` | Limit. |\n"+after, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
