package hub

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakehub"
)

const (
	testRepo   = "org/tiny"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testToken  = fakehub.Token
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
		"LICENSE.txt":                      []byte("MIT\n"),
		"chat_template.json":               []byte("{}"),
		"README.md":                        []byte("---\nlicense: mit\n---\n"),
		"config.json":                      []byte(`{"architectures":["Tiny"]}`),
		"generation_config.json":           {},
		"tokenizer.json":                   bytes.Repeat([]byte("t"), 3000),
		"tokenizer.model":                  []byte("the same once more"),
		indexFile:                          []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": shard("a", 300_000, 0),
		"model-00002-of-00002.safetensors": shard("b", 1000, 200_000),
		"other.safetensors":                shard("c", 10, 0),
		"onnx/model.onnx":                  []byte("not wanted, 1"),
		"onnx/model.safetensors":           []byte("not wanted, 2"),
		"pytorch_model.bin":                []byte("not wanted, 3"),
		"consolidated.safetensors":         []byte("not wanted, 4"),
		"legacy/chat_template.json":        []byte("not wanted, 5"),
		"train.log:1":                      []byte("not wanted, 6"),
		templatesDir + "/old/rag.jinja":    []byte("not wanted, 7"),
		templatesDir + "/tool_use.txt":     []byte("not wanted, 8"),
		templatesDir + "/tool_use.jinja":   []byte("{{ tools }}"),
		"modules.json":                     []byte("[]"),
		"1_Pooling/config.json":            []byte(`{"pooling_mode": "mean"}`),
		"2_Normalize/model.safetensors":    []byte("not wanted, 9"),
		"onnx/config.json":                 []byte("not wanted, 10"),
		"x/1_Pooling/config.json":          []byte("not wanted, 11"),
	}
}

// tinyWanted are those of them that are fetched.
var tinyWanted = []string{"1_Pooling/config.json", "LICENSE.txt", "README.md", templatesDir + "/tool_use.jinja", "chat_template.json", "config.json",
	"generation_config.json", shard1, shard2, indexFile, "modules.json", "tokenizer.json"}

const shard2 = "model-00002-of-00002.safetensors"

// realHub serves org/tiny by the hub that is held to the Python client.
func realHub(t *testing.T, files map[string][]byte) (h *fakehub.Hub, s *fakehub.Server, commit string, o Options) {
	t.Helper()
	h = fakehub.New()
	commit = h.Repo(testRepo).Commit("main", files)
	s = h.Start(t)
	return h, s, commit, Options{Endpoint: s.URL, Token: fakehub.Token, CacheDir: t.TempDir(), Stall: 5 * time.Second, Pause: time.Millisecond}
}

// through has every request pass by answer, which may handle it in place of the hub; true if it has. It gives the endpoint.
func through(t *testing.T, h *fakehub.Hub, answer func(w http.ResponseWriter, r *http.Request, storage bool) bool) string {
	t.Helper()
	serve := func(next http.Handler, storage bool) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !answer(w, r, storage) {
				next.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	endpoint, storage := serve(h.Handler(), false), serve(h.Storage(), true)
	h.SetURLs(endpoint, storage)
	return endpoint
}

// transfers are the requests for a file's content, in order.
func transfers(h *fakehub.Hub, name string) (list []fakehub.Request) {
	for _, r := range h.Requests("*", testRepo+"/"+name) {
		if r.Server == "storage" {
			list = append(list, r)
		}
	}
	return list
}

// checkSnapshot demands tinyFiles at a commit.
func checkSnapshot(t *testing.T, s *Snapshot, commit string) {
	t.Helper()
	checkFiles(t, s, tinyFiles(), tinyWanted)
	if s.Repo != testRepo || s.Revision != commit {
		t.Errorf("repository %s, revision %s", s.Repo, s.Revision)
	}
}

func sha256Hex(b []byte) string {
	return digest.Of(b).Hex()
}

func gitSHA1(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
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
		if f.SHA256 != "" && f.SHA256 != sha256Hex(b) {
			t.Errorf("%s: SHA-256 %s", f.Name, f.SHA256)
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
