package oci

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func placeAt(s *placetest.OCI, tag string) Place {
	return Place{Ref: s.Ref(tag), Transfer: placetest.Quick}
}

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

const publishTo = "PUBLISH_TEST_OCI"

// children are the processes that tests kill.
var children = map[string]func(value string) error{publishTo: func(ref string) error { return placetest.PublishChild(Place{Ref: ref}) }}

// wantAt demands that a reference gives exactly p.
func wantAt(t testing.TB, ref string, p place.Package) {
	t.Helper()
	o, err := Open(t.Context(), ref, place.OpenOptions{Transfer: placetest.Quick})
	if err != nil {
		t.Error(err)
		return
	}
	placetest.WantOrigin(t, o, p)
}

func TestOCI(t *testing.T) {
	s := placetest.NewOCI(t)
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	store := placeAt(s, ":v1")

	d, err := store.Diff(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"config.json", "llm.mnn", "llm.mnn.weight", "manifest.json", "sub/empty.bin"}
	if d.Status != place.Published || d.Creates != "tag v1" || !slices.Equal(d.Add, names) || d.Upload <= one.Manifest.Bytes() {
		t.Errorf("%+v", d)
	}
	if n := s.Seen("POST") + s.Seen("PUT") + s.Seen("PATCH"); n > 0 {
		t.Errorf("a diff sent %d requests that write", n)
	}
	r, err := place.To(t.Context(), store, one)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != place.Published || r.Files != 5 || r.Uploaded != d.Upload || !strings.HasPrefix(r.Ref, "oci://"+s.Ref("@sha256:")) {
		t.Errorf("%+v", r)
	}
	wantAt(t, s.Ref(":v1"), one)
	wantAt(t, strings.TrimPrefix(r.Ref, "oci://"), one)

	t.Run("oras pull", func(t *testing.T) {
		out := t.TempDir()
		files, err := file.New(out)
		if err != nil {
			t.Fatal(err)
		}
		defer files.Close()
		repo, err := remote.NewRepository(s.Ref(":v1"))
		if err != nil {
			t.Fatal(err)
		}
		repo.PlainHTTP = true
		if _, err := oras.Copy(t.Context(), repo, "v1", files, "", oras.DefaultCopyOptions); err != nil {
			t.Fatal(err)
		}
		if _, err := place.OpenVerified(t.Context(), out); err != nil {
			t.Error(err)
		}
	})
	t.Run("again", func(t *testing.T) {
		s.SetFault(nil)
		again, err := place.To(t.Context(), store, one)
		if err != nil || again.Status != place.Unchanged || again.Uploaded != 0 || again.Ref != r.Ref {
			t.Errorf("%+v, %v", again, err)
		}
		if n := s.Seen("POST") + s.Seen("PUT") + s.Seen("PATCH"); n > 0 {
			t.Errorf("%d requests that write", n)
		}
	})
	t.Run("another tag", func(t *testing.T) {
		r, err := place.To(t.Context(), placeAt(s, ":v1-copy"), one)
		if err != nil || r.Status != place.Published || r.Uploaded != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("another package", func(t *testing.T) {
		if _, err := place.To(t.Context(), store, two); err == nil || !strings.Contains(err.Error(), "contains another package, sha256:") {
			t.Errorf("got %v", err)
		}
		wantAt(t, s.Ref(":v1"), one)
	})
	t.Run("replaced and reverted", func(t *testing.T) {
		store := store
		store.Replace = true
		d, err := store.Diff(t.Context(), two)
		want := place.Diff{Status: place.Replaced, Change: names[:4], Keep: names[4:], Upload: d.Upload}
		if diff := cmp.Diff(want, d); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		staged, err := store.Stage(t.Context(), two)
		if err != nil {
			t.Fatal(err)
		}
		defer staged.Close()
		wantAt(t, s.Ref(":v1"), one)
		if r, err := staged.Commit(t.Context()); err != nil || r.Status != place.Replaced {
			t.Errorf("%+v, %v", r, err)
		}
		wantAt(t, s.Ref(":v1"), two)
		if err := staged.Revert(t.Context()); err != nil {
			t.Error(err)
		}
		wantAt(t, s.Ref(":v1"), one)
	})
	t.Run("new and reverted", func(t *testing.T) {
		three := placetest.Package(t, "three")
		staged, err := placeAt(s, ":v3").Stage(t.Context(), three)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), s.Ref(":v3"), place.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("staged and visible: %v", err)
		}
		if _, err := staged.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := staged.Revert(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := Open(t.Context(), s.Ref(":v3"), place.OpenOptions{Transfer: placetest.Quick}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
		if r, err := place.To(t.Context(), placeAt(s, ":v3"), three); err != nil || r.Status != place.Published {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("moved meanwhile", func(t *testing.T) {
		four := placetest.Package(t, "four")
		staged, err := placeAt(s, ":v4").Stage(t.Context(), four)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.To(t.Context(), placeAt(s, ":v4"), one); err != nil {
			t.Fatal(err)
		}
		if _, err := staged.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else has moved it") {
			t.Errorf("got %v", err)
		}
		wantAt(t, s.Ref(":v4"), one)
	})
	t.Run("damaged", func(t *testing.T) {
		p := placetest.Package(t, "five")
		placetest.Write(t, filepath.Join(p.Dir, "llm.mnn"), "llm.mnn FIVE")
		if _, err := place.To(t.Context(), placeAt(s, ":v5"), p); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "llm.mnn: has sha256") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no package", func(t *testing.T) {
		body := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}`
		req, err := http.NewRequest(http.MethodPut, s.URL+"/v2/org/tiny/manifests/image", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 201 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		store := placeAt(s, ":image")
		store.Replace = true
		if _, err := place.To(t.Context(), store, one); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "is not replaced") {
			t.Errorf("got %v", err)
		}
	})
	for _, ref := range []string{"", "tiny", "host/UPPER:v1", s.Ref(""), s.Ref("@sha256:" + strings.Repeat("0", 64)), s.Ref(":a b")} {
		if _, err := place.To(t.Context(), Place{Ref: ref, Transfer: placetest.Quick}, one); err == nil {
			t.Errorf("%q was taken", ref)
		}
	}
}

// unknownBlob answers as CNCF's registry does while it writes a link to a blob of the manifest.
func unknownBlob(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `{"errors":[{"code":"DIGEST_INVALID","message":"provided digest did not match uploaded content"},`+
		`{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry","detail":{"digest":""}}]}`)
}

// TestOCIUploadTrouble: whatever goes wrong for a while, the package arrives.
func TestOCIUploadTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	p := placetest.Big(t, 3*chunkSize+12345)
	// nth lets the nth request that match selects be handled by f.
	nth := func(n int, match func(r *http.Request) bool, f func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		var mu sync.Mutex
		count := 0
		return func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if !match(r) {
				return false
			}
			if count++; count != n {
				return false
			}
			f(w, r)
			return true
		}
	}
	method := func(m string) func(r *http.Request) bool {
		return func(r *http.Request) bool { return r.Method == m && strings.Contains(r.URL.Path, "/blobs/") }
	}
	status := func(code int) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(code)
		}
	}
	cut := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 100_000)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}
	manifest := func(r *http.Request) bool { return r.Method == "PUT" && strings.Contains(r.URL.Path, "/manifests/") }
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"cut in the second chunk": nth(2, method("PATCH"), cut),
		"500 at the second chunk": nth(2, method("PATCH"), status(500)),
		"429 at the first":        nth(1, method("POST"), status(429)),
		"503 at the end":          nth(1, method("PUT"), status(503)),
		"cut at the end":          nth(5, method("PUT"), cut),
		"503 for a look":          nth(3, method("HEAD"), status(503)),
		"stall in the third chunk": nth(3, method("PATCH"), func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			cut(w, r)
		}),
		"503 for the manifest":                 nth(1, manifest, status(503)),
		"400 for a blob that is not yet there": nth(1, manifest, unknownBlob),
	} {
		t.Run(name, func(t *testing.T) {
			s := placetest.NewOCI(t)
			s.SetFault(fault)
			if _, err := place.To(t.Context(), placeAt(s, ":v1"), p); err != nil {
				t.Fatal(err)
			}
			s.SetFault(nil)
			wantAt(t, s.Ref(":v1"), p)
		})
	}
}

