package stage_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkpoint is a copy that a test damages.
type checkpoint struct {
	t   testing.TB
	dir string
}

func (c checkpoint) path(name string) string { return filepath.Join(c.dir, name) }

func (c checkpoint) remove(name string) {
	c.t.Helper()
	if err := os.Remove(c.path(name)); err != nil {
		c.t.Fatal(err)
	}
}

func (c checkpoint) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), 0o666); err != nil {
		c.t.Fatal(err)
	}
}

// set changes a key of a JSON file; nil removes it.
func (c checkpoint) set(name, key string, value any) {
	c.t.Helper()
	change(c.t, c.path(name), func(b []byte) []byte {
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			c.t.Fatal(err)
		}
		if m[key] = value; value == nil {
			delete(m, key)
		}
		b, err := json.Marshal(m)
		if err != nil {
			c.t.Fatal(err)
		}
		return b
	})
}

// elements hands out the bytes of a tensor of bfloat16.
func (c checkpoint) elements(name string, edit func(b []byte)) {
	c.t.Helper()
	change(c.t, c.path("model.safetensors"), func(b []byte) []byte {
		head := 8 + int(binary.LittleEndian.Uint64(b))
		var entries map[string]struct {
			DType   string `json:"dtype"`
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(b[8:head], &entries); err != nil {
			c.t.Fatal(err)
		}
		e, ok := entries[name]
		if !ok || e.DType != "BF16" {
			c.t.Fatalf("%s: %q", name, e.DType)
		}
		edit(b[head+e.Offsets[0] : head+e.Offsets[1]])
		return b
	})
}

// element sets the first element of a tensor to the bits of a bfloat16.
func (c checkpoint) element(name string, bits uint16) {
	c.t.Helper()
	c.elements(name, func(b []byte) { binary.LittleEndian.PutUint16(b, bits) })
}

// scale multiplies a tensor by 2^exponent.
func (c checkpoint) scale(name string, exponent int) {
	c.t.Helper()
	c.elements(name, func(b []byte) {
		for i := 0; i < len(b); i += 2 {
			v := binary.LittleEndian.Uint16(b[i:])
			if was := int(v >> 7 & 0xff); was != 0 { // else zero, or as good as zero
				v = v&0x807f | uint16(min(max(was+exponent, 0), 254))<<7
			}
			binary.LittleEndian.PutUint16(b[i:], v)
		}
	})
}

// shards renames the only shard and writes an index that maps tensors to shards.
func (c checkpoint) shards(edit func(index map[string]string)) {
	c.t.Helper()
	const shard = "model-00001-of-00002.safetensors"
	b, err := os.ReadFile(c.path("model.safetensors"))
	if err != nil {
		c.t.Fatal(err)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+binary.LittleEndian.Uint64(b)], &header); err != nil {
		c.t.Fatal(err)
	}
	delete(header, "__metadata__")
	index := map[string]string{}
	for name := range header {
		index[name] = shard
	}
	edit(index)
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": index})
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("model.safetensors.index.json", string(text))
	if err := os.Rename(c.path("model.safetensors"), c.path(shard)); err != nil {
		c.t.Fatal(err)
	}
}

const up = "model.layers.0.mlp.up_proj.weight"

