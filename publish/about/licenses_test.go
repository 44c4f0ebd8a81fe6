package about

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestLicenses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LICENSE", "License-Model.txt", "notice", "USE_POLICY.md", "README.md", "model.safetensors", "my-LICENSE", "LICENSES/mit.txt"} {
		placetest.Write(t, filepath.Join(dir, filepath.FromSlash(name)), "x")
	}
	placetest.Write(t, filepath.Join(dir, "NOTICE.long"), strings.Repeat("x", maxLicense+1))
	names, warnings, err := Licenses(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"LICENSE", "License-Model.txt", "USE_POLICY.md", "notice"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`licence file "NOTICE.long" is not copied: it has 1048577 bytes, the limit is 1048576`}, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, _, err := Licenses(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("no directory: %v", err)
	}
}

func TestLicensesLinks(t *testing.T) {
	base := t.TempDir()
	cache := filepath.Join(base, "models--a--b")
	dir := filepath.Join(cache, "snapshots", "rev")
	placetest.Write(t, filepath.Join(cache, "blobs", "abc"), "licence")
	placetest.Write(t, filepath.Join(base, "secret"), "key")
	placetest.Write(t, filepath.Join(dir, "texts", "mit"), "licence")
	links := map[string]string{
		"LICENSE":        filepath.Join("..", "..", "blobs", "abc"),
		"LICENSE.inside": filepath.Join("texts", "mit"),
		"LICENSE.broken": "nowhere",
		"LICENSE.dir":    "texts",
		"NOTICE":         filepath.Join("..", "..", "..", "secret"),
		"NOTICE.up":      filepath.Join("..", "..", "blobs", "..", "..", "secret"),
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("symbolic links cannot be made here: %v", err)
		}
	}
	names, warnings, err := Licenses(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"LICENSE", "LICENSE.inside"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(warnings) != 4 {
		t.Errorf("warnings %q", warnings)
	}
	for _, w := range warnings {
		if strings.Contains(w, base) {
			t.Errorf("warning names a place on this machine: %s", w)
		}
	}
}