// TestOCIRefuses: what does not get better is one clear error, and the tag stays absent.
func TestOCIRefuses(t *testing.T) {
	p := placetest.Package(t, "one")
	for name, tc := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request)
		is    error
		want  string
	}{
		"denied":       {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) }, fs.ErrPermission, "not allowed"},
		"unauthorized": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, fs.ErrPermission, "docker login"},
		"down":         {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, nil, "5 tries failed"},
		"lost blob":    {unknownBlob, nil, "5 tries failed: 127.0.0.1"},
		"busy": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
		}, nil, "asks to wait 1h0m0s"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://192.0.2.1/x")
			w.WriteHeader(202)
		}, tensor.ErrUnsupported, "http://192.0.2.1"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/x?secret=1", http.StatusTemporaryRedirect)
		}, nil, "redirects an upload"},
		"huge chunks": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("OCI-Chunk-Min-Length", "99999999999")
			w.Header().Set("Location", r.URL.Path+"x")
			w.WriteHeader(202)
		}, tensor.ErrUnsupported, "requires chunks of"},
	} {
		t.Run(name, func(t *testing.T) {
			s := placetest.NewOCI(t)
			s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet || r.Method == http.MethodHead {
					return false
				}
				tc.fault(w, r)
				return true
			})
			_, err := place.To(t.Context(), placeAt(s, ":v1"), p)
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
			s.SetFault(nil)
			if _, err := Open(t.Context(), s.Ref(":v1"), place.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the tag: %v", err)
			}
		})
	}
}

