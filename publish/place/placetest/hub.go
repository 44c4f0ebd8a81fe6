package placetest

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Of the repository and the packages that tests publish to hubs.
const (
	Repo     = "tester/tiny"
	PartSize = 64 << 10 // bytes of a part
	Parts    = 5        // of the weights
)

// HubPackage makes a package with weights that go in parts.
func HubPackage(t testing.TB, seed uint64) place.Package {
	t.Helper()
	p := Package(t, "text")
	weights := make([]byte, Parts*PartSize-100)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(weights)
	put := func(name string, b []byte) {
		Write(t, filepath.Join(p.Dir, filepath.FromSlash(name)), string(b))
		f := place.Loaded(name, b).File
		i := slices.IndexFunc(p.Manifest.Files, func(f manifest.File) bool { return f.Name == name })
		if i < 0 {
			p.Manifest.Files = append(p.Manifest.Files, f)
		} else {
			p.Manifest.Files[i] = f
		}
	}
	put("llm.mnn.weight", weights)
	put("llm.mnn", weights[:10_000])
	put("README.md", []byte("---\nlicense: mit\n---\n# tiny\n"))
	put("tokenizer.mtok", weights[5000:9000])
	p.Manifest.Sort()
	return p
}

// ModelScopePackage has weights that are large enough for LFS storage.
func ModelScopePackage(t testing.TB, seed uint64) place.Package {
	t.Helper()
	p := HubPackage(t, seed)
	large := make([]byte, 1<<20+1)
	large[seed] = 1
	Write(t, filepath.Join(p.Dir, "llm.mnn.weight"), string(large))
	for i, f := range p.Manifest.Files {
		if f.Name == "llm.mnn.weight" {
			p.Manifest.Files[i] = place.Loaded(f.Name, large).File
		}
	}
	return p
}

// Hub is a hub and what it was told.
type Hub struct {
	*fakehub.Hub
	URL string
	Log bytes.Buffer
	Ctx context.Context
}

// NewHub starts one, and fails the test when a secret gets where it must not.
func NewHub(t testing.TB) *Hub {
	h := &Hub{Hub: fakehub.New(fakehub.Options{LFSFrom: 4096, PartSize: PartSize, PageSize: 3})}
	h.URL = h.Start(t).URL
	log := zerolog.New(zerolog.SyncWriter(&h.Log))
	h.Ctx = log.WithContext(t.Context())
	t.Cleanup(func() {
		if h.Leaked() {
			t.Error("the token reached storage")
		}
		if s := h.Log.String(); strings.Contains(s, fakehub.Token) || strings.Contains(s, "ignature") {
			t.Errorf("a secret is in the log: %s", s)
		}
	})
	return h
}

// Publish publishes a package.
func (h *Hub) Publish(t testing.TB, s place.Store, p place.Package) place.Receipt {
	t.Helper()
	r, err := place.To(h.Ctx, s, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Secrets fails on an error that shows the token or a signed address.
func Secrets(t testing.TB, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), fakehub.Token) || strings.Contains(err.Error(), "ignature=")) {
		t.Errorf("a secret is in the error: %v", err)
	}
}

// Want demands that a revision holds exactly p and .gitattributes.
func (h *Hub) Want(t testing.TB, revision string, p place.Package) {
	t.Helper()
	want := map[string][]byte{}
	f, err := place.FreightOf(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range f.Files {
		if want[c.Name], err = c.ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	got := maps.Clone(h.Repo(Repo).Files(revision))
	delete(got, ".gitattributes")
	for name := range want {
		if !bytes.Equal(want[name], got[name]) {
			t.Errorf("%s: %s differs", revision, name)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("%s: also holds %q", revision, slices.Sorted(maps.Keys(got)))
	}
}
