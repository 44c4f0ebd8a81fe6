package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	infoA = tensor.Info{Name: "a.weight", DType: tensor.BF16, Shape: tensor.Shape{2, 3}, Size: 12, File: "s1.safetensors"}
	infoB = tensor.Info{Name: "b.weight", DType: tensor.F32, Shape: tensor.Shape{4}, Size: 16, File: "s1.safetensors"}
	infoC = tensor.Info{Name: "c.weight", DType: tensor.F8E4M3, Shape: tensor.Shape{5}, Size: 5, File: "s2.safetensors"}
)

// sharded is a sound checkpoint of two shards as name to content.
func sharded(t *testing.T) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"s1.safetensors": write(t, []tensor.Info{infoA, infoB}),
		"s2.safetensors": write(t, []tensor.Info{infoC}),
		indexFile: []byte(`{"metadata":{"total_size":33,"total_parameters":15},"weight_map":{"c.weight":"s2.safetensors",` +
			`"a.weight":"s1.safetensors","b.weight":"s1.safetensors"},"other":[1]}`),
	}
}

func lay(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenDir(t *testing.T) {
	single := infoB
	single.File = singleFile
	for _, c := range []struct {
		name  string
		files map[string][]byte
		infos []tensor.Info
		shard []string
	}{
		{"shards", sharded(t), []tensor.Info{infoA, infoB, infoC}, []string{"s1.safetensors", "s2.safetensors"}},
		{"one file", map[string][]byte{singleFile: write(t, []tensor.Info{infoB})}, []tensor.Info{single}, []string{singleFile}},
		{"one file wins over an index", map[string][]byte{singleFile: write(t, []tensor.Info{infoB}), indexFile: nil}, []tensor.Info{single}, []string{singleFile}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ck, err := OpenDir(lay(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			if d := cmp.Diff(c.infos, ck.Tensors()); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.shard, ck.Files()); d != "" {
				t.Error(d)
			}
			var wg sync.WaitGroup
			for range 4 {
				for _, info := range c.infos {
					wg.Go(func() {
						r, err := ck.Open(info.Name)
						if err != nil {
							t.Error(err)
							return
						}
						b, err := io.ReadAll(r)
						if err != nil || !bytes.Equal(b, contentOf(info)) || r.Size() != info.Size {
							t.Errorf("%s: %d bytes, %v", info.Name, len(b), err)
						}
					})
				}
			}
			wg.Wait()
			if _, err := ck.Open("none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none") {
				t.Error(err)
			}
		})
	}
}

func TestOpenDirRefuses(t *testing.T) {
	index := func(text string) func(map[string][]byte) {
		return func(f map[string][]byte) { f[indexFile] = []byte(text) }
	}
	replace := func(old, new string) func(map[string][]byte) {
		return func(f map[string][]byte) {
			f[indexFile] = bytes.Replace(f[indexFile], []byte(old), []byte(new), 1)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(map[string][]byte)
		is     error
		want   string
	}{
		{"missing shard", func(f map[string][]byte) { delete(f, "s2.safetensors") }, fs.ErrNotExist, "shard s2.safetensors is missing"},
		{"tensor in two shards", func(f map[string][]byte) { f["s2.safetensors"] = f["s1.safetensors"] }, tensor.ErrCorrupt,
			`"a.weight": in s1.safetensors and in s2.safetensors`},
		{"other keys", replace(`"other":[1]`, `"x":{"y":[null]}`), nil, ""},
		{"tensor not in the index", replace(`"a.weight":"s1.safetensors",`, ``), tensor.ErrCorrupt, `"a.weight": in "s1.safetensors" and not in`},
		{"tensor in no shard", replace(`"weight_map":{`, `"weight_map":{"d":"s1.safetensors",`), tensor.ErrCorrupt, `"d": model.safetensors.index.json places it`},
		{"tensor in another shard", replace(`"a.weight":"s1`, `"a.weight":"s2`), tensor.ErrCorrupt, `it is in "s1.safetensors"`},
		{"tensor twice in the index", replace(`"weight_map":{`, `"weight_map":{"a.weight":"s1.safetensors",`), tensor.ErrCorrupt, "comes twice"},
		{"stale total", replace("33", "34"), nil, ""},
		{"no total", replace(`"total_size":33,`, ""), nil, ""},
		{"total is a string", replace("33", `"33"`), nil, ""},
		{"parent directory", replace(`"s2.safetensors"`, `"../s2.safetensors"`), tensor.ErrCorrupt, "plain file name"},
		{"absolute", replace(`"s2.safetensors"`, `"/s2.safetensors"`), tensor.ErrCorrupt, "plain file name"},
		{"sub-directory", replace(`"s2.safetensors"`, `"a/s2.safetensors"`), tensor.ErrCorrupt, "plain file name"},
		{"backslash", replace(`"s2.safetensors"`, `"a\\s2.safetensors"`), tensor.ErrCorrupt, "plain file name"},
		{"the directory itself", replace(`"s2.safetensors"`, `"."`), tensor.ErrCorrupt, "plain file name"},
		{"empty name", replace(`"s2.safetensors"`, `""`), tensor.ErrCorrupt, "plain file name"},
		{"drive", replace(`"s2.safetensors"`, `"c:s2"`), tensor.ErrCorrupt, "plain file name"},
		{"no map", index(`{"metadata":{}}`), tensor.ErrCorrupt, "names no tensor"},
		{"index is not JSON", index(`{"weight_map":`), tensor.ErrCorrupt, indexFile},
		{"index is empty", index(``), tensor.ErrCorrupt, indexFile},
		{"truncated shard", func(f map[string][]byte) { f["s1.safetensors"] = f["s1.safetensors"][:200] }, tensor.ErrCorrupt, "s1.safetensors: "},
		{"bin only", func(f map[string][]byte) { clear(f); f["pytorch_model.bin"] = nil }, tensor.ErrUnsupported, "pytorch_model.bin"},
		{"gguf only", func(f map[string][]byte) { clear(f); f["m.gguf"] = nil }, tensor.ErrUnsupported, "m.gguf"},
		{"other safetensors", func(f map[string][]byte) { clear(f); f["consolidated.safetensors"] = nil }, tensor.ErrUnsupported, "consolidated.safetensors"},
		{"nothing", func(f map[string][]byte) { clear(f) }, fs.ErrNotExist, "holds neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := sharded(t)
			c.damage(files)
			ck, err := OpenDir(lay(t, files))
			if c.is == nil {
				if err != nil {
					t.Fatal(err)
				}
				ck.Close()
				return
			}
			if !errors.Is(err, c.is) || ck != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %v with %q", err, c.is, c.want)
			}
		})
	}
	if _, err := OpenDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestShardShrinks(t *testing.T) {
	dir := lay(t, map[string][]byte{singleFile: write(t, []tensor.Info{infoB})})
	ck, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	st, err := os.Stat(filepath.Join(dir, singleFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, singleFile), st.Size()-3); err != nil {
		t.Skip("an open file cannot be truncated here:", err)
	}
	r, err := ck.Open(infoB.Name)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); !errors.Is(err, tensor.ErrCorrupt) || len(b) != 13 {
		t.Errorf("%d bytes, %v; want ErrCorrupt", len(b), err)
	}
}

