package publish

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestNeedsAck(t *testing.T) {
	for _, tc := range []struct {
		license, name, access string
		id                    string // empty when anyone may have it
	}{
		{"apache-2.0", "", "", ""},
		{"apache-2.0, mit", "", "", ""},
		{"llama3.1", "", "", ""},
		{"apache-2.0", "", manifest.Gated, "apache-2.0"},
		{"mit", "", manifest.Private, "mit"},
		{"", "", "", "unknown"},
		{"unknown", "", "", "unknown"},
		{"other", "", "", "other"},
		{"other", "qwen-research", "", "qwen-research"},
		{"cc", "", "", "cc"},
		{"cc-by-nc-4.0", "", "", "cc-by-nc-4.0"},
		{"cc-by-nc-sa-4.0", "", "", "cc-by-nc-sa-4.0"},
		{"cc-by-nd-4.0", "", "", "cc-by-nd-4.0"},
		{"apple-amlr", "", "", "apple-amlr"},
		{"fair-noncommercial-research-license", "", "", "fair-noncommercial-research-license"},
		{"apache-2.0, cc-by-nc-4.0", "", "", "apache-2.0, cc-by-nc-4.0"},
		{"my-own-licence", "", "", "my-own-licence"},
		{"", "", manifest.Gated, "unknown"},
		{"mit", "", manifest.Unknown, "mit"},
		{"cc-by-nc-4.0", "", manifest.Unknown, "cc-by-nc-4.0"},
	} {
		id, why := NeedsAck(manifest.Source{License: tc.license, LicenseName: tc.name, Access: tc.access})
		if id != tc.id || (id == "") != (why == "") {
			t.Errorf("%+v: %q %q", tc, id, why)
		}
	}
	for hub, want := range map[string]string{"": "because its hub was not queried", manifest.ModelScope: "ModelScope does not report"} {
		if _, why := NeedsAck(manifest.Source{Hub: hub, Repo: "org/name", License: "mit", Access: manifest.Unknown}); !strings.Contains(why, want) {
			t.Errorf("%q: %s", hub, why)
		}
	}
	if !slices.IsSorted(openLicenses) {
		t.Error("the table is not sorted")
	}
}

// Nothing is staged in a public place without the word that its licence asks for.
func TestAllTerms(t *testing.T) {
	p := placetest.Package(t, "one")
	placetest.Write(t, filepath.Join(p.Dir, "README.md"), "---\nlicense: cc-by-nc-4.0\n---\n")
	staged := 0
	public := &fakeStore{name: "public", public: true, stage: func() error { staged++; return nil }}
	private := &fakeStore{name: "private"}
	_, err := All(t.Context(), []Place{{private, Target{}}, {public, Target{}}}, p)
	var terms *TermsError
	var entry *EntryError
	if !errors.As(err, &terms) || terms.ID != "cc-by-nc-4.0" || !errors.As(err, &entry) || entry.Entry != 1 || staged != 0 || private.shown ||
		!strings.Contains(err.Error(), `set license_ack: "cc-by-nc-4.0"`) {
		t.Errorf("%v, staged %d", err, staged)
	}
	if _, err := Changes(t.Context(), []Place{{public, Target{}}}, p); !errors.As(err, &terms) {
		t.Errorf("dry run: %v", err)
	}
	_, err = All(t.Context(), []Place{{public, Target{LicenseAck: "mit"}}}, p)
	if err == nil || !strings.Contains(err.Error(), `not "mit"`) {
		t.Errorf("another word: %v", err)
	}
	if _, err := All(t.Context(), []Place{{private, Target{}}, {public, Target{LicenseAck: "cc-by-nc-4.0"}}}, p); err != nil || !public.shown {
		t.Error(err)
	}
	// What the manifest says comes before the card.
	p.Manifest.Source.License = "mit"
	if err := CheckTerms(p, []Place{{public, Target{}}}); err != nil {
		t.Error(err)
	}
	if err := CheckTerms(place.Package{Dir: t.TempDir(), Manifest: &manifest.Manifest{}}, []Place{{public, Target{}}}); err == nil ||
		!strings.Contains(err.Error(), `license_ack: "unknown"`) {
		t.Errorf("no card: %v", err)
	}
}

// fakeStore is a place in memory that may fail.
func (s *fakeStore) Ready(context.Context, func(*manifest.Manifest) bool) error { return nil }

type fakeStore struct {
	name                  string
	public, had, shown    bool
	stage, commit, revert func() error
	closed                int
	log                   *[]string
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (f *fakeStore) note(what string) {
	if f.log != nil {
		*f.log = append(*f.log, what+" "+f.name)
	}
}

func (f *fakeStore) String() string { return f.name }
func (f *fakeStore) Public() bool   { return f.public }
func (f *fakeStore) Diff(context.Context, place.Package) (place.Diff, error) {
	return place.Diff{Status: place.Published}, nil
}
func (f *fakeStore) Stage(context.Context, place.Package) (place.Staged, error) {
	f.note("stage")
	if err := call(f.stage); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fakeStore) Commit(context.Context) (place.Receipt, error) {
	f.note("commit")
	if err := call(f.commit); err != nil {
		return place.Receipt{}, err
	}
	f.shown = true
	if f.had {
		return place.Receipt{Status: place.Unchanged, Ref: f.name}, nil
	}
	return place.Receipt{Status: place.Published, Ref: f.name}, nil
}

func (f *fakeStore) Revert(ctx context.Context) error {
	f.note("revert")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := call(f.revert); err != nil {
		return err
	}
	f.shown = false
	return nil
}

func (f *fakeStore) Close() error { f.closed++; return nil }
