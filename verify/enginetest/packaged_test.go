//go:build engine

package enginetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/venv"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	emulation "github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// templatesFile has a row for every template; docs/internals/tokenizers.md shows it.
const templatesFile = "../../docs/internals/templates.json"

// templateRows is that file.
type templateRows struct {
	Conversations int                     `json:"conversations"`
	Templates     map[string]*templateRow `json:"templates"` // by the SHA-256 of the source
}

type templateRow struct {
	Name string `json:"name"`
	// Texts and Refused count conversations that transformers renders and refuses, Equal and Alike those of them of which
	// we make the same text, and which we refuse too.
	Texts   int `json:"texts"`
	Equal   int `json:"equal"`
	Refused int `json:"refused"`
	Alike   int `json:"alike"`
	// Package is how a package carries the template: "as it is", "rewritten", "simplified" where it would be refused
	// without the recipe asking for that, or "refused".
	Package string `json:"package"`
	Why     string `json:"why,omitempty"` // it is refused
	// Emulated counts conversations of which our emulation of the engine makes the text of transformers, Stock those of
	// which the releases do.
	Emulated int            `json:"emulated"`
	Stock    map[string]int `json:"stock"`
}

// TestPackagedTemplates has the engines render the templates that packages carry, and compares with what transformers
// makes of the templates of the models. LLMEXPORT_TEMPLATES names further folders of templates. With -update the
// counts become those of docs/internals/templates.json, otherwise they must be.
func TestPackagedTemplates(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pkg, err := stagetest.Export(t.Context(), t.TempDir(), filepath.Join(root, "testdata", "tiny-qwen3"), "quantize: {bits: 4}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := venv.Engines(root)
	if err != nil {
		t.Fatal(err)
	}
	workers := map[string]*templates{}
	for _, d := range dirs {
		workers[venv.Release(d)] = startTemplates(t, d, pkg)
	}
	golden := readRendered(t, root)
	now := &templateRows{Conversations: len(conversations.All()), Templates: map[string]*templateRow{}}
	folders := append([]string{filepath.Join(root, "runtime/template/testdata/templates")}, filepath.SplitList(os.Getenv("LLMEXPORT_TEMPLATES"))...)
	for _, folder := range folders {
		for _, source := range templatetest.Sources(t, folder) {
			sum := sha256.Sum256([]byte(source))
			key := hex.EncodeToString(sum[:])
			want, ok := golden.Templates[key]
			switch {
			case now.Templates[key] != nil:
			case !ok:
				t.Errorf("a template of %s has no goldens: run runtime/template/testdata/chats.py with it", folder)
			default:
				t.Run(want.Name, func(t *testing.T) { now.Templates[key] = measureTemplate(t, workers, want, source) })
			}
		}
	}
	old := &templateRows{}
	b, err := os.ReadFile(templatesFile)
	if err == nil {
		err = json.Unmarshal(b, old)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if old.Conversations == now.Conversations { // rows of other folders, and counts of other engines
		for key, row := range old.Templates {
			if have := now.Templates[key]; have == nil {
				now.Templates[key] = row
			} else {
				for release, n := range row.Stock {
					if _, ok := workers[release]; !ok {
						have.Stock[release] = n
					}
				}
			}
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(now); err != nil {
		t.Fatal(err)
	}
	if *update {
		if !t.Failed() {
			err = os.WriteFile(templatesFile, out.Bytes(), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(out.Bytes(), b) {
		t.Errorf("%s is old: run make templates-doc", templatesFile)
	}
}

// rendered is what transformers made of templates; runtime/template/testdata/chats.json holds it.
type rendered struct {
	Now       string                     `json:"now"`
	BOS       string                     `json:"bos_token"`
	EOS       string                     `json:"eos_token"`
	Templates map[string]*renderedSource `json:"templates"`
}

type renderedSource struct {
	Name  string            `json:"name"`
	Texts map[string]string `json:"texts"` // the beginning of a digest, or an error
}

func readRendered(t *testing.T, root string) (r rendered) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "runtime/template/testdata/chats.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.BOS != templatetest.BOS || r.EOS != templatetest.EOS {
		t.Fatal("chats.json is of other tokens")
	}
	return r
}

// measureTemplate makes a row. What a package would carry must be right everywhere.
func measureTemplate(t *testing.T, workers map[string]*templates, want *renderedSource, text string) *templateRow {
	row := &templateRow{Name: strings.TrimSuffix(want.Name, ".jinja"), Package: "as it is", Stock: map[string]int{}}
	tmpl, err := template.Parse(want.Name, text)
	if err != nil {
		t.Fatal(err)
	}
	recorded := time.Date(2026, 3, 5, 7, 8, 9, 12_345_000, time.UTC) // the goldens' now
	for _, c := range conversations.All() {
		text, err := c.Render(conversations.With(t.Context(), tmpl, templatetest.BOS, templatetest.EOS, template.Limits{Now: recorded}))
		refusal := strings.Contains(want.Texts[c.Name], ": ")
		sum := sha256.Sum256([]byte(text))
		switch {
		case refusal:
			row.Refused++
			if err != nil {
				row.Alike++
			}
		default:
			row.Texts++
			if err == nil && hex.EncodeToString(sum[:8]) == want.Texts[c.Name] {
				row.Equal++
			}
		}
	}
	// Once for a tokenizer that puts nothing before a prompt, and once for one that puts bos there.
	for _, prefix := range []string{templatetest.BOS, ""} {
		f := &source.Facts{ChatTemplate: text, BOS: templatetest.BOS, EOS: templatetest.EOS}
		err := f.PackTemplate(t.Context(), false, prefix)
		simplified := errors.Is(err, tensor.ErrUnsupported)
		if simplified {
			row.Package, row.Why = "simplified", err.Error()
			err = f.PackTemplate(t.Context(), true, prefix)
		}
		if errors.Is(err, tensor.ErrUnsupported) {
			row.Package = "refused"
			return row
		}
		if err != nil {
			t.Fatal(err)
		}
		if !simplified && !strings.HasSuffix(f.PackagedTemplate, text) {
			row.Package = "rewritten"
		}
		found, err := verify.CompareTemplates(t.Context(), verify.ChatTemplates{
			Source: text, Packaged: f.PackagedTemplate, BOS: templatetest.BOS, EOS: templatetest.EOS, Prefix: prefix,
		}, conversations.All())
		if err != nil {
			t.Fatal(err)
		}
		row.Emulated = found.Equal
		for _, release := range slices.Sorted(maps.Keys(workers)) {
			row.Stock[release] = renderStock(t, workers[release], release, tmpl, f.PackagedTemplate, prefix)
			if row.Stock[release] != row.Emulated {
				t.Errorf("release %s renders %d conversations right, the emulation %d", release, row.Stock[release], row.Emulated)
			}
		}
		if !simplified && row.Emulated != row.Texts {
			t.Errorf("prefix %q: %d of %d texts are equal", prefix, row.Emulated, row.Texts)
		}
	}
	return row
}

// renderStock counts conversations of which a release makes of a packaged template what transformers makes of the source's.
func renderStock(t *testing.T, w *templates, release string, source *template.Template, packaged, prefix string) (equal int) {
	t.Helper()
	for _, c := range conversations.All() {
		c, _ = verify.EngineOrder(c)
		want, err := c.Render(conversations.With(t.Context(), source, templatetest.BOS, templatetest.EOS, template.Limits{}))
		if err != nil {
			continue // refused
		}
		got, err := c.Render(func(messages []*template.Object, tools []any, variables map[string]any, addGenerationPrompt bool) (string, error) {
			in, err := emulation.NewInput(messages, tools, variables, true)
			if err != nil {
				return "", err
			}
			in.EOS = templatetest.EOS
			text := packaged
			if !addGenerationPrompt { // the engine's Python interface always asks for an answer
				text = "{% set add_generation_prompt = false %}" + text
			}
			out := w.render(t, text, in)
			if out == nil {
				return "", emulation.ErrCrash
			}
			return *out, nil
		})
		if err == nil && got == strings.TrimPrefix(want, prefix) {
			equal++
		}
	}
	return equal
}
