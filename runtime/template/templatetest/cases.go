// Package templatetest holds what tests of chat templates share: the inputs on which the emulation of the engine's
// interpreter is held to the engine, and their recorded results.
package templatetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
)

// The texts of the tokenizer for all cases.
const (
	BOS = "<s>"
	EOS = "</s>"
)

// Case is a template with the conversations that it is rendered for.
type Case struct {
	Name   string
	Source string
	Inputs []engine.Input
	Digest bool // the results are too long to be recorded
}

// Goldens are what the engine made of cases; testdata/goldens.json of the package engine holds them.
type Goldens struct {
	Provenance string    `json:"provenance"`
	Now        time.Time `json:"now"` // of strftime_now, to the day
	// Texts has for every case one text, or one digest, or null where the engine crashes.
	Texts map[string]*string `json:"texts"`
}

// GoldensFile is their file, from the top of the repository.
const GoldensFile = "runtime/template/engine/testdata/goldens.json"

// Load reads the goldens; root is the top of the repository.
func Load(t testing.TB, root string) (g Goldens) {
	t.Helper()
	read(t, filepath.Join(root, GoldensFile), &g)
	return g
}

// longest is the length from which on texts are recorded as digests.
const longest = 300

// Record is the recorded form of a case's results, of which nil is a crash.
func (c *Case) Record(texts []*string) *string {
	if !c.Digest && (texts[0] == nil || len(*texts[0]) < longest) {
		return texts[0]
	}
	b, err := json.Marshal(texts)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	s := digest(string(b))
	return &s
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// Cases are the probes of testdata/probes.json, the snippets that runtime/template is held to jinja2 with, and the
// templates of models in testdata/templates and in the folders of LLMEXPORT_TEMPLATES on all conversations.
func Cases(t testing.TB, root string) []Case {
	t.Helper()
	var file struct {
		Values json.RawMessage           `json:"values"`
		Cases  []struct{ Source string } `json:"cases"`
	}
	read(t, filepath.Join(root, "runtime/template/testdata/goldens.json"), &file)
	input := values(t, file.Values)
	var probes map[string][]string
	read(t, filepath.Join(root, "runtime/template/engine/testdata/probes.json"), &probes)
	var list []Case
	for group, sources := range probes {
		for _, s := range sources {
			list = append(list, Case{Name: group + ": " + s, Source: s, Inputs: []engine.Input{input}})
		}
	}
	list = append(list, Case{Name: "numbers of JSON", Source: "{% for x in messages[0].x %}{{ x }}\n{% endfor %}", Inputs: []engine.Input{
		{Messages: []engine.Message{{Role: "json", Content: numbers}}, BOS: BOS, EOS: EOS},
	}})
	for _, content := range messages {
		list = append(list, Case{
			Name:   "message " + content,
			Source: "{{ messages[0] }}\n{{ messages[0] | tojson }}\n{{ messages[0] | string }}\n{{ messages[0] | items }}{% for k in messages[0] %}{{ k }}{% endfor %}",
			Inputs: []engine.Input{{Messages: []engine.Message{{Role: "json", Content: content}}, BOS: BOS, EOS: EOS}},
		})
	}
	for _, c := range file.Cases {
		if strings.Contains(c.Source, "%H") { // the time of the day is not recorded
			continue
		}
		list = append(list, Case{Name: "snippet " + digest(c.Source), Source: c.Source, Inputs: []engine.Input{input}})
	}
	folders := append([]string{filepath.Join(root, "runtime/template/testdata/templates")}, filepath.SplitList(os.Getenv("LLMEXPORT_TEMPLATES"))...)
	for _, folder := range folders {
		for _, s := range Sources(t, folder) {
			for _, c := range model(t, s) {
				if !slices.ContainsFunc(list, func(d Case) bool { return d.Name == c.Name }) {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// numbers are read with roundings, and written with digits that are not always the shortest.
const numbers = `{"x": [0, -0, 0.0, -0.0, 1.0, 100, 1e2, 1E+2, 1e-2, 0.1, 0.7, 2.50, 3.14159265358979, 1e21, 1e22, 123456789e13, 1e-5, 1e-6, 1e-7,
	0.00001234, 12345678901234567890, 18446744073709551615, 18446744073709551616, 9223372036854775807, 9223372036854775808,
	-9223372036854775808, -9223372036854775809, 2147483648, 4294967296, 123456789012345678901234567890, 0.30000000000000004,
	2.5670382256285259e-43, 4.567038225628526e-43, 1.7028582809840259e-180, -4.1702858280984025e-200, 5e-324, 4.9e-324,
	2.2250738585072014e-308, 1.7976931348623157e308, 9.876543210987654e100, 1.2345678901234567e-83, 3.5e-83, 123456.789e-320,
	1423961.4254758849489, 0.1234567890123456789012345, 123456789012345678.5, 9007199254740993.0, 1e-400, 1.5e-2147483647]}`

// messages are contents of messages of the role json, of which some are no JSON objects.
var messages = []string{
	"", "{}", "[]", "null", "x", "{", "{} x", " {} ", "{\v}", `{"a"}`, `{"a":}`, `{"a": 1,}`, `{a: 1}`, `{'a': 1}`, `{"a": 1 "b": 2}`,
	`{"a": 01}`, `{"a": .5}`, `{"a": 1.}`, `{"a": 1e}`, `{"a": +1}`, `{"a": 1e400}`, `{"a": -}`, `{"a": nul}`, `{"a": NaN}`, `{"a": True}`,
	`{"b": 1, "a": 2, "b": 3}`, `{"role": "user", "content": null}`, `{"": "", "type": {"name": [], "enum": {}}}`,
	`{"a": "\u00e9\ud83d\ude00\n\/\b\f\r\t\"\\"}`, `{"a": "\ud83d"}`, `{"a": "\ud83dx"}`, `{"a": "\u12"}`, `{"a": "\x"}`, "{\"a\": \"\n\"}", `{"a": "`,
	`{"a": "é\u001f` + "\x7f" + `"}`, `{"a\"b\\c\nd'e": "x"}`, "{\"a\": 1}\x00x", `/* c */ {}`, `{"a": [1, [2, {"b": [true, false, null]}]]}`,
}

// values makes the input of the probes: messages, and everything else as context.
func values(t testing.TB, data []byte) engine.Input {
	t.Helper()
	v, err := template.DecodeJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	var messages []*template.Object
	variables := map[string]any{}
	for key, e := range v.(*template.Object).All() {
		if key != "messages" {
			variables[key] = e
			continue
		}
		for _, m := range e.([]any) {
			messages = append(messages, m.(*template.Object))
		}
	}
	return input(t, messages, nil, variables)
}

func input(t testing.TB, messages []*template.Object, tools []any, variables map[string]any) engine.Input {
	t.Helper()
	in, err := engine.NewInput(messages, tools, variables, true)
	if err != nil {
		t.Fatal(err)
	}
	in.BOS, in.EOS = BOS, EOS
	return in
}

// model makes the cases of a model's template. The engine's Python interface always asks for an answer: where a
// conversation does not, the template switches that off itself.
func model(t testing.TB, source string) []Case {
	t.Helper()
	asks := Case{Name: "template " + digest(source), Source: source, Digest: true}
	ends := Case{Name: "template " + digest(source) + " without generation prompt", Source: "{% set add_generation_prompt = false %}" + source, Digest: true}
	for _, c := range conversations.All() {
		first := true
		_, err := c.Render(func(messages []*template.Object, tools []any, context map[string]any, addGenerationPrompt bool) (string, error) {
			to := &ends
			if addGenerationPrompt {
				to = &asks
			}
			if first {
				to.Inputs = append(to.Inputs, input(t, messages, tools, context))
			}
			first = false
			return "", nil
		})
		if err != nil && first {
			t.Fatal(err)
		}
	}
	return []Case{asks, ends}
}

// Sources gives the templates below a folder: *.jinja files, and those of tokenizer_config.json files.
func Sources(t testing.TB, folder string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, e fs.DirEntry, err error) error {
		isConfig := e != nil && e.Name() == "tokenizer_config.json"
		if err != nil || !isConfig && filepath.Ext(name) != ".jinja" {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil || !isConfig {
			list = append(list, string(b))
			return err
		}
		var c struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
		var one string
		var named []struct{ Template string }
		if json.Unmarshal(c.Template, &one) == nil && one != "" {
			list = append(list, one)
		} else if json.Unmarshal(c.Template, &named) == nil {
			for _, n := range named {
				list = append(list, n.Template)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func read(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
