//go:build engine

package enginetest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/venv"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/template"
	emulation "github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/template/templatetest"
)

// TestTemplates holds the emulation of the template interpreter to every installed engine: equal bytes, or a failure
// of both. With -update it rewrites the goldens of the package engine.
func TestTemplates(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	cases := templatetest.Cases(t, root)
	pkg := withBOS(t)
	dirs, err := venv.Engines(root)
	if err != nil {
		t.Fatal(err)
	}
	golden := templatetest.Goldens{Now: time.Now().UTC().Truncate(24 * time.Hour), Texts: map[string]*string{}}
	if *update {
		for name, text := range templatetest.Load(t, root).Texts { // of templates that are not in the repository
			if strings.HasPrefix(name, "template ") {
				golden.Texts[name] = text
			}
		}
	}
	for _, d := range dirs {
		version := venv.Release(d)
		t.Run(version, func(t *testing.T) {
			w := startTemplates(t, d, pkg)
			rendered, crashed := 0, 0
			for _, c := range cases {
				texts := make([]*string, len(c.Inputs))
				for i, in := range c.Inputs {
					texts[i] = w.render(t, c.Source, in)
					compareTemplate(t, &c, in, texts[i])
					if texts[i] == nil {
						crashed++
					} else {
						rendered++
					}
				}
				if len(texts) > 0 {
					golden.Texts[c.Name] = c.Record(texts)
				}
			}
			t.Logf("%d templates, %d texts, %d crashes", len(cases), rendered, crashed)
			golden.Provenance = "MNN " + version + ", the wheel of PyPI"
		})
	}
	if *update && !t.Failed() {
		b, err := json.MarshalIndent(golden, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(root, templatetest.GoldensFile), append(b, '\n'), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// compareTemplate compares with what the engine makes, nil for a crash.
func compareTemplate(t *testing.T, c *templatetest.Case, in emulation.Input, want *string) {
	t.Helper()
	tmpl, err := emulation.Parse(c.Source)
	got := ""
	if err == nil {
		got, err = tmpl.Render(t.Context(), in, template.Limits{})
	}
	crash := errors.Is(err, emulation.ErrCrash) || errors.Is(err, template.ErrLimit)
	switch {
	case err != nil && !crash:
		t.Errorf("%s: %v", c.Name, err)
	case want == nil && !crash:
		t.Errorf("%s: %q, and the engine crashes", c.Name, got)
	case want != nil && (crash || got != *want):
		at := 0
		for at < len(got) && at < len(*want) && got[at] == (*want)[at] {
			at++
		}
		t.Errorf("%s: messages %.300q: from byte %d %v\n got %.200q\nwant %.200q", c.Name, in.Messages, at, err, got[at:], (*want)[at:])
	}
}

// withBOS exports a package, the tokenizer file of which then gets a text for the begin of a sequence: the engine knows
// it from there only.
func withBOS(t *testing.T) string {
	t.Helper()
	dir, err := stagetest.Export(t.Context(), t.TempDir(), filepath.Join("..", "..", "testdata", "tiny-qwen3"), "quantize: {bits: 4}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, assemble.TokenizerFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// Behind the text for the end of a sequence there is a byte of flags.
	end := bytes.LastIndex(b, []byte("<|im_end|>"))
	if end < 0 {
		t.Fatal("no <|im_end|> in the tokenizer file")
	}
	b = b[:end+len("<|im_end|>")+1]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(templatetest.BOS)))
	if err := os.WriteFile(name, append(b, templatetest.BOS...), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// templates is a running template.py.
type templates struct{ *worker }

func startTemplates(t *testing.T, venv, pkg string) *templates {
	t.Helper()
	w, err := startWorker(venv, "template.py", pkg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.in.Close() })
	return &templates{w}
}

// render is what the engine makes of a template, nil for a crash.
func (w *templates) render(t *testing.T, source string, in emulation.Input) *string {
	t.Helper()
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	variables := json.RawMessage(in.Context)
	if len(variables) == 0 {
		variables = json.RawMessage("{}")
	}
	job := struct {
		Config   []any     `json:"config"`
		Messages []message `json:"messages"`
	}{Config: []any{
		map[string]any{"jinja": map[string]any{"context": nil}},
		map[string]any{"jinja": map[string]any{"chat_template": source, "eos": in.EOS, "context": variables}},
	}}
	for _, m := range in.Messages {
		job.Messages = append(job.Messages, message(m))
	}
	var answer struct {
		Text         *string
		Error, Crash string
	}
	if err := w.ask(job, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Error != "" {
		t.Fatalf("%s: %s", source, answer.Error)
	}
	return answer.Text
}

// TestLoweredTemplates has every installed engine render random templates that are lowered, to what jinja2 makes of
// the originals.
func TestLoweredTemplates(t *testing.T) {
	t.Parallel()
	const templates = 1000
	file := filepath.Join(t.TempDir(), "lowered.json")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run=TestRandomLowered$", "../../runtime/template", "-lowered="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Source, Text, Want string
		Input              emulation.Input
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	dirs, err := venv.Engines(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	pkg := withBOS(t)
	for _, d := range dirs {
		t.Run(venv.Release(d), func(t *testing.T) {
			w := startTemplates(t, d, pkg)
			rendered := 0
			for i, l := range list[:templates] {
				if !l.Input.AddGenerationPrompt { // the engine's interface always asks for an answer
					continue
				}
				rendered++
				got := w.render(t, l.Text, l.Input)
				if got == nil {
					t.Errorf("template %d: %s\nlowered %s\nit crashes", i, l.Source, l.Text)
				} else if *got != l.Want {
					t.Errorf("template %d: %s\nlowered %s\nmessages %q, context %s\n got %q\nwant %q", i, l.Source, l.Text, l.Input.Messages, l.Input.Context, *got, l.Want)
				}
			}
			t.Logf("%d templates", rendered)
		})
	}
}