// A checkpoint that is damaged, or that is not understood, is refused by one error that names the thing; nothing is
// published, and nothing that could be taken for a package stays.
func TestBadCheckpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(c checkpoint)
		want   error
		text   string
	}{
		{"shard cut", func(c checkpoint) {
			change(c.t, c.path("model.safetensors"), func(b []byte) []byte { return b[:len(b)-100] })
		}, tensor.ErrCorrupt, "model.safetensors"},
		{"shard cut within its header", func(c checkpoint) {
			change(c.t, c.path("model.safetensors"), func(b []byte) []byte { return b[:100] })
		}, tensor.ErrCorrupt, "model.safetensors"},
		{"shard empty", func(c checkpoint) { c.write("model.safetensors", "") }, tensor.ErrCorrupt, "model.safetensors"},
		{"shard longer", func(c checkpoint) {
			change(c.t, c.path("model.safetensors"), func(b []byte) []byte { return append(b, 0) })
		}, tensor.ErrCorrupt, "model.safetensors"},
		{"no shard", func(c checkpoint) { c.remove("model.safetensors") }, fs.ErrNotExist, "model.safetensors"},
		{"shard missing", func(c checkpoint) {
			c.shards(func(m map[string]string) { m[up] = "model-00002-of-00002.safetensors" })
		}, fs.ErrNotExist, "model-00002-of-00002.safetensors"},
		{"index with a tensor too many", func(c checkpoint) {
			c.shards(func(m map[string]string) { m["model.extra.weight"] = "model-00001-of-00002.safetensors" })
		}, tensor.ErrCorrupt, "model.extra.weight"},
		{"index with a tensor too few", func(c checkpoint) {
			c.shards(func(m map[string]string) { delete(m, up) })
		}, tensor.ErrCorrupt, up},
		{"index that leads out", func(c checkpoint) {
			c.shards(func(m map[string]string) { m[up] = "../model.safetensors" })
		}, tensor.ErrCorrupt, "../model.safetensors"},
		{"index garbage", func(c checkpoint) {
			c.shards(func(map[string]string) {})
			c.write("model.safetensors.index.json", "{")
		}, tensor.ErrCorrupt, "model.safetensors.index.json"},
		{"NaN", func(c checkpoint) { c.element(up, 0x7fc0) }, tensor.ErrCorrupt, up},
		{"infinity", func(c checkpoint) { c.element(up, 0xff80) }, tensor.ErrCorrupt, up},
		{"NaN in a norm", func(c checkpoint) { c.element("model.norm.weight", 0x7fc0) }, tensor.ErrCorrupt, "model.norm.weight"},
		{"NaN in the table", func(c checkpoint) { c.element("model.embed_tokens.weight", 0x7fc0) }, tensor.ErrCorrupt, "model.embed_tokens.weight"},
		{"no tokenizer", func(c checkpoint) { c.remove("tokenizer.json") }, tensor.ErrUnsupported, "tokenizer.json"},
		{"tokenizer garbage", func(c checkpoint) { c.write("tokenizer.json", "{\"model\":") }, tensor.ErrCorrupt, "tokenizer"},
		{"tokenizer cut", func(c checkpoint) {
			change(c.t, c.path("tokenizer.json"), func(b []byte) []byte { return b[:len(b)/2] })
		}, tensor.ErrCorrupt, "tokenizer"},
		{"tokenizer empty", func(c checkpoint) { c.write("tokenizer.json", "") }, tensor.ErrCorrupt, "tokenizer"},
		{"tokenizer of another kind", func(c checkpoint) {
			c.set("tokenizer.json", "model", map[string]any{"type": "Unigram", "vocab": []any{}})
		}, tensor.ErrUnsupported, "Unigram"},
		{"no config", func(c checkpoint) { c.remove("config.json") }, tensor.ErrUnsupported, "config.json"},
		{"config garbage", func(c checkpoint) { c.write("config.json", "{") }, tensor.ErrCorrupt, "config.json"},
		{"config without a key", func(c checkpoint) { c.set("config.json", "hidden_size", nil) }, tensor.ErrCorrupt, "hidden_size"},
		{"config without layers", func(c checkpoint) { c.set("config.json", "num_hidden_layers", nil) }, tensor.ErrCorrupt, "num_hidden_layers"},
		{"config of a larger model", func(c checkpoint) {
			c.set("config.json", "num_hidden_layers", 9)
			c.set("config.json", "layer_types", nil)
		}, tensor.ErrCorrupt, "model.layers."},
		{"config of a smaller model", func(c checkpoint) {
			c.set("config.json", "num_hidden_layers", 1)
			c.set("config.json", "layer_types", nil)
		}, tensor.ErrUnsupported, "model.layers.1."},
		{"layers that config counts otherwise", func(c checkpoint) { c.set("config.json", "num_hidden_layers", 2) }, tensor.ErrCorrupt, "layer_types"},
		{"quantized in another way", func(c checkpoint) {
			c.set("config.json", "quantization_config", map[string]any{"quant_method": "bitsandbytes", "load_in_4bit": true})
		}, tensor.ErrUnsupported, "quantization_config"},
		{"another model type", func(c checkpoint) { c.set("config.json", "model_type", "mamba") }, tensor.ErrUnsupported, "mamba"},
		{"an unknown key", func(c checkpoint) { c.set("config.json", "logits_scaling", 0.5) }, tensor.ErrUnsupported, "logits_scaling"},
		{"eos that is no token", func(c checkpoint) { c.set("config.json", "eos_token_id", 31999) }, tensor.ErrCorrupt, "31999"},
		{"eos that is a word", func(c checkpoint) { c.set("config.json", "eos_token_id", "end") }, tensor.ErrCorrupt, "eos_token_id"},
		{"generation config garbage", func(c checkpoint) { c.write("generation_config.json", "[") }, tensor.ErrCorrupt, "generation_config.json"},
		{"tokenizer config garbage", func(c checkpoint) { c.write("tokenizer_config.json", "null,") }, tensor.ErrCorrupt, "tokenizer_config.json"},
		{"eos text that is no token", func(c checkpoint) { c.set("tokenizer_config.json", "eos_token", "<nothing>") }, tensor.ErrCorrupt, "<nothing>"},
		{"templates without a default", func(c checkpoint) {
			c.set("tokenizer_config.json", "chat_template", []any{map[string]any{"name": "rag", "template": "x"}})
		}, tensor.ErrUnsupported, "chat_template"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cp := checkpoint{t, t.TempDir()}
			for _, n := range []string{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
				b, err := os.ReadFile(families + "qwen3-untied/" + n)
				if err != nil {
					t.Fatal(err)
				}
				cp.write(n, string(b))
			}
			c.damage(cp)
			w := newWork(t, cp.dir, "quantize: {block: 32}\nverify: {enabled: false}")
			_, err := w.run(t)
			if err == nil {
				t.Fatal("it was exported")
			}
			t.Log(strings.ReplaceAll(err.Error(), cp.dir, "DIR"))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("want %v, and %q", c.want, c.text)
			}
			if errors.Is(err, tensor.ErrCorrupt) && errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("both sentinels: %v", err)
			}
			nothing(t, w)
		})
	}
}

