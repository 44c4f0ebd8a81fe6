package publish

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/hubs"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/oci"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/publish/s3"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestSigned tells the story of a signature in every kind of place.
func TestSigned(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	type make = func(t testing.TB, seed uint64) place.Package
	text := func(t testing.TB, seed uint64) place.Package { return placetest.Package(t, string(rune('a'+seed))) }
	patient := transfer.Options{Pause: time.Millisecond, Stall: 5 * time.Second}
	for name, tc := range map[string]struct {
		make make
		// open gives the store, which may replace what is there.
		open func(t *testing.T) func(replace bool) place.Store
		// free says that the store replaces without being told so: it has a history.
		free bool
	}{
		"dir": {text, func(t *testing.T) func(bool) place.Store {
			path := filepath.Join(t.TempDir(), "out")
			return func(replace bool) place.Store { return dir.Place{Path: path, Replace: replace} }
		}, false},
		"hub": {placetest.HubPackage, func(t *testing.T) func(bool) place.Store {
			h := placetest.NewHub(t)
			placetest.Setenv(t, "HF_ENDPOINT", h.URL, "HF_TOKEN", fakehub.Token, "HF_HOME", t.TempDir(), "HF_HUB_OFFLINE", "")
			return func(bool) place.Store {
				return hubs.HuggingFace{Repo: placetest.Repo, Options: &hub.Options{Endpoint: h.URL, Token: fakehub.Token}, Transfer: patient}
			}
		}, true},
		"modelscope": {placetest.ModelScopePackage, func(t *testing.T) func(bool) place.Store {
			h := placetest.NewHub(t)
			placetest.Setenv(t, "MODELSCOPE_ENDPOINT", h.URL, "MODELSCOPE_API_TOKEN", fakehub.Token)
			return func(bool) place.Store {
				return hubs.ModelScope{Repo: placetest.Repo, Options: &hub.Options{Endpoint: h.URL, Token: fakehub.Token}, Transfer: patient}
			}
		}, true},
		"oci": {text, func(t *testing.T) func(bool) place.Store {
			s := placetest.NewOCI(t)
			return func(replace bool) place.Store {
				return oci.Place{Ref: s.Ref(":v1"), Replace: replace, Transfer: placetest.Quick}
			}
		}, false},
		"s3": {text, func(t *testing.T) func(bool) place.Store {
			s := placetest.NewS3(t)
			return func(replace bool) place.Store {
				return s3.Place{Ref: "s3://" + fakes3.Bucket + "/models/tiny", Endpoint: s.URL, Region: "us-east-1", Replace: replace, Transfer: placetest.Quick}
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) { signedStory(t, tc.make, tc.open(t), tc.free) })
	}
}

func signedStory(t *testing.T, make func(testing.TB, uint64) place.Package, open func(replace bool) place.Store, free bool) {
	ctx, store := t.Context(), open(false)
	publish := func(s place.Store, p place.Package, want place.Status) place.Receipt {
		t.Helper()
		r, err := place.To(ctx, s, p)
		if err != nil || r.Status != want {
			t.Fatalf("%+v, %v, want %s", r, err, want)
		}
		return r
	}
	diff := func(s place.Store, p place.Package, want place.Diff) {
		t.Helper()
		d, err := s.Diff(ctx, p)
		has := func(list, want []string) bool {
			return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(list, name) })
		}
		if err != nil || d.Status != want.Status || !slices.Equal(d.Add, want.Add) || !has(d.Change, want.Change) ||
			!slices.Equal(d.Remove, want.Remove) || !has(d.Keep, want.Keep) {
			t.Errorf("got %+v, %v, want %+v", d, err, want)
		}
	}
	ref := publish(store, make(t, 1), place.Published).Ref
	if at := strings.LastIndex(ref, "@"); free {
		ref = ref[:at] // the branch, which moves
	} else if at > 0 && strings.HasPrefix(ref, "oci:") {
		ref = ref[:at] + ":v1"
	}
	to := filepath.Join(t.TempDir(), "pulled")
	pull := func(replace bool, want place.Status, signature string) dir.Pulled {
		t.Helper()
		_, done, err := Pull(ctx, ref, to, PullOptions{PullOptions: dir.PullOptions{Replace: replace, Transfer: placetest.Quick}})
		if err != nil {
			t.Fatal(err)
		}
		if done.Status != want || done.Signed != (signature != "") || placetest.SignatureOf(t, to) != signature {
			t.Errorf("%+v, signature %q, want %s and %q", done, placetest.SignatureOf(t, to), want, signature)
		}
		if _, err := place.OpenVerified(ctx, to); err != nil {
			t.Error(err)
		}
		placetest.Alone(t, to)
		return done
	}
	pull(false, place.Published, "")

	// It is signed later: the signature is added, and can be reverted.
	p := placetest.Signed(t, make(t, 1), "one")
	sign := []string{manifest.SignatureName}
	diff(store, p, place.Diff{Status: place.Replaced, Add: sign, Keep: []string{"llm.mnn", "llm.mnn.weight", manifest.FileName}})
	staged, err := store.Stage(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	pull(false, place.Unchanged, "")
	if _, err := staged.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if done := pull(false, place.Replaced, "one"); done.Files != len(p.Manifest.Files)+2 || done.Fetched >= done.Bytes {
		t.Errorf("%+v", done)
	}
	if err := errors.Join(staged.Revert(ctx), staged.Close()); err != nil {
		t.Error(err)
	}
	diff(store, p, place.Diff{Status: place.Replaced, Add: sign})
	pull(false, place.Unchanged, "one") // what is here is not taken away
	if r := publish(store, p, place.Replaced); r.Files != len(p.Manifest.Files)+2 {
		t.Errorf("%+v", r)
	}
	publish(store, p, place.Unchanged)

	// The package without a signature takes none away.
	diff(store, make(t, 1), place.Diff{Status: place.Unchanged, Keep: append(sign, manifest.FileName)})
	publish(store, make(t, 1), place.Unchanged)
	publish(open(true), make(t, 1), place.Unchanged)
	pull(false, place.Unchanged, "one")

	// Another signature of the same package.
	p = placetest.Signed(t, make(t, 1), "two")
	if !free {
		if _, err := place.To(ctx, store, p); !errors.Is(err, place.ErrSignedAlready) {
			t.Errorf("signed again: %v", err)
		}
	}
	diff(open(true), p, place.Diff{Status: place.Replaced, Change: sign, Keep: []string{manifest.FileName}})
	publish(open(true), p, place.Replaced)
	if _, _, err := Pull(ctx, ref, to, PullOptions{}); !errors.Is(err, place.ErrSignedAlready) {
		t.Errorf("pulled: %v", err)
	}
	pull(true, place.Replaced, "two")

	// Another package has the signature that it brings, or none.
	q := make(t, 2)
	if !free {
		if _, err := place.To(ctx, store, placetest.Signed(t, make(t, 2), "three")); err == nil || !strings.Contains(err.Error(), "another package") {
			t.Errorf("another package: %v", err)
		}
	}
	diff(open(true), q, place.Diff{Status: place.Replaced, Change: []string{manifest.FileName}, Remove: sign})
	publish(open(true), q, place.Replaced)
	pull(true, place.Replaced, "")
	publish(open(true), placetest.Signed(t, q, "three"), place.Replaced)
	pull(true, place.Replaced, "three")
	publish(open(true), p, place.Replaced)
	pull(true, place.Replaced, "two")
}

