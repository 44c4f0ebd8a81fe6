//go:build unix

package hub

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/disk"
)

// victim is a directory outside of the cache with files that nobody may change.
func victim(t *testing.T) (dir string, check func()) {
	t.Helper()
	dir = t.TempDir()
	before := map[string]string{"file": "mine", "old.tmp": "mine, too", "blobs.llmexport-part": "x"}
	long := time.Now().Add(-10 * stalePart)
	for name, text := range before {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, long, long)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func() {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(before) {
			t.Errorf("the victim has %v, %v", entries, err)
		}
		for name, text := range before {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
				t.Errorf("%s is %q now, %v", name, b, err)
			}
		}
	}
}

// TestPlanted puts links, named pipes, directories and other names of a victim's file wherever the cache has a file or a directory:
// nothing outside of the cache changes, nothing blocks, and what is in the place of a file that we would write or read is one
// error.
func TestPlanted(t *testing.T) {
	t.Parallel()
	files := tinyFiles()
	config, big := gitSHA1(files["config.json"]), sha256Hex(files[shard1])
	dirs := []string{"blobs", "snapshots", "refs", ".no_exist", ".llmexport", "trees", ".", "../.locks", "../.locks/models--org--tiny",
		"snapshots/COMMIT", ".no_exist/COMMIT"}
	names := []string{"blobs/" + config + partName, "blobs/" + big + partName, "blobs/" + config, "blobs/" + big,
		"refs/main", ".llmexport/COMMIT.json", "trees/COMMIT.json", ".no_exist/COMMIT/vocab.txt", "../CACHEDIR.TAG",
		"../.locks/models--org--tiny/" + config + ".lock", "../.locks/models--org--tiny/" + big + ".lock", "snapshots/COMMIT/config.json",
		"snapshots/COMMIT/" + shard1}
	// healed are places that a download fills anyway: what is there is taken away, and never written to.
	healed := map[string]bool{"blobs/" + config: true, "blobs/" + big: true, "snapshots/COMMIT/config.json": true, "snapshots/COMMIT/" + shard1: true}
	kinds := map[string]func(path, outside string) error{
		"link to a file":      func(path, outside string) error { return os.Symlink(filepath.Join(outside, "file"), path) },
		"dangling link":       func(path, outside string) error { return os.Symlink(filepath.Join(outside, "new"), path) },
		"link to a directory": func(path, outside string) error { return os.Symlink(outside, path) },
		"link to a device":    func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"named pipe":          func(path, _ string) error { return syscall.Mkfifo(path, 0o666) },
		"second name":         func(path, outside string) error { return os.Link(filepath.Join(outside, "file"), path) },
	}
	for _, place := range append(dirs, names...) {
		isDir := len(place) < 3 || strings.Contains(strings.Join(dirs, " "), place)
		for kind, plant := range kinds {
			t.Run(place+" "+kind, func(t *testing.T) {
				t.Parallel()
				_, _, commit, o := realHub(t, files)
				outside, check := victim(t)
				c := newCache(o, testRepo)
				path := filepath.Join(c.dir, strings.ReplaceAll(filepath.FromSlash(place), "COMMIT", commit))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), plant(path, outside)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what blocks on a pipe blocks for ever
				defer cancel()
				s, err := Resolve(ctx, mainRef, o)
				check()
				wrong := (*disk.KindError)(nil)
				switch {
				case kind == "second name" && !isDir || healed[place]:
					if err != nil {
						t.Fatal(err)
					}
					checkSnapshot(t, s, commit)
				case !errors.As(err, &wrong):
					t.Errorf("%v", err)
				case !strings.Contains(wrong.Path, filepath.Base(path)) && place != ".":
					t.Errorf("%v is not about %s", wrong, path)
				}
				// Offline, nothing is fetched in its place.
				o.Offline = true
				_, _ = Resolve(ctx, mainRef, o)
				check()
				if ctx.Err() != nil {
					t.Error("it took a minute")
				}
			})
		}
	}
}

// TestPlantedCheckpoint: a local directory in which something else is in the place of a file is refused before anything is read.
func TestPlantedCheckpoint(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", shard1, indexFile,
		"added_tokens.json", "LICENSE"} {
		for kind, plant := range map[string]func(path string) error{
			"named pipe": func(path string) error { return syscall.Mkfifo(path, 0o666) },
			"directory":  func(path string) error { return os.Mkdir(path, 0o777) },
			"device":     func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				for n, b := range tinyFiles() {
					if filepath.Dir(n) == "." && n != name {
						if err := os.WriteFile(filepath.Join(dir, n), b, 0o666); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := plant(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				_, err := Resolve(t.Context(), Ref{Path: dir}, Options{})
				if name == "LICENSE" && kind == "directory" { // some keep their licences in one
					if err != nil {
						t.Error(err)
					}
					return
				}
				wrong := (*disk.KindError)(nil)
				if !errors.As(err, &wrong) || !strings.Contains(wrong.Kind, kind) || filepath.Base(wrong.Path) != name {
					t.Error(err)
				}
			})
		}
	}
}

// TestOutsideSnapshot: a snapshot that another program has left may link to blobs of its repository, and to nothing else.
func TestOutsideSnapshot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, target string
		good         bool
	}{
		{"blob", "../../blobs/b", true},
		{"shared store", "../../blobs/s", true},
		{"other repository", "../../../models--org--other/blobs/b", false},
		{"outside", "/etc/hostname", false},
		{"device", "/dev/zero", false},
		{"pipe", "../../blobs/p", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Options{CacheDir: t.TempDir(), Offline: true}
			ca := newCache(o, testRepo)
			must := func(err error) {
				t.Helper()
				if err != nil && !errors.Is(err, fs.ErrExist) {
					t.Fatal(err)
				}
			}
			put := func(path, text string) {
				t.Helper()
				must(os.MkdirAll(filepath.Dir(path), 0o777))
				must(os.WriteFile(path, []byte(text), 0o666))
			}
			put(ca.blob("b"), "{}")
			put(filepath.Join(o.CacheDir, "models--org--other", "blobs", "b"), "{}")
			put(filepath.Join(o.CacheDir, "blobs", "ab", "s"), "{}")
			must(os.Symlink("../../blobs/ab/s", ca.blob("s")))
			must(syscall.Mkfifo(ca.blob("p"), 0o666))
			put(filepath.Join(ca.snapshotDir(testCommit), singleFile), "x")
			put(ca.ref("main"), testCommit)
			must(os.Symlink(c.target, filepath.Join(ca.snapshotDir(testCommit), "config.json")))
			if _, err := Resolve(t.Context(), mainRef, o); (err == nil) != c.good {
				t.Error(err)
			}
		})
	}
}
