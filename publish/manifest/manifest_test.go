package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

const (
	sumA = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" // of "a"
	sumB = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d" // of "b"
)

// full is a manifest that uses every field.
func full() *Manifest {
	return &Manifest{
		Version:       Version,
		Name:          "tiny-qwen3-int4",
		Tool:          Tool{Name: "llmexport", Version: "0.1.0"},
		MinimumEngine: "3.6.0",
		Target:        Target{Engine: "3.6", Backends: []string{"cpu", "opencl"}},
		Source: Source{
			Repo: "someone/tiny-qwen3", Revision: "0123456789abcdef0123456789abcdef01234567",
			Files: []File{{Name: "config.json", Size: 1, SHA256: sumA}, {Name: "sub/model.safetensors", Size: 1, SHA256: sumB}},
		},
		Recipe: json.RawMessage(`{"version":1,"quantize":{"bits":4,"max_ratio":1.050,"method":["search"],"empty":{},"none":[]}}`),
		Files: []File{
			{Name: "config.json", Role: "config", Size: 1, SHA256: sumA},
			{Name: "llm.mnn.weight", Role: "weights", Size: 1_769_494, SHA256: sumB},
		},
		Tensors: []Tensor{
			{Name: "model.embed_tokens.weight", Op: "/embed", Spec: "w8-b64-asym", File: "llm.mnn.weight", Offset: 0, Size: 1_572_886, SHA256: sumA},
			{Name: "model.embed_tokens.weight", Op: "/lm_head", Spec: "w8-b64-asym", File: "llm.mnn.weight", Offset: 0, Size: 1_572_886, SHA256: sumA},
			{Name: "model.norm.weight", Op: "/norm", Spec: "f32", File: "llm.mnn.weight", Offset: 1_572_886, Size: 196_608, SHA256: sumB},
		},
		Verified: true,
		Checks: []Check{
			{Name: "layout", Passed: true},
			{Name: "kl", Passed: true, Detail: "mean <= 0.03 & \"fine\"", Value: map[string]float64{"mean": 0.0123, "max": 1e6, "p99": 1.5e-7}},
			{Name: "golden", Skipped: true, Detail: "no goldens"},
		},
		Metrics: map[string]Metric{"perplexity": {Value: 94.4853, StdErr: 0.75}, "size": {Value: 123456789.5}},
		Goldens: []Golden{{
			Prompt: []int32{8190, 1, 2}, Output: []int32{}, Provenance: "float32 reference",
			TopLogits: []Logit{{Token: 7, Value: 12.345}, {Token: 9, Value: -1e-7}},
		}},
		Threads:     []Threads{{Pack: 8, Safe: []int{1, 2, 4}, Unsafe: []int{9, 14}}, {Pack: 16, Safe: []int{1}}},
		Conditions:  []string{"thread_num stays within the safe counts"},
		IgnoredKeys: []string{"torch_dtype", "transformers_version"},
	}
}

func marshal(t testing.TB, m *Manifest) []byte {
	t.Helper()
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMarshalGolden(t *testing.T) {
	got := marshal(t, full())
	path := filepath.Join("testdata", "full.json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("manifest differs (-want +got):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	data := marshal(t, full())
	m, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), string(marshal(t, m))); diff != "" {
		t.Errorf("parse and marshal gave other bytes:\n%s", diff)
	}
	_, sum, err := full().Seal()
	if err != nil || sum != m.Digest {
		t.Errorf("Seal gives %s, %v, want %s", sum, err, m.Digest)
	}
	open := bytes.Replace(data, []byte(m.Digest), nil, 1)
	if got := digest.Of(open); got != m.Digest {
		t.Errorf("digest of the bytes with an empty digest is %s, want %s", got, m.Digest)
	}
	want := full()
	want.Digest = m.Digest
	want.Recipe, m.Recipe = nil, nil // same value, other spacing
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("manifest differs (-want +got):\n%s", diff)
	}
}

func TestSourceNames(t *testing.T) {
	for _, c := range []struct {
		s          Source
		name, page string
	}{
		{Source{}, "", ""},
		{Source{Repo: "Qwen/Qwen3-0.6B"}, "Qwen/Qwen3-0.6B", "https://huggingface.co/Qwen/Qwen3-0.6B"},
		{Source{Hub: ModelScope, Repo: "Qwen/Qwen3-0.6B"}, "ms://Qwen/Qwen3-0.6B", "https://modelscope.cn/models/Qwen/Qwen3-0.6B"},
		{Source{Repo: "a?b/c#d"}, "a?b/c#d", "https://huggingface.co/a%3Fb/c%23d"},
	} {
		if c.s.Name() != c.name || c.s.Page() != c.page {
			t.Errorf("%+v: %s, %s", c.s, c.s.Name(), c.s.Page())
		}
	}
}

