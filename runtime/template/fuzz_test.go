package template

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// seeds are the sources of the goldens, and the values that they are rendered for.
func seeds(f *testing.F) ([]string, json.RawMessage) {
	f.Helper()
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Values json.RawMessage `json:"values"`
		Cases  []golden        `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		f.Fatal(err)
	}
	var sources []string
	for _, g := range file.Cases {
		sources = append(sources, g.Source)
	}
	if len(sources) == 0 {
		f.Fatal("no seeds")
	}
	return sources, file.Values
}

// FuzzParse wants a template or an error that says of which kind it is.
func FuzzParse(f *testing.F) {
	sources, _ := seeds(f)
	for _, s := range sources {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse("fuzz", source)
		if (tmpl == nil) != (err != nil) {
			t.Fatalf("%v, %v", tmpl, err)
		}
		if err != nil && !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Fatal(err)
		}
	})
}

// FuzzRender wants valid text or an error, soon, and the same a second time.
func FuzzRender(f *testing.F) {
	sources, data := seeds(f)
	for _, s := range sources {
		f.Add(s)
	}
	f.Add("{{ messages[d].get('tool_calls', 'none') }}")
	limits := Limits{Steps: 100_000, Output: 1 << 20, Depth: 50, Now: now}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse("fuzz", source)
		if err != nil {
			return
		}
		with := values(t, data)
		out, err := tmpl.Render(context.Background(), with, limits)
		if !utf8.ValidString(out) || err != nil && out != "" {
			t.Fatalf("%q, %v", out, err)
		}
		again, err2 := tmpl.Render(context.Background(), with, limits)
		if again != out || (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("%q, %v, then %q, %v", out, err, again, err2)
		}
	})
}