// nothing demands that a run that failed left no package, and no finished record behind its last good stage.
func nothing(t testing.TB, w work) {
	t.Helper()
	if _, err := os.Stat(filepath.Dir(w.out())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was published: %v", err)
	}
	for name := range tree(t, w.cache()) {
		if base := filepath.Base(name); base == manifest.FileName || strings.HasSuffix(base, ".tmp") || strings.HasPrefix(name, "package-") {
			t.Errorf("%s was left", name)
		}
	}
}

func TestBadPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path, text string
	}{
		{"nowhere", "missing", "missing"},
		{"a file", "file", "file"},
		{"an empty directory", "empty", "contains no checkpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "empty"), 0o777); err != nil {
				t.Fatal(err)
			}
			w := newWork(t, filepath.Join(dir, c.path), "verify: {enabled: false}")
			_, err := w.run(t)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %q", err, c.text)
			}
			nothing(t, w)
		})
	}
}

// Options are refused at their place in the recipe, before anything is read.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sections, key, text string }{
		{"engine 3.5 with fp16 scales", "target: {engine: \"3.5\"}\nquantize: {scale: fp16}", "quantize.scale", "misreads fp16"},
		{"an override with fp16 scales", "target: {engine: \"3.5\"}\nquantize: {overrides: [{match: a, scale: fp16}]}",
			"quantize.overrides[0].scale", "misreads fp16"},
		{"scale", "quantize: {scale: bf16}", "quantize.scale", "fp16 or fp32"},
		{"bits", "quantize: {bits: 7}", "quantize.bits", "7"},
		{"block", "quantize: {block: 48}", "quantize.block", "48"},
		{"block 0", "quantize: {block: 0}", "quantize.block", "0"},
		{"method", "quantize: {method: magic}", "quantize.method", "magic"},
		{"no method", "quantize: {method: []}", "quantize.method", "chooses codes"},
		{"two methods", "quantize: {method: [rtn, rtn]}", "quantize.method", "named twice"},
		{"two that choose codes", "quantize: {method: [rtn, gptq]}", "quantize.method", "both choose codes"},
		{"a folding too late", "quantize: {method: [gptq, awq]}", "quantize.method", "before gptq"},
		{"tuning alone", "quantize: {method: distill}", "quantize.method", "after a method"},
		{"a rotation behind", "quantize: {method: [gptq, rotation]}", "quantize.method", "must come first"},
		{"a rotation without gptq", "quantize: {method: [rotation, rtn]}", "quantize.method", "is gptq"},
		{"an option of a method", "quantize: {method: {gptq: {dampening: 0.1}}}", "quantize.method", "dampening"},
		{"a rotation of a tied model", "quantize: {method: [rotation, gptq], block: 32}", "quantize.method", "tied"},
		{"import", "quantize: {import: drop}", "quantize.import", "requantize"},
		{"an empty budget", "quantize: {budget: {}}", "quantize.budget", "one of"},
		{"a budget of two things", "quantize: {budget: {bytes: 1MB, kl: 0.1}}", "quantize.budget", "one of"},
		{"a budget of no bits", "quantize: {budget: {bpw: -1}}", "quantize.budget.bpw", "-1"},
		{"a budget of too many bits", "quantize: {budget: {bpw: 17}}", "quantize.budget.bpw", "17"},
		{"a budget below nothing", "quantize: {budget: {kl: -1}}", "quantize.budget.kl", "-1"},
		{"no text", "calibrate: {data: []}", "calibrate.data", "text"},
		{"a short window", "calibrate: {window: 8}", "calibrate.window", "16"},
		{"less than a window", "calibrate: {tokens: 100}", "calibrate.tokens", "window"},
		{"a probe of nothing", "calibrate: {probe: 0}", "calibrate.probe", "window"},
		{"half a window skipped", "calibrate: {skip: 256}", "calibrate.skip", "half"},
		{"text from nowhere", "calibrate: {data: [{weight: 2}]}", "calibrate.data[0]", "samples or a path"},
		{"text from both", "calibrate: {data: [{samples: true, path: a.txt}]}", "calibrate.data[0]", "samples or a path"},
		{"samples in a column", "calibrate: {data: [{samples: true, column: text}]}", "calibrate.data[0]", "weight"},
		{"a weight of nothing", "calibrate: {data: [{samples: true, weight: 0}]}", "calibrate.data[0].weight", "more than 0"},
		{"text without a format", "calibrate: {data: [notes.doc]}", "calibrate.data[0]", "format"},
		{"a digest that is none", "calibrate: {data: [{path: a.txt, sha256: abc}]}", "calibrate.data[0]", "hex"},
		{"pattern", "quantize: {overrides: [{match: \"(\"}]}", "quantize.overrides[0].match", "not a pattern"},
		{"empty pattern", "quantize: {overrides: [{bits: 8}]}", "quantize.overrides[0].match", "empty"},
		{"bits of an override", "quantize: {overrides: [{match: a, bits: 9}]}", "quantize.overrides[0].bits", "9"},
		{"block of an override", "quantize: {overrides: [{match: a, block: auto}]}", "quantize.overrides[0].block", "auto"},
		{"a pattern that matches nothing", "quantize: {block: 32, overrides: [{match: down, bits: 8}, {match: no_such, bits: 8}]}",
			"quantize.overrides[1].match", "matches no matrix"},
		{"a misspelt key", "quantize: {bitts: 4}", "quantize.bitts", "bits"},
		{"window", "verify: {perplexity: {window: 7}}", "verify.perplexity.window", "8"},
		{"windows", "verify: {perplexity: {windows: -1}}", "verify.perplexity.windows", "negative"},
		{"ratio", "verify: {perplexity: {max_ratio: 0}}", "verify.perplexity.max_ratio", "more than 0"},
		{"kl", "verify: {kl: {max: -1}}", "verify.kl.max", "negative"},
		{"hard strings", "verify: {tokenizer: {max_hard: 1.5}}", "verify.tokenizer.max_hard", "between"},
		{"two places in one", "publish: [{}]", "publish[0]", "one place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+"qwen3-tied", c.sections)
			_, err := w.run(t)
			var at *recipes.Error
			if !errors.As(err, &at) {
				t.Fatalf("no place in the recipe: %v", err)
			}
			if at.Line < 4 || !strings.HasPrefix(at.Message, c.key+": ") || !strings.Contains(at.Message, c.text) {
				t.Errorf("line %d: %s, want %s with %q", at.Line, at.Message, c.key, c.text)
			}
			nothing(t, w)
		})
	}
}

// A text or golden file that cannot be used is found at its place in the recipe, and nothing is published.
func TestBadVerifyFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sections, key, text string }{
		{"no text", "verify: {perplexity: {text: absent.txt}}", "verify.perplexity.text", "absent.txt"},
		{"another text", "verify: {perplexity: {text: {path: recipe.yaml, sha256: \"00\"}}}", "verify.perplexity.text", "SHA-256"},
		{"no golden file", "verify: {golden: absent.json}", "verify.golden", "absent.json"},
		{"golden garbage", "verify: {golden: recipe.yaml}", "verify.golden", "golden file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\n"+c.sections)
			_, err := w.run(t)
			var at *recipes.Error
			if !errors.As(err, &at) || !strings.HasPrefix(at.Message, c.key+": ") || !strings.Contains(at.Message, c.text) {
				t.Errorf("%v, want %s with %q", err, c.key, c.text)
			}
			nothing(t, w)
		})
	}
}