func TestReadAfterClose(t *testing.T) {
	ck, err := OpenDir(lay(t, sharded(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ck.Open(infoA.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// TestOpenDirRealModel reads checkpoints that other software wrote.
func TestOpenDirRealModel(t *testing.T) {
	for _, c := range []struct {
		dir   string
		files int
	}{
		{"../../testdata/tiny-qwen3", 1},
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			config, err := os.ReadFile(filepath.Join(c.dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			var cfg struct {
				Layers int64 `json:"num_hidden_layers"`
				Hidden int64 `json:"hidden_size"`
				Vocab  int64 `json:"vocab_size"`
			}
			if err := json.Unmarshal(config, &cfg); err != nil {
				t.Fatal(err)
			}
			ck, err := OpenDir(c.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			if len(ck.Files()) != c.files || int64(len(ck.Tensors())) < 11*cfg.Layers {
				t.Errorf("%d files, %d tensors", len(ck.Files()), len(ck.Tensors()))
			}
			const table = "model.embed_tokens.weight"
			r, err := ck.Open(table)
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range ck.Tensors() {
				if info.Name == table && (info.Shape.String() != tensor.Shape{cfg.Vocab, cfg.Hidden}.String() || info.Size != r.Size()) {
					t.Errorf("%+v", info)
				}
			}
			if n, err := io.Copy(io.Discard, r); n != r.Size() || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}