func TestSort(t *testing.T) {
	m := full()
	m.Files[0], m.Files[1] = m.Files[1], m.Files[0]
	m.Tensors[0], m.Tensors[2] = m.Tensors[2], m.Tensors[0]
	m.Target.Backends = []string{"opencl", "cpu"}
	m.Threads[0], m.Threads[1] = m.Threads[1], m.Threads[0]
	m.Threads[1].Safe = []int{4, 2, 1}
	if _, err := m.Marshal(); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("unsorted manifest: %v", err)
	}
	m.Sort()
	if diff := cmp.Diff(full(), m); diff != "" {
		t.Errorf("sorted manifest differs (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"hub":               {func(m *Manifest) { m.Source.Hub = "github" }, `of hub "github"`},
		"hub of nothing":    {func(m *Manifest) { m.Source.Hub, m.Source.Repo = ModelScope, "" }, `repository "" of hub`},
		"access":            {func(m *Manifest) { m.Source.Access = "open" }, `access "open"`},
		"version":           {func(m *Manifest) { m.Version = 2 }, "version 2"},
		"name":              {func(m *Manifest) { m.Name = "a/b" }, "package name"},
		"tool":              {func(m *Manifest) { m.Tool.Version = "" }, "tool"},
		"minimum engine":    {func(m *Manifest) { m.MinimumEngine = "3.6" }, "minimum engine"},
		"target engine":     {func(m *Manifest) { m.Target.Engine = "new" }, "target engine"},
		"recipe list":       {func(m *Manifest) { m.Recipe = json.RawMessage("[]") }, "not a JSON object"},
		"recipe broken":     {func(m *Manifest) { m.Recipe = json.RawMessage("{") }, "unexpected end"},
		"recipe number":     {func(m *Manifest) { m.Recipe = json.RawMessage(`{"a":1e999}`) }, "float64"},
		"recipe huge":       {func(m *Manifest) { m.Recipe = make([]byte, maxRecipe+1) }, "recipe of"},
		"no files":          {func(m *Manifest) { m.Files = nil }, "no files"},
		"twice":             {func(m *Manifest) { m.Files[1].Name = "config.json" }, "not unique"},
		"case":              {func(m *Manifest) { m.Files[0].Name = "LLM.mnn.weight" }, "have no case"},
		"file and dir":      {func(m *Manifest) { m.Files[1].Name = "config.json/x" }, "directory of"},
		"itself":            {func(m *Manifest) { m.Files[1].Name = "Manifest.json" }, "lists Manifest.json"},
		"below itself":      {func(m *Manifest) { m.Files[1].Name = "manifest.json/x" }, "directory called"},
		"lists signature":   {func(m *Manifest) { m.Files[1].Name = "manifest.sigstore.json" }, "manifest lists manifest.sigstore.json"},
		"lists SIGNATURE":   {func(m *Manifest) { m.Files[1].Name = "Manifest.Sigstore.JSON" }, "manifest lists"},
		"below signature":   {func(m *Manifest) { m.Files[1].Name = "manifest.sigstore.json/x" }, "directory called"},
		"traversal":         {func(m *Manifest) { m.Files[0].Name = "../x" }, "plain relative path"},
		"negative size":     {func(m *Manifest) { m.Files[0].Size = -1 }, "size -1"},
		"overflow":          {func(m *Manifest) { m.Files[0].Size = math.MaxInt64 }, "size"},
		"upper hex":         {func(m *Manifest) { m.Files[0].SHA256 = strings.ToUpper(sumA) }, "lower-case hex"},
		"source role":       {func(m *Manifest) { m.Source.Files[0].Role = "x" }, "has a role"},
		"source hex":        {func(m *Manifest) { m.Source.Files[0].SHA256 = "x" }, "source: config.json"},
		"tensor file":       {func(m *Manifest) { m.Tensors[0].File = "x" }, "not in the package"},
		"tensor part":       {func(m *Manifest) { m.Tensors[0].Part = "a/b" }, "plain file name"},
		"parts of a file":   {func(m *Manifest) { m.Tensors[0].Part = "draft" }, `parts "draft" and ""`},
		"tensor end":        {func(m *Manifest) { m.Tensors[2].Size++ }, "ends at byte"},
		"tensor wraps":      {func(m *Manifest) { m.Tensors[2].Size = math.MaxInt64 }, "size"},
		"tensor negative":   {func(m *Manifest) { m.Tensors[0].Offset = -1 }, "size -1"},
		"tensor hex":        {func(m *Manifest) { m.Tensors[0].SHA256 = "" }, "hex digits"},
		"tensor spec":       {func(m *Manifest) { m.Tensors[0].Spec = "" }, "spec"},
		"failed, verified":  {func(m *Manifest) { m.Checks[0].Passed = false }, "failed"},
		"nothing passed":    {func(m *Manifest) { m.Checks = m.Checks[2:] }, "no check passed"},
		"passed, skipped":   {func(m *Manifest) { m.Checks[2].Passed = true }, "passed and skipped"},
		"check twice":       {func(m *Manifest) { m.Checks[1].Name = "layout" }, "twice"},
		"check NaN":         {func(m *Manifest) { m.Checks[1].Value["mean"] = math.NaN() }, "not a finite number"},
		"metric infinite":   {func(m *Manifest) { m.Metrics["perplexity"] = Metric{Value: math.Inf(1)} }, "not a finite number"},
		"golden prompt":     {func(m *Manifest) { m.Goldens[0].Prompt = nil }, "golden 0: no prompt"},
		"golden output":     {func(m *Manifest) { m.Goldens[0].Output = nil }, "no output"},
		"golden token":      {func(m *Manifest) { m.Goldens[0].Output = []int32{-1} }, "negative token"},
		"golden provenance": {func(m *Manifest) { m.Goldens[0].Provenance = "" }, "provenance"},
		"golden logit":      {func(m *Manifest) { m.Goldens[0].TopLogits[0].Value = float32(math.NaN()) }, "logit of token 7"},
		"pack":              {func(m *Manifest) { m.Threads[0].Pack = 0 }, "pack width"},
		"threads":           {func(m *Manifest) { m.Threads[0].Safe[0] = 0 }, "thread count 0"},
		"safe and unsafe":   {func(m *Manifest) { m.Threads[0].Safe = []int{1, 9} }, "safe and unsafe"},
		"backends":          {func(m *Manifest) { m.Target.Backends[1] = "cpu" }, "backends"},
		"ignored keys":      {func(m *Manifest) { m.IgnoredKeys[1] = "a" }, "ignored config keys"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := full()
			tc.change(m)
			data, err := m.Marshal()
			if data != nil || !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %d bytes and error %v, want one with %q", len(data), err, tc.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	good := string(marshal(t, full()))
	tests := map[string]struct {
		data string
		is   error
		want string
	}{
		"empty":         {"", tensor.ErrCorrupt, "unexpected end"},
		"not JSON":      {"hello", tensor.ErrCorrupt, "invalid character"},
		"no version":    {`{"name":"x"}`, tensor.ErrCorrupt, "not a manifest"},
		"newer":         {resealed(strings.Replace(good, `"manifest": 1`, `"manifest": 2`, 1)), tensor.ErrUnsupported, "version 2"},
		"not newer":     {strings.Replace(good, `"manifest": 1`, `"manifest": 3`, 1), tensor.ErrCorrupt, "version 3, and its digest"},
		"no digest":     {`{"manifest":2,"surprise":1}`, tensor.ErrCorrupt, "version 2, and its digest"},
		"unknown field": {strings.Replace(good, ` "name"`, ` "mane"`, 1), tensor.ErrCorrupt, `"mane"`},
		"other case":    {strings.Replace(good, ` "verified"`, ` "Verified"`, 1), tensor.ErrCorrupt, "canonical"},
		"trailing":      {good + "{}", tensor.ErrCorrupt, "invalid character"},
		"no newline":    {strings.TrimSuffix(good, "\n"), tensor.ErrCorrupt, "canonical"},
		"spacing":       {strings.Replace(good, `"verified": true`, `"verified":true`, 1), tensor.ErrCorrupt, "canonical"},
		"float":         {strings.Replace(good, "94.4853", "94.48530", 1), tensor.ErrCorrupt, "canonical"},
		"twice":         {strings.Replace(good, ` "verified": true`, ` "verified": false,`+"\n"+` "verified": true`, 1), tensor.ErrCorrupt, "canonical"},
		"recipe twice":  {strings.Replace(good, `   "bits": 4`, `   "bits": 8,`+"\n"+`   "bits": 4`, 1), tensor.ErrCorrupt, "canonical"},
		"value":         {strings.Replace(good, "94.4853", "94.4854", 1), tensor.ErrCorrupt, "digest"},
		"digest form":   {strings.Replace(good, `"digest": "sha256:`, `"digest": "sha512:`, 1), tensor.ErrCorrupt, "hex digits"},
		"bad UTF-8":     {strings.Replace(good, "float32 reference", "float32 \xff", 1), tensor.ErrCorrupt, "canonical"},
		"large":         {strings.Repeat(" ", MaxSize+1), tensor.ErrCorrupt, "more than"},
		"deep":          {`{"manifest":1,"recipe":` + strings.Repeat("[", 100_000), tensor.ErrCorrupt, "nested deeper"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.data == good {
				t.Fatal("the change did not apply")
			}
			m, err := Parse([]byte(tc.data))
			if damaged := (*DamagedError)(nil); errors.As(err, &damaged) != (tc.is == tensor.ErrCorrupt) {
				t.Errorf("damaged: %v, error %v", damaged != nil, err)
			}
			if m != nil || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v and error %v, want one with %q", m != nil, err, tc.want)
			}
		})
	}
	t.Run("every truncation", func(t *testing.T) {
		for n := range len(good) {
			if m, err := Parse([]byte(good[:n])); m != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: error %v", n, len(good), err)
			}
		}
	})
	t.Run("every byte", func(t *testing.T) {
		for i := range len(good) {
			bad := []byte(good)
			bad[i] ^= 1 << (i % 8)
			if m, err := Parse(bad); m != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("flipped bit in byte %d (%q): %v", i, good[i], err)
			}
		}
	})
}

