package publish

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/place"
)

func TestMeant(t *testing.T) {
	for ref, want := range map[string]string{
		"ghcr.io/me/g": "oci://ghcr.io/me/g:TAG", "ghcr.io/me/g:int4": "oci://ghcr.io/me/g:int4", "ghcr.io/me": "oci://ghcr.io/me:TAG",
		"localhost:5000/me/g": "oci://localhost:5000/me/g:TAG", "localhost/g": "oci://localhost/g:TAG", "ghcr.io/me/{name}": "oci://ghcr.io/me/{name}:TAG",
		"me/g": "hf://me/g", "me/g@v1": "hf://me/g@v1", "me/{name}": "hf://me/{name}", "huggingface.co/me/g": "hf://me/g", "git@hf.co:me/g": "hf://me/g",
		"https://huggingface.co/me/g/tree/v1": "hf://me/g@v1",

		"g": "", "./me/g": "", "/me/g": "", "../g": "", "a/b/c": "", "oci://ghcr.io/me": "", "s3://bucket/x": "", "models.d/v1/g/x y": "", "": "",
	} {
		if got := Meant(ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

// A reference to a repository or a registry without its scheme does not become a directory; one that is there is one.
func TestParseTargetMeant(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	for _, ref := range []string{"ghcr.io/me/g", "me/g", "me/g@v1", "me/{name}", "ghcr.io/me/{name}:int4"} {
		_, err := ParseTarget(ref)
		if wrong := (*place.RefError)(nil); !errors.As(err, &wrong) || !strings.HasSuffix(err.Error(), "a new directory is ./"+ref) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	for _, ref := range []string{"g", "./me/g", "dir:me/g", "../me/g", "a/b/c", "/me/g"} {
		if _, err := ParseTarget(ref); err != nil {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if err := os.Mkdir("me", 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := ParseTarget("me/g"); err != nil || got.Dir != filepath.ToSlash(filepath.Join(base, "me", "g")) {
		t.Errorf("in a directory that is there: %+v, %v", got, err)
	}
}
