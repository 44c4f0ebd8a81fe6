package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// WriteHoles writes the shards of a checkpoint, see [WriteShards], with headers and without elements: what lies after a header is a
// hole in the file, which reads as zeros and takes no disk.
func WriteHoles(dir string, tensors []tensor.Info, shardBytes int64) error {
	return WriteShards(dir, tensors, shardBytes, writeHole)
}

// WriteShards lets write write the shards of a checkpoint, of about shardBytes each and several at the same time, and writes their index.
// Tensors stay in the order in which they are given.
func WriteShards(dir string, tensors []tensor.Info, shardBytes int64, write func(path string, tensors []tensor.Info) error) error {
	var shards [][]tensor.Info
	var size, total int64
	for _, t := range tensors {
		if len(shards) == 0 || size+t.Size > shardBytes {
			shards, size = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], t)
		size, total = size+t.Size, total+t.Size
	}
	places := map[string]string{}
	var g errgroup.Group
	for i, list := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range list {
			places[t.Name] = name
		}
		g.Go(func() error { return write(filepath.Join(dir, name), list) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": places})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), b, 0o666)
}

func writeHole(path string, tensors []tensor.Info) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	size, err := shard.WriteHeader(w, tensors)
	if err = errors.Join(err, w.Flush()); err != nil {
		return err
	}
	return f.Truncate(size)
}
