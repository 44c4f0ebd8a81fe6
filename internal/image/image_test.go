package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// write writes the files of a release into a new directory.
func write(t *testing.T) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"amd64": "program for amd64", "arm64": "program for arm64", "LICENSE": "licence"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"-version", "0.1.0", "-revision", "c43f230", "-created", "2026-11-23T09:05:30Z",
		"-license", filepath.Join(dir, "LICENSE"),
		"-out", filepath.Join(dir, "out"), "linux/amd64=" + filepath.Join(dir, "amd64"), "linux/arm64=" + filepath.Join(dir, "arm64")}
}

// files returns what a container of the image has, and checks the owners.
func files(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	got := map[string]string{}
	fs := mutate.Extract(image)
	defer fs.Close()
	for r := tar.NewReader(fs); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"work": user}[h.Name]; h.Uid != want {
			t.Errorf("%s is of user %d, want %d", h.Name, h.Uid, want)
		}
		got[h.Name] = h.FileInfo().Mode().String() + " " + string(b)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	dir, args := write(t)
	var out strings.Builder
	if err := run(args, &out); err != nil {
		t.Fatal(err)
	}
	l, err := layout.ImageIndexFromPath(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(l); err != nil { // all digests are right
		t.Fatal(err)
	}
	top, err := l.IndexManifest()
	if err != nil || len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != strings.TrimSpace(out.String()) {
		t.Fatalf("%+v, printed was %s: %v", top, out.String(), err)
	}
	index, err := l.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}

	// Each platform gets its program.
	for _, arch := range []string{"amd64", "arm64"} {
		images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil || len(images) != 1 {
			t.Fatal(len(images), err)
		}
		image := images[0]
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Architecture != arch || c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != "/llmexport" ||
			c.Config.Labels["org.opencontainers.image.revision"] != "c43f230" {
			t.Errorf("%s: %+v", arch, c)
		}
		got := files(t, image)
		for name, want := range map[string]string{
			"llmexport": "-rwxr-xr-x program for " + arch, "LICENSE": "-rw-r--r-- licence", "tmp": "dtrwxrwxrwx ", "work": "drwxr-xr-x ",
		} {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", arch, name, got[name], want)
			}
		}
	}

	// Again, it is the same image.
	_, again := write(t)
	var second strings.Builder
	if err := run(again, &second); err != nil || second.String() != out.String() {
		t.Errorf("%s, then %s: %v", out.String(), second.String(), err)
	}
}

func TestImageRefuses(t *testing.T) {
	t.Parallel()
	dir, _ := write(t)
	out := filepath.Join(dir, "out")
	for _, args := range [][]string{
		{"-out", out}, {"-out", out, "linux/amd64"}, {"-out", out, "linux/amd64=" + filepath.Join(dir, "none")},
		{"-out", out, "a/b/c/d/e=" + filepath.Join(dir, "amd64")},
		{"-out", out, "-created", "yesterday", "linux/amd64=" + filepath.Join(dir, "amd64")}, {"linux/amd64=" + filepath.Join(dir, "amd64")},
		{"-out", out, "-license", filepath.Join(dir, "none"), "linux/amd64=" + filepath.Join(dir, "amd64")},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