// artifactOf is that of a package, with its manifest.json.
func artifactOf(t testing.TB, p place.Package) (*artifact, place.Cargo) {
	t.Helper()
	f, err := place.FreightOf(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := newArtifact(p.Manifest, f.Sum, f.Files)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := f.Find(manifest.FileName)
	return a, m
}

// TestOCILies: a registry whose artifact is not what its digests and manifest.json say.
func TestOCILies(t *testing.T) {
	p := placetest.Package(t, "one")
	s := placetest.NewOCI(t)
	if _, err := place.To(t.Context(), placeAt(s, ":v1"), p); err != nil {
		t.Fatal(err)
	}
	a, m := artifactOf(t, p)
	loop := 0
	for name, tc := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request) bool
		want  string
	}{
		"another manifest.json": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, m.SHA256) {
				return false
			}
			fmt.Fprint(w, strings.Repeat("x", int(m.Size)))
			return true
		}, "does not match the artifact"},
		"a manifest.json without end": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			for range 1000 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					break
				}
			}
			return true
		}, "does not match the artifact"},
		"a redirect loop": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			loop++
			http.Redirect(w, r, fmt.Sprintf("%s?%d", r.URL.Path, loop), http.StatusTemporaryRedirect)
			return true
		}, "redirects more than"},
		"another image manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/sha256") {
				return false
			}
			w.Header().Set("Content-Type", a.desc.MediaType)
			fmt.Fprint(w, strings.Repeat(" ", len(a.json)))
			return true
		}, ""},
		"a huge image manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", a.desc.MediaType)
			w.Header().Set("Docker-Content-Digest", string(a.desc.Digest))
			w.Header().Set("Content-Length", "999999999")
			return true
		}, "the limit is"},
	} {
		t.Run(name, func(t *testing.T) {
			s.SetFault(tc.fault)
			o, err := Open(t.Context(), s.Ref(":v1"), place.OpenOptions{Transfer: placetest.Quick})
			if err == nil {
				_, err = o.Read(t.Context(), manifest.FileName, manifest.MaxSize)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	s.SetFault(nil)
	o, err := Open(t.Context(), s.Ref(":v1"), place.OpenOptions{Transfer: placetest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	lie := p.Manifest.Files[0]
	lie.Size++
	if _, err := o.Range(lie)(t.Context(), 0, lie.Size); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("another size: %v", err)
	}
	if _, err := o.Range(manifest.File{Name: "none"})(t.Context(), 0, 1); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestOCICredentials: a password goes to the registry's token service, the token to the registry, and neither to the
// storage that it redirects to.
// TestOCISignedAddress: what the library says of an answer of storage names the address that storage was asked at.
func TestOCISignedAddress(t *testing.T) {
	s := placetest.NewOCI(t)
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "no/type/at all")
	}))
	defer storage.Close()
	s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			http.Redirect(w, r, storage.URL+"/m?signature=secret", http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	_, err := Open(t.Context(), s.Ref(":v1"), place.OpenOptions{Transfer: placetest.Quick})
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), storage.URL) {
		t.Error(err)
	}
}

