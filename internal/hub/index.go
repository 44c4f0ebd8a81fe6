package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

// isShard reports whether name is the name of a weights file.
func isShard(name string) bool { return strings.HasSuffix(name, ".safetensors") }

// readIndex returns the shards that the index in dir names. Without an index the error is fs.ErrNotExist.
func readIndex(dir string) (map[string]bool, error) {
	b, err := disk.ReadFile(filepath.Join(dir, indexFile), maxRecord)
	if err != nil {
		return nil, err
	}
	return parseIndex(b)
}

func parseIndex(b []byte) (map[string]bool, error) {
	var index struct {
		Shards map[string]string `json:"weight_map"`
	}
	if err := jsondoc.Decode(b, &index); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", indexFile, err, fault.ErrCorrupt)
	}
	if len(index.Shards) == 0 {
		return nil, fmt.Errorf("%s: names no shards: %w", indexFile, fault.ErrCorrupt)
	}
	names := map[string]bool{}
	for _, shard := range index.Shards {
		if !safePath(shard) || strings.Contains(shard, "/") || !isShard(shard) {
			return nil, fmt.Errorf("%s: shard %.200q: %w", indexFile, shard, fault.ErrCorrupt)
		}
		names[shard] = true
	}
	return names, nil
}

// inIndex returns the weights to read: model.safetensors, or else the shards that the index in dir names. missing is a shard
// that the index names and the list lacks; empty if there is none.
func inIndex[T interface{ name() string }](dir string, files []T) (read []T, missing string, err error) {
	want := map[string]bool{singleFile: true}
	if !slices.ContainsFunc(files, func(f T) bool { return f.name() == singleFile }) {
		want, err = readIndex(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return files, "", nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	read = slices.DeleteFunc(slices.Clone(files), func(f T) bool { return isShard(f.name()) && !want[f.name()] && !moduleWeights.MatchString(f.name()) })
	for _, f := range read {
		delete(want, f.name())
	}
	if len(want) > 0 {
		missing = slices.Min(slices.Collect(maps.Keys(want)))
	}
	return read, missing, nil
}

// notListed is the error for an index that names a shard missing from its repository.
func notListed(shard string) error {
	return fmt.Errorf("%s names the shard %.100s, which the repository does not have: %w", indexFile, shard, fault.ErrCorrupt)
}

func (f File) name() string { return f.Name }