// TestHostileSignatures: what cannot be a signature is published nowhere and pulled from nowhere.
func TestHostileSignatures(t *testing.T) {
	const huge = 10 << 30
	long := func(t *testing.T, dir string) {
		path := filepath.Join(dir, manifest.SignatureName)
		placetest.Write(t, path, "")
		if err := os.Truncate(path, huge); err != nil {
			t.Skipf("no file of %d bytes can be made here: %v", int64(huge), err)
		}
	}
	link := func(t *testing.T, dir string) {
		secret := filepath.Join(t.TempDir(), "secret")
		placetest.Write(t, secret, "secret")
		if err := os.Symlink(secret, filepath.Join(dir, manifest.SignatureName)); err != nil {
			t.Skipf("symbolic links cannot be made here: %v", err)
		}
	}
	for name, plant := range map[string]func(*testing.T, string){"long": long, "link": link} {
		t.Run(name, func(t *testing.T) {
			p := placetest.Package(t, "one")
			base := t.TempDir()
			target := filepath.Join(base, "in")
			placetest.Publish(t, dir.Place{Path: target}, p)
			plant(t, p.Dir)
			plant(t, target)
			out := filepath.Join(base, "out")
			for _, s := range []place.Store{dir.Place{Path: out}, hubs.HuggingFace{Repo: placetest.Repo, Options: &hub.Options{}},
				hubs.ModelScope{Repo: placetest.Repo, Options: &hub.Options{}},
				oci.Place{Ref: "127.0.0.1:1/org/tiny:v1"}, s3.Place{Ref: "s3://bucket/x", Endpoint: "http://127.0.0.1:1"}} {
				if _, err := s.Stage(t.Context(), p); !errors.Is(err, tensor.ErrCorrupt) {
					t.Errorf("%s: %v", s, err)
				}
			}
			if _, err := (dir.Place{Path: target, Replace: true}).Stage(t.Context(), placetest.Package(t, "two")); err == nil {
				t.Error("it was replaced")
			}
			if _, _, err := Pull(t.Context(), target, out, PullOptions{}); !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("pull: %v", err)
			}
			if entries, err := os.ReadDir(base); err != nil || len(entries) != 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}