// resealed puts the right digest into a manifest.
func resealed(data string) string {
	before, rest, _ := strings.Cut(data, digestField)
	open := before + digestField + rest[strings.IndexByte(rest, '"'):]
	return strings.Replace(open, digestField, digestField+string(digest.Of([]byte(open))), 1)
}

// TestHostile holds what a manifest of 190 KB may take, whatever is in it, to 64 MB.
func TestHostile(t *testing.T) {
	const size, most = 190_000, 64 << 20
	good := string(marshal(t, full()))
	// fill repeats a text between others up to the size.
	fill := func(before, again, after string) string {
		return before + strings.Repeat(again, (size-len(before)-len(after))/len(again)) + after
	}
	recipe := func(v string) string {
		from := strings.Index(good, `"recipe": `)
		return good[:from] + `"recipe": {"x": ` + v + `}, ` + good[strings.Index(good, `"source"`):]
	}
	deep := strings.Repeat("[", 9000)
	inside := func(depth int, again string) string {
		return recipe(strings.Repeat("[", depth) + fill("", again, again[:len(again)-1]) + strings.Repeat("]", depth))
	}
	for name, data := range map[string]string{
		"texts deep inside":   recipe(deep + fill("", `"",`, `""`)[2*len(deep):] + strings.Repeat("]", len(deep))),
		"nested only":         recipe(strings.Repeat("[", size/2) + strings.Repeat("]", size/2)),
		"objects nested only": recipe(strings.Repeat(`{"":`, size/5) + "0" + strings.Repeat("}", size/5)),
		"texts":               inside(29, `"",`),
		"arrays":              inside(28, `[],`),
		"objects":             inside(28, `{"":0},`),
		"nulls":               inside(29, `null,`),
		"numbers":             inside(29, `1e9,`),
		"escapes":             recipe(`"` + fill("", `\u0001`, "") + `"`),
		"wide characters":     recipe(`"` + fill("", "\u2028", "") + `"`),
		"many keys":           recipe("{" + fill("", `"a":0,`, `"b":0`) + "}"),
		"files":               fill(`{"manifest":1,"digest":"sha256:`+sumA+`","files":[`, `{},`, `{}]}`),
		"empty tensors":       fill(`{"manifest":1,"digest":"sha256:`+sumA+`","tensors":[`, `null,`, `null]}`),
		"metrics":             fill(`{"manifest":1,"digest":"sha256:`+sumA+`","metrics":{`, `"":{},`, `"":{}}}`),
		"checks":              fill(`{"manifest":1,"digest":"sha256:`+sumA+`","checks":[`, `{"value":{"":0}},`, `{}]}`),
		"a newer version":     fill(`{"manifest":2,"digest":"sha256:`+sumA+`","x":[`, `{},`, `{}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse([]byte(data))
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("it was accepted")
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("%d bytes took %d: %v", len(data), n, err)
			} else {
				t.Logf("%d bytes took %d: %.200v", len(data), n, err)
			}
		})
	}
}

// What is made here has the bounds of what is read.
func TestMarshalBounds(t *testing.T) {
	m := full()
	m.Recipe = json.RawMessage(`{"x":` + strings.Repeat("[", jsondoc.MaxDepth-2) + strings.Repeat("]", jsondoc.MaxDepth-2) + "}")
	if _, err := Parse(marshal(t, m)); err != nil {
		t.Error(err)
	}
	m.Recipe = json.RawMessage(`{"x":[` + string(m.Recipe[len(`{"x":`):len(m.Recipe)-1]) + "]}")
	if _, err := m.Marshal(); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("a recipe that is too deep: %v", err)
	}
	// Line ends and indents take ten times what they are of.
	m.Recipe = json.RawMessage(`{"x":` + strings.Repeat("[", 29) + strings.Repeat(`"",`, 20_000) + `""` + strings.Repeat("]", 29) + "}")
	data := marshal(t, m)
	if _, _, err := m.seal(len(data)); err != nil {
		t.Error(err)
	}
	if _, _, err := m.seal(len(data) - 1); !errors.Is(err, errLong) {
		t.Errorf("one byte more than the limit: %v", err)
	}
}

func TestCanonical(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"sorted":  {`{"b":1,"a":{"z":null,"y":true}}`, "{\n \"a\": {\n  \"y\": true,\n  \"z\": null\n },\n \"b\": 1\n}\n"},
		"empty":   {`{"a":[],"b":{}}`, "{\n \"a\": [],\n \"b\": {}\n}\n"},
		"numbers": {`[1, 2.50, -0, 1e6, 0.00001, 100000000000000000000, 123456789.5]`, "[1, 2.5, -0, 1e+06, 1e-05, 100000000000000000000, 1.234567895e+08]\n"},
		"mixed":   {`[1,"a"]`, "[\n 1,\n \"a\"\n]\n"},
		"strings": {`"\u003c&\u2028\"\\\/\n\r\t\b\u007f\u00e9"`, "\"<&\u2028\\\"\\\\/\\n\\r\\t\\u0008\x7f\u00e9\"\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Canonical(json.RawMessage(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := Canonical(json.RawMessage(got))
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("canonical form of it is %q, %v", again, err)
			}
		})
	}
	if _, err := Canonical(math.NaN()); err == nil {
		t.Error("NaN was written")
	}
}

func TestCheckName(t *testing.T) {
	good := []string{"a", "llm.mnn.weight", "sub/dir/file", ".hidden", "..a", "con1", "com", "company", "é", "a b", strings.Repeat("x", 255)}
	bad := []string{
		"", ".", "..", "/a", "a/", "a//b", "./a", "a/../b", `a\b`, "C:a", "a\x00", "a\nb", "a\u202eb", "\xff", "a*", "a.", "a ", "a./b",
		"CON", ".git/config", "x/.GIT/hooks/y", "git~1/config", "con.txt", "x/nul", "COM1", "lpt9.log", "aux .txt", "com\u00b9",
		strings.Repeat("x", 256), strings.Repeat("x/", 600) + "x",
	}
	for _, name := range good {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range bad {
		if err := CheckName(name); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds in testdata: %v", err)
	}
	for _, path := range seeds {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := Parse(data); err != nil {
			f.Fatalf("%s is no seed: %v", path, err)
		}
		f.Add(data, false)
		f.Add(data, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		if reseal {
			// No mutation keeps the digest right, so seal what still decodes.
			m := new(Manifest)
			if json.Unmarshal(data, m) != nil {
				return
			}
			var err error
			if data, err = m.Marshal(); err != nil {
				if data != nil {
					t.Fatal("bytes and an error")
				}
				return
			}
		}
		m, err := Parse(data)
		if err != nil {
			if m != nil {
				t.Fatal("manifest and an error")
			}
			if reseal {
				t.Fatalf("Marshal wrote what Parse refuses: %v\n%s", err, data)
			}
			return
		}
		again, err := m.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("parse and marshal gave other bytes: %v", err)
		}
	})
}
