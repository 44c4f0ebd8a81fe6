package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Every tensor is in one shard, which the index names, and no shard of several tensors is larger than asked for.
func TestWriteShards(t *testing.T) {
	dir := t.TempDir()
	tensors := []tensor.Info{{Name: "a", Size: 60}, {Name: "b", Size: 50}, {Name: "c", Size: 50}, {Name: "d", Size: 300}, {Name: "e", Size: 1}}
	var mu sync.Mutex
	written := map[string]string{}
	err := WriteShards(dir, tensors, 100, func(path string, list []tensor.Info) error {
		mu.Lock()
		defer mu.Unlock()
		var size int64
		for _, i := range list {
			written[i.Name] = filepath.Base(path)
			size += i.Size
		}
		if size > 100 && len(list) > 1 {
			t.Errorf("%s has %d bytes", path, size)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Metadata struct {
			Size int64 `json:"total_size"`
		} `json:"metadata"`
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	if index.Metadata.Size != 461 || len(index.Map) != len(tensors) || index.Map["b"] != index.Map["c"] || index.Map["a"] == index.Map["b"] {
		t.Errorf("%s", b)
	}
	for name, shard := range index.Map {
		if written[name] != shard {
			t.Errorf("%s is in %q, the index says %q", name, written[name], shard)
		}
	}
	full := errors.New("no room")
	if err := WriteShards(t.TempDir(), tensors, 100, func(string, []tensor.Info) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}