func TestOCICredentials(t *testing.T) {
	p := placetest.Package(t, "one")
	s := placetest.NewOCI(t)
	blobs := map[string][]byte{}
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("credentials were sent to the storage")
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(blobs[r.URL.Path])))
	}))
	t.Cleanup(storage.Close)
	for _, f := range p.Manifest.Files {
		b, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(f.Name)))
		if err != nil {
			t.Fatal(err)
		}
		blobs["/"+f.SHA256] = b
	}
	s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			if user, pass, _ := r.BasicAuth(); user != "me" || pass != "pass-word" {
				w.WriteHeader(401)
				return true
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"token": "bearer-of-" + base64.RawURLEncoding.EncodeToString([]byte(r.URL.Query().Get("scope")))})
			return true
		}
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer bearer-of-") {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="r",scope="repository:org/tiny:pull,push"`, s.URL))
			w.WriteHeader(401)
			return true
		}
		if i := strings.Index(r.URL.Path, "/blobs/sha256:"); r.Method == http.MethodGet && i > 0 {
			if sum := r.URL.Path[i+len("/blobs/sha256:"):]; blobs["/"+sum] != nil {
				http.Redirect(w, r, storage.URL+"/"+sum, http.StatusTemporaryRedirect)
				return true
			}
		}
		return false
	})
	if _, err := place.To(t.Context(), placeAt(s, ":v1"), p); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without credentials: %v", err)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("me:pass-word")))
	placetest.Write(t, filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), config)
	if _, err := place.To(t.Context(), placeAt(s, ":v1"), p); err != nil {
		t.Fatal(err)
	}
	wantAt(t, s.Ref(":v1"), p)
}

// TestOCIArtifact: the bytes that a registry gets are a promise; see testdata/oci.
func TestOCIArtifact(t *testing.T) {
	a, _ := artifactOf(t, placetest.Package(t, "one"))
	config, err := a.config.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := string(a.json) + "\n" + string(config) + "\n"
	path := filepath.Join("testdata", "oci", "artifact.txt")
	if *update {
		placetest.Write(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if layers, err := parseArtifact(a.json); err != nil || len(layers) != 5 {
		t.Errorf("%d layers, %v", len(layers), err)
	}
	p := placetest.Package(t, "one")
	p.Manifest.Source = manifest.Source{Hub: manifest.ModelScope, Repo: "org/name", Revision: "ab"}
	if a, _ = artifactOf(t, p); !strings.Contains(string(a.json), `"org.opencontainers.image.source":"https://modelscope.cn/models/org/name"`) {
		t.Errorf("no source in %s", a.json)
	}
}

// An image manifest that is nested without end is refused before it is read.
func TestDeepArtifact(t *testing.T) {
	deep := `{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`
	if _, err := parseArtifact([]byte(deep)); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "nested deeper") {
		t.Error(err)
	}
}

func FuzzOCIArtifact(f *testing.F) {
	a, _ := artifactOf(f, placetest.Package(f, "one"))
	f.Add(a.json)
	f.Add([]byte(strings.ReplaceAll(string(a.json), "llm.mnn.weight", "../llm")))
	f.Fuzz(func(t *testing.T, b []byte) {
		layers, err := parseArtifact(b)
		if err != nil {
			return
		}
		for _, l := range layers {
			if l.Name != manifest.FileName && manifest.CheckName(l.Name) != nil || l.desc.Size < 0 {
				t.Errorf("layer %q of %d bytes was taken", l.Name, l.desc.Size)
			}
		}
	})
}

// TestBlobElsewhere: a host that a registry redirects to, and that answers for every blob, has none of another size.
func TestBlobElsewhere(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>Welcome</html>") }))
	defer other.Close()
	registry := placetest.NewOCI(t)
	registry.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		elsewhere := r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/blobs/")
		if elsewhere {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
		return elsewhere
	})
	p, ref := placetest.Package(t, "one"), registry.Ref(":v1")
	if _, err := place.To(t.Context(), Place{Ref: ref, Transfer: placetest.Quick}, p); err != nil {
		t.Fatal(err)
	}
	from, err := Open(t.Context(), ref, place.OpenOptions{Transfer: placetest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Manifest.Files {
		body, err := from.Range(f)(t.Context(), 0, f.Size)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		body.Close()
	}
}
