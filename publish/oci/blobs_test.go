package oci

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/blob/blobtest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// openBlobs opens a repository of the registry.
func openBlobs(t *testing.T, ref string) *Blobs {
	t.Helper()
	b, err := OpenBlobs(ref, placetest.Quick)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBlobs(t *testing.T) {
	s := placetest.NewOCI(t)
	blobtest.Run(t, openBlobs(t, s.Ref("/a")))
	for _, other := range []string{"", "/a/c", "/b"} {
		if list, err := openBlobs(t, s.Ref(other)).Texts(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", other, list, err)
		}
	}
	for _, ref := range []string{s.Ref(":tag"), s.Ref("@sha256:" + strings.Repeat("0", 64)), "nothing", ""} {
		if _, err := OpenBlobs(ref, placetest.Quick); !errors.As(err, new(*place.RefError)) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// A tag that names an artifact of somebody else is no text.
func TestBlobsForeign(t *testing.T) {
	s := placetest.NewOCI(t)
	if _, err := place.To(t.Context(), placeAt(s, ":codes-1"), placetest.Package(t, "one")); err != nil {
		t.Fatal(err)
	}
	b := openBlobs(t, s.Ref(""))
	if _, err := b.Text(t.Context(), "codes-1", 1000); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := b.Text(t.Context(), "codes-2", 1000); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if list, err := b.Texts(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// FuzzParseText holds that the manifest of a text is parsed only if it is one of this program.
func FuzzParseText(f *testing.F) {
	sum := "sha256:" + strings.Repeat("0a", 32)
	for _, seed := range []string{
		`{"artifactType":"` + textArtifact + `","config":{"digest":"` + sum + `","size":1}}`,
		`{"artifactType":"` + textArtifact + `","config":{"digest":"` + sum + `","size":-1}}`,
		`{"artifactType":"` + textArtifact + `","config":{"digest":"sha256:..","size":1}}`, `{}`, `[`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseText(b)
		if err != nil {
			if m != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("%v, %v", m, err)
			}
			return
		}
		if m.ArtifactType != textArtifact || m.Config.Size < 0 || m.Config.Digest.Validate() != nil {
			t.Errorf("%+v", m)
		}
	})
}
