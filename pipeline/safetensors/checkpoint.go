package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// Checkpoint is the weights of a directory: one file, or the shards that an index names. It is a
// [tensor.Source]; all methods are safe for concurrent use.
type Checkpoint struct {
	shards []*shard
	infos  []tensor.Info // sorted by name
	places []place       // of infos
}

type place struct {
	shard  *shard
	offset int64
}

var _ tensor.Source = (*Checkpoint)(nil)

// OpenDir opens the checkpoint in dir: model.safetensors, or else the shards that
// model.safetensors.index.json names, the order in which transformers looks for them. Only headers are
// read. Every shard must exist and each tensor be in exactly one of them, the one the index names; sizes
// must add up. Any contradiction is tensor.ErrCorrupt and names file and tensor; a directory that holds
// weights in another format only is tensor.ErrUnsupported. The caller closes the checkpoint.
//
// modules are directories below dir with a model.safetensors of their own; the names of its tensors begin with the directory,
// as in "2_Dense/linear.weight".
func OpenDir(dir string, modules ...string) (*Checkpoint, error) {
	c := &Checkpoint{}
	single, err := exists(filepath.Join(dir, singleFile))
	if err == nil {
		err = c.open(dir, single, modules, func(name string) (*shard, *Header, error) { return openShard(dir, name) })
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// opener opens a shard and reads its header.
type opener func(name string) (*shard, *Header, error)

func (c *Checkpoint) open(dir string, single bool, modules []string, open opener) error {
	files := make([]string, 0, len(modules))
	for _, m := range modules {
		files = append(files, path.Join(m, singleFile))
	}
	if single {
		return c.addAll(append([]string{singleFile}, files...), open)
	}
	x, err := readIndex(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return otherFormat(dir)
	}
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, shard := range x.shards {
		names[shard] = true
	}
	if err := c.addAll(append(slices.Sorted(maps.Keys(names)), files...), open); err != nil {
		return err
	}
	return x.check(c)
}

// addAll opens shards, several at a time. An error is that of the first bad one.
func (c *Checkpoint) addAll(names []string, open opener) error {
	atOnce := runtime.GOMAXPROCS(0)
	var found [][]Entry // of c.shards
	for batch := range slices.Chunk(names, 4*atOnce) {
		places := make(chan struct{}, atOnce)
		headers, errs := make([]*Header, len(batch)), make([]error, len(batch))
		shards := make([]*shard, len(batch))
		var wg sync.WaitGroup
		for i, name := range batch {
			wg.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				shards[i], headers[i], errs[i] = open(name)
			})
		}
		wg.Wait()
		// Close closes the opened shards even if one fails.
		c.shards = append(c.shards, slices.DeleteFunc(slices.Clone(shards), func(s *shard) bool { return s == nil })...)
		for i, name := range batch {
			if errors.Is(errs[i], fs.ErrNotExist) {
				by := indexFile
				if name == singleFile || strings.Contains(name, "/") {
					by = "the checkpoint"
				}
				return fmt.Errorf("shard %s is missing: %s names it: %w", name, by, errs[i])
			}
			if err := errs[i]; err != nil {
				return err
			}
			if module, _ := path.Split(name); module != "" {
				for k := range headers[i].Entries {
					headers[i].Entries[k].Name = module + headers[i].Entries[k].Name
				}
			}
			found = append(found, headers[i].Entries)
		}
	}
	return c.arrange(found)
}

// arrange sorts the tensors of all shards.
func (c *Checkpoint) arrange(found [][]Entry) error {
	type ref struct {
		name         string
		shard, entry int32
	}
	n := 0
	for _, entries := range found {
		n += len(entries)
	}
	refs := make([]ref, 0, n) // which move more easily than entries
	for i, entries := range found {
		for k := range entries {
			refs = append(refs, ref{entries[k].Name, int32(i), int32(k)})
		}
	}
	slices.SortFunc(refs, func(a, b ref) int { return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.shard, b.shard)) })
	c.infos, c.places = make([]tensor.Info, n), make([]place, n)
	for i, r := range refs {
		if i > 0 && r.name == refs[i-1].name {
			return corrupt("tensor %s: in %s and in %s", quote(r.name), c.shards[refs[i-1].shard].name, c.shards[r.shard].name)
		}
		e := &found[r.shard][r.entry]
		c.infos[i], c.places[i] = e.Info, place{c.shards[r.shard], e.Offset}
		c.infos[i].File = c.shards[r.shard].name
	}
	return nil
}

// find gives the position of a tensor.
func (c *Checkpoint) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.infos, name, func(t tensor.Info, name string) int { return strings.Compare(t.Name, name) })
}

// Tensors lists all tensors, sorted by name. File is the shard's name within the directory. The list must not be changed.
func (c *Checkpoint) Tensors() []tensor.Info { return slices.Clip(c.infos) }

// Open returns a tensor's bytes. A file that has become shorter since OpenDir gives tensor.ErrCorrupt
// and never an early io.EOF. An unknown name is fs.ErrNotExist.
func (c *Checkpoint) Open(name string) (*io.SectionReader, error) {
	i, ok := c.find(name)
	if !ok {
		return nil, fmt.Errorf("tensor %s: %w", quote(name), fs.ErrNotExist)
	}
	return io.NewSectionReader(c.places[i].shard, c.places[i].offset, c.infos[i].Size), nil
}

// Files lists the names of the shards within the directory, sorted.
func (c *Checkpoint) Files() []string {
	names := make([]string, len(c.shards))
	for i, s := range c.shards {
		names[i] = s.name
	}
	return names
}

// Close closes the shards; readers from Open fail from then on.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// otherFormat explains why dir has no checkpoint.
func otherFormat(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		n := f.Name()
		switch filepath.Ext(n) {
		case ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx":
			return fmt.Errorf("%s holds %s and neither %s nor %s: only safetensors checkpoints: %w",
				dir, n, singleFile, indexFile, tensor.ErrUnsupported)
		case ".safetensors":
			return fmt.Errorf("%s holds %s and neither %s nor %s: rename it, or add the index that names it: %w",
				dir, n, singleFile, indexFile, tensor.ErrUnsupported)
		}
	}
	return fmt.Errorf("%s holds neither %s nor %s: %w", dir, singleFile, indexFile, fs.ErrNotExist)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
