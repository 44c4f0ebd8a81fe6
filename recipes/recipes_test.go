package recipes

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/<name>, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	text := strings.ReplaceAll(string(want), "\r\n", "\n")
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// The options below are like those of real stages: defaults, nested structs and lists, two unions.

type quantizeOptions struct {
	Method    methods           `json:"method" jsonschema_description:"One method, or a list of them"`
	Bits      int               `json:"bits" jsonschema:"enum=2,enum=3,enum=4,enum=5,enum=6,enum=8,enum=16"`
	Block     blockSize         `json:"block"`
	Symmetric bool              `json:"symmetric"`
	Damp      float64           `json:"damp"`
	Overrides []overrideOptions `json:"overrides"`
	Labels    map[string]string `json:"labels"`
}

type overrideOptions struct {
	Match string `json:"match" jsonschema:"required"`
	Bits  int    `json:"bits,omitempty"`
}

type methods []string

func (m *methods) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) != nil {
		return json.Unmarshal(data, (*[]string)(m))
	}
	*m = methods{one}
	return nil
}

func (methods) JSONSchema() *jsonschema.Schema {
	word := &jsonschema.Schema{Type: "string"}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{word, {Type: "array", Items: word}}}
}

type blockSize string

func (b *blockSize) UnmarshalJSON(data []byte) error {
	var n int
	s := strings.Trim(string(data), `"`)
	if json.Unmarshal(data, &n) != nil && s != "auto" && s != "row" {
		return fmt.Errorf("must be auto, row or a number, not %s", data)
	}
	*b = blockSize(s)
	return nil
}

func (b blockSize) MarshalJSON() ([]byte, error) {
	if b == "auto" || b == "row" {
		return json.Marshal(string(b))
	}
	return []byte(b), nil
}

type verifyOptions struct {
	Enabled    bool        `json:"enabled"`
	Perplexity *perplexity `json:"perplexity"`
	Texts      []textRef   `json:"texts"`
}

type perplexity struct {
	Window int     `json:"window"`
	Ratio  float64 `json:"max_ratio"`
}

// textRef is a path or a struct, read strictly by its own decoder.
type textRef struct {
	Path   string `json:"path"`
	Weight int    `json:"weight"`
}

func (r *textRef) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &r.Path) == nil {
		return nil
	}
	type plain textRef
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(r))
}

type publishOptions struct {
	Dir string `json:"dir,omitempty"`
	Hf  *struct {
		Repo    string `json:"repo"`
		Private bool   `json:"private"`
	} `json:"hf,omitempty"`
}

type fetchOptions struct {
	Retries uint8 `json:"retries"`
}

func testSections() map[string]any {
	return map[string]any{
		"fetch":    &fetchOptions{Retries: 3},
		"quantize": &quantizeOptions{Method: methods{"rtn"}, Bits: 4, Block: "64", Damp: 0.01},
		"verify":   &verifyOptions{Enabled: true, Perplexity: &perplexity{Window: 512, Ratio: 1.05}},
		"publish":  &[]publishOptions{{Dir: "dist"}},
	}
}

var sectionNames = []string{"fetch", "quantize", "verify", "publish"}

