package arch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// sentences is the directory of the checkpoints that turn texts into vectors.
const sentences = "../../testdata/sentence"

// modulesOf reads the modules of a checkpoint; nil if it has none.
func modulesOf(t testing.TB, dir string) (list []Module) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "modules.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if b, err := os.ReadFile(filepath.Join(dir, list[i].Path, "config.json")); err == nil && list[i].Path != "" {
			list[i].Config = b
		}
	}
	return list
}

// TestSentences accounts for every key and every tensor of the checkpoints that turn texts into vectors, and tries the changes of
// their configs.
func TestSentences(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(sentences, "*", "model.safetensors"))
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d checkpoints: %v", len(paths), err)
	}
	cases := map[string]int{}
	for _, f := range encoders {
		cases[f.modelType] = 0
	}
	for _, p := range paths {
		dir := filepath.Dir(p)
		modules := modulesOf(t, dir)
		d, n := changesOf(t, dir, Options{Modules: modules})
		if d.ModelType != "qwen3" { // whose keys are tried with its logits
			cases[d.ModelType] += n
		}
		if ck := loadCheckpoint(t, dir); len(d.Claimed) != len(ck.tensors) {
			t.Errorf("%s: %d of %d tensors", dir, len(d.Claimed), len(ck.tensors))
		}
		name := filepath.Base(dir)
		switch {
		case strings.Contains(name, "reranker"):
			if d.Pooling != nil {
				t.Errorf("%s: %+v", name, d.Pooling)
			}
		case d.Pooling == nil || d.Pooling.Pairs != strings.Contains(name, "pairs") || d.Pooling.Normalize != hasModule(modules, "Normalize") ||
			d.Head.Weight.Tensor != "" || d.Tied || d.HeadTensor != "":
			t.Errorf("%s: %+v", name, d.Pooling)
		}
	}
	enough(t, cases)
}

func hasModule(list []Module, name string) bool {
	return slices.ContainsFunc(list, func(m Module) bool { return strings.HasSuffix(m.Type, name) })
}

