package publish

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestOrigins(t *testing.T) {
	last := ""
	for _, k := range kinds {
		if k.scheme <= last {
			t.Errorf("%s is not in order or not unique", k.scheme)
		}
		last = k.scheme
		if k.form == "" || k.origin == nil {
			t.Errorf("%s is not complete", k.scheme)
		}
	}
	for ref, want := range map[string]string{
		"gopher://x": `"gopher" is not a kind of place`, "": "the reference is empty", "dir:": "the reference is empty", "none": "no such file",
	} {
		if _, err := OpenOrigin(t.Context(), ref, place.OpenOptions{}); err == nil || !strings.Contains(err.Error(), want) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v, want %q", ref, err, want)
		}
	}
	for _, p := range kinds {
		if p.scheme == "" || p.place == nil {
			t.Errorf("%s has no form as a reference", p.key)
		}
	}
}

// What cannot be read is known from what is not there.
func TestRefError(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	for _, ref := range []string{"", "dir:", "gopher://x", "hf://a/b/c", "hf://../x", "hf://a/b@../x", "ms://a/b/c", "oci://x", "s3:///a",
		"s3://bucket/a?acl=x", "s3://bucket/a?endpoint=%zz"} {
		if _, err := OpenOrigin(t.Context(), ref, place.OpenOptions{}); !errors.As(err, new(*place.RefError)) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, err := OpenOrigin(t.Context(), filepath.Join(t.TempDir(), "none"), place.OpenOptions{}); err == nil || errors.As(err, new(*place.RefError)) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// A directory is pulled by its path, with its scheme and without.
func TestPullDir(t *testing.T) {
	p := placetest.Package(t, "one")
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	if _, err := place.To(t.Context(), dir.Place{Path: from}, p); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{from, "dir:" + from} {
		if _, done, err := Pull(t.Context(), ref, to, PullOptions{}); err != nil || done.From != from {
			t.Errorf("%+v, %v", done, err)
		}
		placetest.Want(t, to, p)
	}
}

func TestParseTarget(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	for ref, want := range map[string]string{"out": filepath.Join(base, "out"), "dir:out": filepath.Join(base, "out"), "dir:///x/y": "/x/y",
		"/x": "/x", "./a:b": filepath.Join(base, "a:b")} {
		got, err := ParseTarget(ref)
		if err != nil || got.Dir != filepath.ToSlash(want) {
			t.Errorf("%s: %+v, %v, want %s", ref, got, err, want)
		}
	}
	var wrong *place.RefError
	for _, bad := range []string{"", "dir:", "gopher://x", "hf:/a/b", "hf:a/b", "git@hf.co:a/b", "s3:bucket/x", "name:tag", " ", " x", "x ", "hf://a/b@"} {
		if got, err := ParseTarget(bad); !errors.As(err, &wrong) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
		if _, err := OpenOrigin(t.Context(), bad, place.OpenOptions{}); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"hf://a/b/", "hf://a/b@../c", "ms://a/b c", "ms://a/b@", "oci://ghcr.io", "oci://ghcr.io/A/b:c", "s3://B/x",
		"s3://bucket/x?endpoint=h", "s3://bucket/x?y=z"} {
		if _, err := OpenOrigin(t.Context(), bad, place.OpenOptions{}); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := (Target{Dir: "x"}).With("replace", "private"); err != nil || got != (Target{Dir: "x", Replace: true}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// The rest of a reference after its place is not repeated.
func TestPullHides(t *testing.T) {
	for _, ref := range []string{"s3://bucket/a?acl=x", "s3://bucket/a?endpoint=ftp://x", "s3://bucket/a?endpoint=%zz", "s3:///a",
		"s3://bucket/a?endpoint=http://me:hush@127.0.0.1:1", "s3://bucket/a?endpoint=http://127.0.0.1:1?key=hush", "s3://bucket/a?secret=hush&endpoint=%zz"} {
		if _, _, err := Pull(t.Context(), ref, filepath.Join(t.TempDir(), "p"),
			PullOptions{PullOptions: dir.PullOptions{Transfer: placetest.Quick}}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", ref, err)
		}
	}
}
