package arch

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkpoints lists the directories of testdata that hold a checkpoint: a model type, and what is special about it.
func checkpoints(t testing.TB) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/model.safetensors")
	if err != nil || len(paths) < 50 {
		t.Fatalf("%d checkpoints: %v", len(paths), err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	return names
}

// withoutCheckpoint are the model types that transformers has no code for, or has under another name, so that no
// checkpoint with recorded logits can be made.
var withoutCheckpoint = []string{"baichuan", "chatglm", "internlm2", "kimi_k2", "minicpm"}

// TestCheckpoints accounts for every key and every tensor of the checkpoints, and every family has one.
func TestCheckpoints(t *testing.T) {
	without := map[string]bool{}
	for _, f := range families {
		without[f.modelType] = true
	}
	for _, name := range checkpoints(t) {
		t.Run(name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", name))
			d, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			delete(without, d.ModelType)
			if !strings.HasPrefix(name, d.ModelType) || len(d.Claimed) != len(ck.tensors) {
				t.Errorf("%s with %d of %d tensors", d.ModelType, len(d.Claimed), len(ck.tensors))
			}
		})
	}
	if diff := cmp.Diff(withoutCheckpoint, slices.Sorted(maps.Keys(without))); diff != "" {
		t.Errorf("families without a checkpoint in testdata: -want +got\n%s", diff)
	}
}