// decodeAll decodes every section of a recipe, as the stages do.
func decodeAll(r *Recipe) (map[string]any, error) {
	all := testSections()
	for _, name := range sectionNames {
		if err := r.Stages[name].Decode(all[name]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func load(t *testing.T, text string, overrides ...string) (*Recipe, map[string]any) {
	t.Helper()
	r, err := Load([]byte(text), "recipes/x.yaml", sectionNames, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := decodeAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, all
}

const head = "version: 1\nname: x\nmodel: {repo: a/b}\n"

// full uses every feature of the format.
const full = `# comment
version: 1
name: qwen3-0.6b-int4
model: {repo: Qwen/Qwen3-0.6B, revision: c1899de, ignore_config: [use_mrope]}
target: {engine: "3.5", backends: [cpu, opencl]}
limits: {memory: 1.5GiB, threads: 2}
quantize:
  method: [search, gptq]
  bits: 4
  block: auto
  damp: 1e-05
  overrides:
    - {match: "lm_head|embed_tokens", bits: 8}
    - match: 'it''s "<&>" 😀 \d'
    - match: layers\.[0-9]{1,2}\.(q|k)_proj$ # no quotes needed
  labels:
    "3.6": "yes"
    empty: ""
    "<<": "\u0000\u2028\x85\n\ttab"
verify:
  perplexity: {window: 2048, max_ratio: 1.05}
  texts: [a.txt, {path: b.txt, weight: 2}]
publish:
  - dir: ../dist/qwen3-0.6b-int4
  - hf: {repo: someone/Qwen3-0.6B-MNN, private: true}
variants:
  - {name: qwen3-0.6b-int8, quantize: {bits: 8}}
  - name: small
    target: {backends: [cpu]}
    quantize: {overrides: [], labels: {more: x}}
    verify: {enabled: false}
`

func TestLoad(t *testing.T) {
	r, all := load(t, full)
	type public struct {
		Name     string
		Model    Model
		Target   Target
		Limits   Limits
		Dir      string
		Variants int
	}
	want := public{
		Name:     "qwen3-0.6b-int4",
		Model:    Model{Repo: "Qwen/Qwen3-0.6B", Revision: "c1899de", IgnoreConfig: []string{"use_mrope"}},
		Target:   Target{Engine: "3.5", Backends: []string{"cpu", "opencl"}},
		Limits:   Limits{Memory: 1536 << 20, Threads: 2},
		Dir:      "recipes",
		Variants: 2,
	}
	if diff := cmp.Diff(want, public{r.Name, r.Model, r.Target, r.Limits, r.Dir, len(r.Variants)}); diff != "" {
		t.Errorf("recipe (-want +got):\n%s", diff)
	}
	wantSections := testSections()
	wantSections["quantize"] = &quantizeOptions{
		Method: methods{"search", "gptq"}, Bits: 4, Block: "auto", Damp: 1e-5,
		Overrides: []overrideOptions{{"lm_head|embed_tokens", 8}, {Match: `it's "<&>" 😀 \d`}, {Match: `layers\.[0-9]{1,2}\.(q|k)_proj$`}},
		Labels:    map[string]string{"3.6": "yes", "empty": "", "<<": "\x00\u2028\u0085\n\ttab"},
	}
	wantSections["verify"] = &verifyOptions{
		Enabled: true, Perplexity: &perplexity{2048, 1.05}, Texts: []textRef{{"a.txt", 0}, {"b.txt", 2}},
	}
	publish := []publishOptions{{Dir: "../dist/qwen3-0.6b-int4"}, {}}
	publish[1].Hf = &struct {
		Repo    string `json:"repo"`
		Private bool   `json:"private"`
	}{"someone/Qwen3-0.6B-MNN", true}
	wantSections["publish"] = &publish
	if diff := cmp.Diff(wantSections, all); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	if r.Stages["fetch"].Present() || !r.Stages["verify"].Present() {
		t.Error("Present is wrong about fetch or verify")
	}
}

func TestDefaults(t *testing.T) {
	for _, text := range []string{head, head + "quantize:\n  # bits: 4\nverify: {}\ntarget:\nlimits:\nvariants:\n",
		"\ufeff---\r\n" + strings.ReplaceAll(head, "\n", "\r\n") + "...\r\n"} {
		r, all := load(t, text)
		if diff := cmp.Diff(testSections(), all); diff != "" {
			t.Errorf("sections (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Model{Repo: "a/b", Revision: "main"}, r.Model); diff != "" {
			t.Errorf("model (-want +got):\n%s", diff)
		}
		if !cmp.Equal(r.Target, DefaultTarget()) || r.Limits != DefaultLimits() || r.Limits.Memory != 2<<30 {
			t.Errorf("target %v, limits %v", r.Target, r.Limits)
		}
	}
}

func TestNullClearsPointers(t *testing.T) {
	_, all := load(t, head+"verify: {perplexity: null}\npublish: []\n")
	if v := all["verify"].(*verifyOptions); v.Perplexity != nil {
		t.Errorf("perplexity is %v", v.Perplexity)
	}
	if p := *all["publish"].(*[]publishOptions); len(p) != 0 {
		t.Errorf("publish is %v", p)
	}
}

func TestOverrides(t *testing.T) {
	for _, tt := range []struct {
		overrides []string
		path      string // of the effective recipe
		want      string // as JSON
	}{
		{[]string{"quantize.bits=8"}, "quantize.bits", "8"},
		{[]string{"quantize.overrides[0].bits=2"}, "quantize.overrides[0].bits", "2"},
		{[]string{"quantize.overrides[3].match=lm_head"}, "quantize.overrides[3]", `{"match":"lm_head"}`},
		{[]string{"quantize.method=[rtn, hqq]"}, "quantize.method", `["rtn","hqq"]`},
		{[]string{"quantize.method=hqq"}, "quantize.method", `["hqq"]`},
		{[]string{`target.engine="3.6"`}, "target.engine", `"3.6"`},
		{[]string{`publish[0].dir=C:\out=x`}, "publish[0].dir", `"C:\\out=x"`},
		{[]string{"publish[0].dir=/x"}, "publish[0].dir", `"/x"`},
		{[]string{"fetch.retries=9"}, "fetch.retries", "9"},
		{[]string{"verify.texts[0]=c.txt", "verify.perplexity="}, "verify",
			`{"enabled":true,"perplexity":null,"texts":[{"path":"c.txt","weight":0},{"path":"b.txt","weight":2}]}`},
		{[]string{"limits={memory: 1GB}"}, "limits", `{"memory":"1GB","threads":0}`},
		{[]string{"variants=[]", "name=other"}, "name", `"other"`},
		{[]string{"variants[0].quantize.bits=3"}, "variants[0].quantize", `{"bits":3}`},
	} {
		t.Run(strings.Join(tt.overrides, " "), func(t *testing.T) {
			r, all := load(t, full, tt.overrides...)
			n, err := r.effective(all)
			if err != nil {
				t.Fatal(err)
			}
			steps, _ := parsePath(tt.path)
			at, found := n.follow(steps)
			if found != len(steps) || string(at.json()) != tt.want {
				t.Errorf("%s is %s, want %s", tt.path, at.json(), tt.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	r, _ := load(t, full)
	all, err := r.Expand()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, v := range all {
		sections, err := decodeAll(v)
		if err != nil {
			t.Fatal(err)
		}
		text, err := EffectiveJSON(v, sections)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, text...), '\n')
	}
	golden(t, "expand.jsonl", out)

	plain, _ := load(t, head)
	if all, err := plain.Expand(); err != nil || len(all) != 1 || all[0].Name != "x" {
		t.Errorf("without variants: %d recipes, %v", len(all), err)
	}
}

func TestEffective(t *testing.T) {
	for name, text := range map[string]string{"full": full, "head": head} {
		t.Run(name, func(t *testing.T) {
			r, all := load(t, text)
			first, err := EffectiveJSON(r, all)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "effective/"+name+".json", append(slices.Clip(first), '\n'))
			again, sections := load(t, string(first))
			if diff := cmp.Diff(all, sections); diff != "" {
				t.Errorf("sections (-first +second):\n%s", diff)
			}
			second, err := EffectiveJSON(again, sections)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(first), string(second)); diff != "" {
				t.Errorf("effective (-first +second):\n%s", diff)
			}
		})
	}
}

func TestErrorf(t *testing.T) {
	r, _ := load(t, full, "quantize.damp=0.5")
	var out strings.Builder
	for _, err := range []error{
		r.Stages["quantize"].Errorf("overrides[1].match", "matches no tensor"),
		r.Stages["quantize"].Errorf("overrides[1].bits", "is only a default"),
		r.Stages["quantize"].Errorf("damp", "is too large"),
		r.Stages["quantize"].Errorf("", "is odd"),
		r.Stages["publish"].Errorf("[1].hf.repo", "does not exist"),
		r.Stages["fetch"].Errorf("retries", "is only a default"),
		r.Errorf("target.backends[1]", "is not known"),
		r.Errorf("limits.memory", "is too small"),
		Section{}.Errorf("a", "is nowhere"),
	} {
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%v is a %T", err, err)
		}
		fmt.Fprintf(&out, "%v\n\n", err)
	}
	golden(t, "errorf.txt", []byte(out.String()))
}

func TestResolve(t *testing.T) {
	r := &Recipe{Dir: "recipes"}
	if got, want := r.Resolve("../dist/x"), filepath.Join("dist", "x"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if abs := filepath.Join(t.TempDir(), "x"); r.Resolve(abs) != abs {
		t.Errorf("got %s, want %s", r.Resolve(abs), abs)
	}
}

func TestSchema(t *testing.T) {
	s, err := Schema(testSections())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.json", s)
}

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Size
		out  string // String; empty if an error is wanted
	}{
		{"2GiB", 2 << 30, "2GiB"},
		{"512MiB", 512 << 20, "512MiB"},
		{"1500MB", 1_500_000_000, "1500MB"},
		{"1.5 GiB", 1536 << 20, "1536MiB"},
		{"2gib", 2 << 30, "2GiB"},
		{"1001", 1001, "1001B"},
		{"1001B", 1001, "1001B"},
		{"0", 0, "0B"},
		{"9223372036854775807", 1<<63 - 1, "9223372036854775807B"},
		{"9223372036854775808", 0, ""},
		{"-1GiB", 0, ""},
		{"2G", 0, ""},
		{"0.3B", 0, ""},
		{"1/2GiB", 0, ""},
		{"1e3", 0, ""},
		{"GiB", 0, ""},
		{"", 0, ""},
		{strings.Repeat("9", 1000), 0, ""},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseSize(tt.in)
			if (err != nil) != (tt.out == "") || got != tt.want {
				t.Fatalf("got %d, %v", got, err)
			}
			if err != nil {
				return
			}
			if got.String() != tt.out {
				t.Errorf("prints %s, want %s", got, tt.out)
			}
			if again, err := ParseSize(got.String()); again != got || err != nil {
				t.Errorf("%s reads as %d, %v", got, again, err)
			}
		})
	}
}

func TestShipped(t *testing.T) {
	names := Shipped()
	for _, want := range []string{"demo", "llama3.2", "qwen2.5", "qwen3", "smollm2"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not shipped", want)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			data, err := ReadShipped(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Load(data, name+".yaml", sectionNames)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Expand(); err != nil {
				t.Fatal(err)
			}
			if p := r.Model.Path; p != "" {
				if _, err := os.Stat(filepath.Join(r.Resolve(p), "config.json")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, err := ReadShipped("qwen9"); err == nil || !strings.Contains(err.Error(), "qwen3") {
		t.Errorf("unknown name: %v", err)
	}
}

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	if _, err := LoadFile(path, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(head), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := LoadFile(path, sectionNames, "name=y")
	if err != nil || r.Name != "y" || r.Dir != filepath.Dir(path) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"version", "name", "quantize", "publish", "bits"}
	for word, want := range map[string]string{
		"bitz": "bits", "quantise": "quantize", "Quantize": "quantize", "nmae": "name", "pubilsh": "publish",
		"foo": "", "": "", "verison": "version", "zzzzzzzz": "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// TestQuote holds that both YAML readers and encoding/json read a quoted string alike.
func TestQuote(t *testing.T) {
	var strs []string
	for block := rune(0); block < 0x11000; block += 64 {
		var b strings.Builder
		for r := block; r < block+64; r++ {
			if r < 0xd800 || r > 0xdfff {
				b.WriteRune(r)
			}
		}
		strs = append(strs, b.String())
	}
	strs = append(strs, "", " ", " a", "a ", "-", "- a", "a: b", "a #b", "~", "null", "Yes", "n", "0x1F", "1e5", ".5", "1_000",
		"2024-01-01", "1:30", "012", "../a", "a/b@c", "./", "C:\\x", "%a", "@a", "`a", "&a", "*a", "!a", "|", ">", "{", "[", "'", "\r\n",
		"a\n\nb\n", "\\u0041", "\U000e0001", "\U0010ffff", "2GiB", "0B", ".inf", "NaN", "=", "<<", "a,b", "a]", "?", "? a")
	for _, s := range strs {
		var back string
		if err := json.Unmarshal([]byte(quote(s)), &back); err != nil || back != s {
			t.Errorf("JSON reads %s as %s, %v", shorten(s), shorten(back), err)
		}
		for _, text := range []string{quote(s), "[" + quote(s) + "]", "- k: " + quote(s), "- " + quote(s) + ": v"} {
			n, err := read("x.yaml", []byte(text))
			if err != nil {
				t.Errorf("%s: %v", shorten(text), err)
				continue
			}
			for n.kind == sequence {
				n = n.items[0]
			}
			got := n.scalar
			if n.kind == mapping {
				if got = n.entries[0].key; got == "k" {
					got = n.entries[0].value.scalar
				}
			}
			if got != s {
				t.Errorf("YAML reads %s as %s", shorten(text), shorten(got))
			}
		}
	}
}