// TestPoolingRefused: modules that the engine's graph cannot stand for are refused by name.
func TestPoolingRefused(t *testing.T) {
	dir := filepath.Join(sentences, "bert-cls")
	ck, modules := loadCheckpoint(t, dir), modulesOf(t, dir)
	pooling := func(config string) []Module {
		list := slices.Clone(modules)
		list[1].Config = []byte(config)
		return list
	}
	dense := func(config string) []Module {
		return append(slices.Clone(modules[:2]), Module{Type: "sentence_transformers.models.Dense", Path: "2_Dense", Config: []byte(config)})
	}
	module := func(i int, name string) []Module {
		list := slices.Clone(modules)
		list[i].Type = name
		return list
	}
	for _, c := range []struct {
		name    string
		modules []Module
		kind    error
		want    string
	}{
		{"no modules", nil, tensor.ErrUnsupported, "model_type bert is an encoder, and the checkpoint has no modules.json"},
		{"no pooling", modules[:1], tensor.ErrUnsupported, "no modules.json with a module Pooling"},
		{"dense without config", module(2, "sentence_transformers.models.Dense"), tensor.ErrCorrupt, "2_Normalize/config.json: missing"},
		{"dense after the end", []Module{modules[0], modules[1], modules[2], {Type: "x.Dense"}}, tensor.ErrUnsupported, "x.Dense as module 3"},
		{"dense of another size", dense(`{"in_features": 64, "out_features": 8}`), tensor.ErrCorrupt, "in_features: 64, but the vector has 48 elements"},
		{"dense without a size", dense(`{"in_features": 48}`), tensor.ErrCorrupt, "out_features: missing"},
		{"dense with another activation", dense(`{"in_features": 48, "out_features": 8, "activation_function": "torch.nn.modules.activation.GELU"}`),
			tensor.ErrUnsupported, `activation_function: "torch.nn.modules.activation.GELU" is not supported`},
		{"dense with an unknown key", dense(`{"in_features": 48, "out_features": 8, "init_weight": null}`), tensor.ErrUnsupported, "init_weight: unknown to the module Dense"},
		{"dense without weights", dense(`{"in_features": 48, "out_features": 8}`), tensor.ErrCorrupt, "missing: 2_Dense/linear.weight, 2_Dense/linear.bias"},
		{"other transformer", module(0, "sentence_transformers.models.CLIPModel"), tensor.ErrUnsupported, "CLIPModel as module 0"},
		{"normalized first", []Module{modules[0], modules[2], modules[1]}, tensor.ErrUnsupported, "Normalize as module 1"},
		{"pooled twice", []Module{modules[0], modules[1], modules[1]}, tensor.ErrUnsupported, "Pooling as module 2"},
		{"answers of an encoder", []Module{modules[0], {Type: "x.LogitScore"}}, tensor.ErrUnsupported, "LogitScore"},
		{"no config", []Module{modules[0], {Type: "x.Pooling", Path: "1_Pooling"}}, tensor.ErrCorrupt, "1_Pooling/config.json: missing"},
		{"broken config", pooling("{"), tensor.ErrCorrupt, "1_Pooling/config.json"},
		{"two modes", pooling(`{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}`), tensor.ErrUnsupported, "2 modes together"},
		{"no mode", pooling(`{"word_embedding_dimension": 48}`), tensor.ErrUnsupported, "0 modes together"},
		{"max", pooling(`{"pooling_mode_max_tokens": true}`), tensor.ErrUnsupported, "pooling_mode_max_tokens: is not supported"},
		{"weighted mean", pooling(`{"pooling_mode_weightedmean_tokens": true}`), tensor.ErrUnsupported, "pooling_mode_weightedmean_tokens: is not"},
		{"mode by another word", pooling(`{"pooling_mode": "max"}`), tensor.ErrUnsupported, `pooling_mode: "max" is not supported, only "cls" or "lasttoken" or "mean"`},
		{"without prompt", pooling(`{"pooling_mode": "mean", "include_prompt": false}`), tensor.ErrUnsupported, "include_prompt"},
		{"other size", pooling(`{"pooling_mode": "mean", "word_embedding_dimension": 64}`), tensor.ErrCorrupt, "word_embedding_dimension: 64 contradicts hidden_size 48"},
		{"unknown key", pooling(`{"pooling_mode": "mean", "pooling_mode_median": true}`), tensor.ErrUnsupported, "pooling_mode_median: unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := describe(ck.config, ck.tensors, Options{Modules: c.modules})
			if d != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v", d, err)
			}
		})
	}
	llama := loadCheckpoint(t, "testdata/llama")
	if _, err := describe(llama.config, llama.tensors, Options{Modules: pooling(`{"pooling_mode": "lasttoken"}`)}); err == nil ||
		!strings.Contains(err.Error(), "an embedding model of model_type llama is not supported, only of gemma3_text, qwen3") {
		t.Error(err)
	}
}

// TestClassifierRefused: a reranker of ModernBERT is refused for its vocabulary.
func TestClassifierRefused(t *testing.T) {
	ck := loadCheckpoint(t, filepath.Join(sentences, "modernbert-cls"))
	config := edit(t, ck.config, map[string]any{"architectures": []string{"ModernBertForSequenceClassification"}})
	tensors := append(slices.Clone(ck.tensors), tensor.Info{Name: "classifier.weight", DType: tensor.BF16, Shape: tensor.Shape{1, 48}})
	if d, err := describe(config, tensors, Options{}); d != nil || !errors.Is(err, tensor.ErrUnsupported) ||
		!strings.Contains(err.Error(), "a classifier of ModernBERT is not supported: the engine's class for pairs has the token ids of XLM-R built in") {
		t.Errorf("%v, %v", d, err)
	}
}

// TestPoolingNewKeys: newer releases of sentence-transformers name the mode and the size in other keys.
func TestPoolingNewKeys(t *testing.T) {
	for word, want := range newModes {
		p, err := readPooling(Module{Path: "1_Pooling", Config: []byte(`{"embedding_dimension": 48, "pooling_mode": "` + word + `", "include_prompt": true}`)}, 48)
		if err != nil || p.Of != want {
			t.Errorf("%s: %+v, %v", word, p, err)
		}
	}
}

// FuzzPooling: whatever the configuration of a pooling says, it is described with one mode or refused.
func FuzzPooling(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join(sentences, "*", "1_Pooling", "config.json"))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"pooling_mode": "mean"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readPooling(Module{Path: "1_Pooling", Config: b}, 48)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if err != nil && !errors.Is(err, tensor.ErrUnsupported) && !errors.Is(err, tensor.ErrCorrupt) {
			t.Fatal(err)
		}
		if p != nil && p.Of != FirstToken && p.Of != LastToken && p.Of != MeanTokens {
			t.Fatal(p.Of)
		}
	})
}
