package hub

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testRepo   = "org/tiny"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testToken  = "hf_secret"
	lfsMin     = 1000 // from this size on the fake hub keeps a file in storage, in bytes
)

// fakeHub serves one repository, with its large files on a second server as the real one does.
type fakeHub struct {
	t       *testing.T
	hub     *httptest.Server
	storage *httptest.Server
	files   map[string][]byte

	mu       sync.Mutex
	requests []string // "METHOD path range" in order, storage's with "storage:" in front

	// answer, if set, may handle a request in place of the server; true if it has.
	answer func(w http.ResponseWriter, r *http.Request, storage bool) bool
	// list, if set, changes the list before it is sent.
	list func(siblings []map[string]any) []map[string]any
	// needToken makes the hub refuse requests without the right token.
	needToken bool
}

func newFakeHub(t *testing.T) *fakeHub {
	big := bytes.Repeat([]byte("weights "), 40_000)
	h := &fakeHub{t: t, files: map[string][]byte{
		"config.json":                      []byte(`{"architectures":["Tiny"]}`),
		"tokenizer.json":                   bytes.Repeat([]byte("t"), 3000),
		"README.md":                        []byte("# tiny\n"),
		"LICENSE.txt":                      {},
		"model-00001-of-00002.safetensors": big,
		"model-00002-of-00002.safetensors": big[:123_457],
		indexFile:                          []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"pytorch_model.bin":                []byte("not wanted"),
		"consolidated.safetensors":         []byte("not wanted"),
		"onnx/model.safetensors":           []byte("not wanted"),
		templatesDir + "/tool_use.jinja":   []byte("{{ tools }}"),
		templatesDir + "/old/rag.jinja":    []byte("not wanted"),
		templatesDir + "/tool_use.txt":     []byte("not wanted"),
		"legacy/chat_template.json":        []byte("not wanted"),
		"chat_template.json":               []byte("{}"),
		"train.log:1":                      []byte("not wanted"),
	}}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.storage = httptest.NewServer(http.HandlerFunc(h.serveStorage))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.storage.Close)
	return h
}

// wantedFiles are the names that Resolve must give.
var wantedFiles = []string{"LICENSE.txt", "README.md", templatesDir + "/tool_use.jinja", "chat_template.json", "config.json", "model-00001-of-00002.safetensors",
	"model-00002-of-00002.safetensors", indexFile, "tokenizer.json"}

func (h *fakeHub) options(t *testing.T) Options {
	return Options{Endpoint: h.hub.URL, Token: testToken, CacheDir: t.TempDir(), Stall: 5 * time.Second, Pause: time.Millisecond}
}

func (h *fakeHub) note(r *http.Request, prefix string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, strings.TrimSpace(prefix+r.URL.EscapedPath()+" "+r.Header.Get("Range")))
}

// seen gives the requests so far that contain s.
func (h *fakeHub) seen(s string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.requests), func(r string) bool { return !strings.Contains(r, s) })
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.note(r, "")
	if h.answer != nil && h.answer(w, r, false) {
		return
	}
	if h.needToken && r.Header.Get("Authorization") != "Bearer "+testToken {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(401)
		return
	}
	if rev, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/"+testRepo+"/revision/"); ok {
		if rev != "main" && rev != "refs%2Fpr%2F1" && rev != testCommit || r.URL.RawQuery != "blobs=true" {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			w.WriteHeader(404)
			return
		}
		h.serveList(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+testRepo+"/resolve/"+testCommit+"/")
	b, exists := h.files[name]
	switch {
	case !ok || !exists:
		w.WriteHeader(404)
	case len(b) >= lfsMin:
		http.Redirect(w, r, h.storage.URL+"/"+name+"?signature=secret", http.StatusFound)
	default:
		// The real hub sends such files on by a relative redirect, where the token is still needed.
		if r.URL.Query().Get("hop") == "" {
			http.Redirect(w, r, r.URL.Path+"?hop=1", http.StatusTemporaryRedirect)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

func (h *fakeHub) serveList(w http.ResponseWriter) {
	var siblings []map[string]any
	for _, name := range slices.Sorted(maps.Keys(h.files)) {
		b := h.files[name]
		s := map[string]any{"rfilename": name, "size": len(b), "blobId": gitSHA1(b)}
		if len(b) >= lfsMin {
			s["lfs"] = map[string]any{"sha256": sha256Hex(b), "size": len(b), "pointerSize": 130}
		}
		siblings = append(siblings, s)
	}
	if h.list != nil {
		siblings = h.list(siblings)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": testRepo, "sha": testCommit, "siblings": siblings, "gated": false})
}

func (h *fakeHub) serveStorage(w http.ResponseWriter, r *http.Request) {
	h.note(r, "storage:")
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token was sent to the storage server")
	}
	if h.answer != nil && h.answer(w, r, true) {
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.files[path.Base(r.URL.Path)]))
}

func sha256Hex(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func gitSHA1(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
}
