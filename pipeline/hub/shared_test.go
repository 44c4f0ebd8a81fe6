package hub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
)

// shard is a .safetensors file with one tensor of n bytes, whose header is padded to at least pad bytes.
func shard(name string, n, pad int) []byte {
	header := fmt.Sprintf(`{%q:{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, name, n, n)
	header += string(bytes.Repeat([]byte(" "), max(0, pad-len(header))))
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, bytes.Repeat([]byte(name), n/len(name)+1)[:n]...)
}

// tinyFiles is a checkpoint of two shards, and what lies around in a repository.
func tinyFiles() map[string][]byte {
	return map[string][]byte{
		".gitattributes":                   []byte("*.safetensors filter=lfs diff=lfs merge=lfs -text\n"),
		"README.md":                        []byte("---\nlicense: mit\n---\n"),
		"config.json":                      []byte(`{"architectures":["Tiny"]}`),
		"generation_config.json":           {},
		"tokenizer.json":                   bytes.Repeat([]byte("t"), 3000),
		"tokenizer.model":                  []byte("the same once more"),
		indexFile:                          []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": shard("a", 300_000, 0),
		"model-00002-of-00002.safetensors": shard("b", 1000, 200_000),
		"other.safetensors":                shard("c", 10, 0),
		"onnx/model.onnx":                  []byte("not wanted"),
		templatesDir + "/tool_use.jinja":   []byte("{{ tools }}"),
	}
}

// tinyWanted are those of them that are fetched.
var tinyWanted = []string{"README.md", templatesDir + "/tool_use.jinja", "config.json", "generation_config.json", shard1, shard2, indexFile, "tokenizer.json"}

const shard2 = "model-00002-of-00002.safetensors"

// realHub serves org/tiny by the hub that is held to the Python client.
func realHub(t *testing.T, files map[string][]byte) (h *fakehub.Hub, s *fakehub.Server, commit string, o Options) {
	t.Helper()
	h = fakehub.New()
	commit = h.Repo(testRepo).Commit("main", files)
	s = h.Start(t)
	return h, s, commit, Options{Endpoint: s.URL, Token: fakehub.Token, CacheDir: t.TempDir(), Stall: 5 * time.Second, pause: time.Millisecond}
}

// checkFiles compares a snapshot with what was committed.
func checkFiles(t *testing.T, s *Snapshot, files map[string][]byte, want []string) {
	t.Helper()
	var names []string
	for _, f := range s.Files {
		names = append(names, f.Name)
		b, err := os.ReadFile(filepath.Join(s.Dir, f.Name))
		if err != nil || !bytes.Equal(b, files[f.Name]) || f.Size != int64(len(b)) {
			t.Errorf("%s: %d bytes, listed %d, %v", f.Name, len(b), f.Size, err)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

// with is files with changes; nil content takes a file away.
func with(files map[string][]byte, changes map[string][]byte) map[string][]byte {
	files = maps.Clone(files)
	for name, b := range changes {
		if files[name] = b; b == nil {
			delete(files, name)
		}
	}
	return files
}
