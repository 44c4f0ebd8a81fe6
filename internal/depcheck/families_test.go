package depcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

const (
	familiesDoc  = "docs/families.md"
	familiesData = "docs/families.json"
	// measuredData is written by the tests of the engine: KL(transformers || engine) by checkpoint and engine.
	measuredData = "docs/measured.json"
	checkpoints  = "pipeline/arch/testdata"
)

// family is a line of families.json.
type family struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	// Texts are the model types of the text models that a multimodal model can have.
	Texts []string `json:"texts,omitempty"`
	// KL is the largest divergence of the engine from transformers, in nats, by engine.
	KL map[string]float64 `json:"kl,omitempty"`
	// Unmeasured says that there is a small checkpoint of it that no engine has run: KL is what the others gave.
	Unmeasured bool `json:"unmeasured,omitempty"`
	// Conditions are those of the small checkpoints; numbers in them are theirs.
	Conditions []string       `json:"conditions,omitempty"`
	Recipes    []familyRecipe `json:"recipes,omitempty"`
}

type familyRecipe struct {
	Name string `json:"name"`
	Repo string `json:"repo"`
}

// TestFamiliesDoc compares docs/families.json and docs/families.md with the table of families, the shipped recipes, the small
// checkpoints, and what was measured on the engine.
func TestFamiliesDoc(t *testing.T) {
	list := families(t, measuredKL(t))
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, '\n')
	prose, was, ok := strings.Cut(string(read(t, familiesDoc)), marker)
	if !ok {
		t.Fatalf("%s has no line %q", familiesDoc, strings.TrimSpace(marker))
	}
	table := familyTable(list)
	if *update {
		for name, text := range map[string]string{familiesData: string(data), familiesDoc: prose + marker + table} {
			if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if !bytes.Equal(read(t, familiesData), data) {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", familiesData, cmp.Diff(string(read(t, familiesData)), string(data)))
	}
	if diff := cmp.Diff(was, table); diff != "" {
		t.Errorf("%s is old; run go test ./internal/depcheck -update (-doc +program):\n%s", familiesDoc, diff)
	}
}

// TestUnmeasured: a checkpoint that no engine has run yet makes its family unmeasured, which is no failure. A family of which
// nothing is measured waits for make engine-families to write it into the documents.
func TestUnmeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	measured := measuredKL(t)
	delete(measured, "phi3-longrope")
	list := families(t, measured)
	if i := slices.IndexFunc(list, func(f *family) bool { return f.ModelType == "phi3" }); !list[i].Unmeasured {
		t.Error("phi3 is measured")
	}
	if table := familyTable(list); !strings.Contains(table, "\n| `phi3` | Phi3ForCausalLM | unmeasured | ") {
		t.Error(table)
	}
	delete(measured, "seed_oss")
	if slices.ContainsFunc(families(t, measured), func(f *family) bool { return f.ModelType == "seed_oss" }) {
		t.Error("seed_oss is documented, and nothing of it is measured")
	}
}

// measuredKL reads what the tests of the engine wrote.
func measuredKL(t *testing.T) map[string]map[string]float64 {
	t.Helper()
	var measured map[string]map[string]float64
	if err := json.Unmarshal(read(t, measuredData), &measured); err != nil {
		t.Fatal(err)
	}
	return measured
}

// families is the table of families.json, with what was measured of their checkpoints. Families with checkpoints of which none
// was measured are left out; the program lists them as unmeasured.
func families(t *testing.T, measured map[string]map[string]float64) []*family {
	t.Helper()
	var list []*family
	of := map[string]*family{}
	for _, k := range arch.Table() {
		f := &family{ModelType: k.ModelType, Architectures: k.Architectures, Texts: k.Texts}
		list, of[k.ModelType] = append(list, f), f
	}
	for _, name := range recipes.Shipped() {
		b, err := recipes.ReadShipped(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := recipes.Load(b, ".", stage.Sections())
		if err != nil {
			t.Fatal(err)
		}
		if r.Model.Repo == "" {
			continue
		}
		f := of[r.Model.Type]
		if f == nil && slices.ContainsFunc(arch.Encoders(), func(k arch.Known) bool { return k.ModelType == r.Model.Type }) {
			continue // docs/embeddings.md is of them
		}
		if f == nil {
			t.Errorf("recipe %s is for model_type %q, which no family describes", name, r.Model.Type)
			continue
		}
		f.Recipes = append(f.Recipes, familyRecipe{name, r.Model.Repo})
	}
	dirs, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(checkpoints), "*", "golden.safetensors"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no checkpoints: %v", err)
	}
	for _, d := range dirs {
		dir := filepath.Dir(d)
		src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		m, err := lower.Lower(src.Model, lower.Options{})
		src.Close()
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		f := of[src.Decoder.ModelType]
		for _, c := range m.Conditions {
			if !slices.Contains(f.Conditions, c) {
				f.Conditions = append(f.Conditions, c)
			}
		}
		kl := measured[filepath.Base(dir)]
		if kl == nil { // a new family, before make engine-families
			f.Unmeasured = true
			continue
		}
		if f.KL == nil {
			f.KL = map[string]float64{}
		}
		for e, v := range kl {
			f.KL[e] = max(f.KL[e], v)
		}
	}
	return slices.DeleteFunc(list, func(f *family) bool { return f.Unmeasured && f.KL == nil })
}

func familyTable(list []*family) string {
	var engines []string
	for _, f := range list {
		for e := range f.KL {
			if !slices.Contains(engines, e) {
				engines = append(engines, e)
			}
		}
	}
	slices.Sort(engines)
	var b strings.Builder
	fmt.Fprintf(&b, "\n| `model_type` | architectures | KL on %s | recipes | conditions |\n| --- | --- | --- | --- | --- |\n", strings.Join(engines, " / "))
	notes := map[string]int{}
	for _, f := range list {
		kl := "not measured"
		var cells []string
		for _, e := range engines {
			if v, ok := f.KL[e]; ok {
				cells = append(cells, fmt.Sprintf("%.1g", v))
			} else if len(f.KL) > 0 {
				cells = append(cells, "no")
			}
		}
		switch {
		case len(f.Texts) > 0:
			kl = "text part: `" + strings.Join(f.Texts, "`, `") + "`"
		case f.Unmeasured:
			kl = "unmeasured"
		case len(cells) == 0:
		case len(slices.Compact(slices.Clone(cells))) == 1:
			kl = cells[0]
		default:
			kl = strings.Join(cells, " / ")
		}
		var list, marks []string
		for _, r := range f.Recipes {
			list = append(list, fmt.Sprintf("`%s` (%s)", r.Name, r.Repo))
		}
		for _, c := range f.Conditions {
			if notes[c] == 0 {
				notes[c] = len(notes) + 1
			}
			marks = append(marks, fmt.Sprint(notes[c]))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.ModelType, strings.Join(f.Architectures, ", "), kl, strings.Join(list, ", "), strings.Join(marks, ", "))
	}
	b.WriteString("\nConditions, with the numbers of the small checkpoints:\n\n")
	for _, c := range slices.SortedFunc(maps.Keys(notes), func(x, y string) int { return notes[x] - notes[y] }) {
		fmt.Fprintf(&b, "%d. %s\n", notes[c], c)
	}
	return b.String()
}
