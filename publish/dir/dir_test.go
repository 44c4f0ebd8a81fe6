package dir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestPublish(t *testing.T) {
	p := placetest.Package(t, "one")
	base := t.TempDir()
	target := filepath.Join(base, "a", "b", "out")
	r := placetest.Publish(t, Place{Path: target}, p)
	placetest.Want(t, target, p)
	_, sum, err := p.Manifest.Seal()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(target, manifest.FileName))
	if err != nil {
		t.Fatal(err)
	}
	want := place.Receipt{Status: place.Published, Store: "dir", Ref: target, Digest: sum, Files: 5, Bytes: p.Manifest.Bytes() + info.Size(),
		Uploaded: p.Manifest.Bytes() + info.Size()}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}

	t.Run("again", func(t *testing.T) {
		r := placetest.Publish(t, Place{Path: target, step: func(a string) error { return errors.New("touched: " + a) }}, p)
		want.Status, want.Uploaded = place.Unchanged, 0
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("receipt (-want +got):\n%s", diff)
		}
		placetest.Want(t, target, p)
	})
	t.Run("onto itself", func(t *testing.T) {
		if r := placetest.Publish(t, Place{Path: target, Replace: true}, place.Package{Dir: target, Manifest: p.Manifest}); r.Status != place.Unchanged {
			t.Errorf("status %s", r.Status)
		}
	})
	t.Run("copied, not linked", func(t *testing.T) {
		placetest.Write(t, filepath.Join(target, "config.json"), "edited")
		if got := placetest.Tree(t, p.Dir)["config.json"]; got != "config.json one" {
			t.Errorf("an edit of the published file reached the source: %q", got)
		}
	})
}

func TestPublishOver(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	tests := map[string]struct {
		prepare func(t *testing.T, target string)
		replace bool
		status  place.Status // empty for an error
		want    string
	}{
		"empty directory": {func(t *testing.T, target string) {
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
		}, false, place.Published, ""},
		"file":      {func(t *testing.T, target string) { placetest.Write(t, target, "mine") }, true, "", "is not a directory"},
		"directory": {func(t *testing.T, target string) { placetest.Write(t, filepath.Join(target, "mine"), "") }, true, "", "no package"},
		"broken manifest": {func(t *testing.T, target string) { placetest.Write(t, filepath.Join(target, manifest.FileName), "{}") }, true, "",
			"no package that llmexport can read"},
		"foreign manifest": {func(t *testing.T, target string) {
			placetest.Write(t, filepath.Join(target, manifest.FileName), `{"manifest":9}`)
		}, true, "", "version 9"},
		"another package": {func(t *testing.T, target string) { placetest.Publish(t, Place{Path: target}, one) }, false, "", "contains another package, sha256:"},
		"replaced":        {func(t *testing.T, target string) { placetest.Publish(t, Place{Path: target}, one) }, true, place.Replaced, ""},
		"same":            {func(t *testing.T, target string) { placetest.Publish(t, Place{Path: target}, two) }, true, place.Unchanged, ""},
		"damaged": {func(t *testing.T, target string) {
			placetest.Publish(t, Place{Path: target}, two)
			placetest.Write(t, filepath.Join(target, "llm.mnn"), "llm.mnn twp")
		}, false, "", "damaged; set replace to rewrite it: damaged: llm.mnn has sha256"},
		"damaged, replaced": {func(t *testing.T, target string) {
			placetest.Publish(t, Place{Path: target}, two)
			placetest.Write(t, filepath.Join(target, "llm.mnn"), "llm.mnn twp")
		}, true, place.Replaced, ""},
		"notes of the user": {func(t *testing.T, target string) {
			placetest.Publish(t, Place{Path: target}, one)
			placetest.Write(t, filepath.Join(target, "notes.txt"), "mine")
		}, true, "", `not part of the package, "notes.txt" first of 1`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			tc.prepare(t, target)
			before := placetest.Tree(t, base)
			r, err := place.To(t.Context(), Place{Path: target, Replace: tc.replace}, two)
			if tc.status != "" {
				if err != nil || r.Status != tc.status {
					t.Fatalf("status %q, %v, want %q", r.Status, err, tc.status)
				}
				placetest.Want(t, target, two)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "dir "+target+": ") {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPublishSymlink(t *testing.T) {
	p := placetest.Package(t, "one")
	base := t.TempDir()
	real, target := filepath.Join(base, "real"), filepath.Join(base, "out")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, target); err != nil {
		t.Skipf("symbolic links cannot be made here: %v", err)
	}
	before := placetest.Tree(t, base)
	if _, err := place.To(t.Context(), Place{Path: target, Replace: true}, p); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("target is a link: %v", err)
	}
	if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
		t.Errorf("the disk changed (-before +after):\n%s", diff)
	}
	t.Run("to the package's inside", func(t *testing.T) {
		link := filepath.Join(base, "link")
		if err := os.Symlink(p.Dir, link); err != nil {
			t.Fatal(err)
		}
		if _, err := place.To(t.Context(), Place{Path: filepath.Join(link, "x", "out")}, p); err == nil || !strings.Contains(err.Error(), "is inside the other") {
			t.Errorf("target inside the package: %v", err)
		}
	})
	t.Run("in the package", func(t *testing.T) {
		p := placetest.Package(t, "one")
		path := filepath.Join(p.Dir, "llm.mnn")
		other := filepath.Join(base, "llm.mnn")
		if err := os.Rename(path, other); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, path); err != nil {
			t.Fatal(err)
		}
		if _, err := place.To(t.Context(), Place{Path: filepath.Join(base, "new")}, p); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("package with a link: %v", err)
		}
	})
}

func TestPublishRefuses(t *testing.T) {
	base := t.TempDir()
	tests := map[string]struct {
		change func(p *place.Package)
		path   string
		want   string
	}{
		"flipped bit":  {func(p *place.Package) { placetest.Write(t, filepath.Join(p.Dir, "llm.mnn"), "llm.mnn onf") }, "out", "llm.mnn has sha256"},
		"truncated":    {func(p *place.Package) { placetest.Write(t, filepath.Join(p.Dir, "llm.mnn"), "") }, "out", "llm.mnn has 0 bytes"},
		"missing":      {func(p *place.Package) { os.Remove(filepath.Join(p.Dir, "llm.mnn.weight")) }, "out", "llm.mnn.weight is missing"},
		"extra":        {func(p *place.Package) { placetest.Write(t, filepath.Join(p.Dir, "llm.mnn.json"), "") }, "out", `"llm.mnn.json" is not in the manifest`},
		"bad manifest": {func(p *place.Package) { p.Manifest.MinimumEngine = "" }, "out", "minimum engine"},
		"no path":      {func(p *place.Package) {}, "", "no directory"},
		"root":         {func(p *place.Package) {}, filepath.VolumeName(base) + string(filepath.Separator), "root"},
		"below a file": {func(p *place.Package) { placetest.Write(t, filepath.Join(base, "file"), "") }, "file/x/out", "file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := placetest.Package(t, "one")
			tc.change(&p)
			path := tc.path
			if path != "" && !filepath.IsAbs(path) {
				path = filepath.Join(base, filepath.FromSlash(path))
			}
			before := placetest.Tree(t, base)
			_, err := place.To(t.Context(), Place{Path: path, Replace: true}, p)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("inside each other", func(t *testing.T) {
		p := placetest.Package(t, "one")
		for _, path := range []string{filepath.Join(p.Dir, "out"), filepath.Dir(p.Dir)} {
			if _, err := place.To(t.Context(), Place{Path: path, Replace: true}, p); err == nil || !strings.Contains(err.Error(), "is inside the other") {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
	t.Run("read-only parent", func(t *testing.T) {
		parent := t.TempDir()
		if err := os.Chmod(parent, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(parent, 0o755)
		if f, err := os.Create(filepath.Join(parent, "probe")); err == nil {
			f.Close()
			os.Remove(f.Name())
			t.Skip("permissions do not bind this user")
		}
		if _, err := place.To(t.Context(), Place{Path: filepath.Join(parent, "out")}, placetest.Package(t, "one")); !errors.Is(err, os.ErrPermission) {
			t.Errorf("got %v", err)
		}
	})
}

// actions lists the steps of a publish over the package old, or over nothing.
func actions(t *testing.T, old *place.Package, p place.Package) []string {
	t.Helper()
	target := filepath.Join(t.TempDir(), "out")
	if old != nil {
		placetest.Publish(t, Place{Path: target}, *old)
	}
	var list []string
	placetest.Publish(t, Place{Path: target, Replace: true, step: func(a string) error {
		list = append(list, a)
		return nil
	}}, p)
	return list
}

// afterCommit are the steps behind the point where the new package counts as published.
func afterCommit(action string) bool { return strings.HasSuffix(action, " old") }

// TestPublishFails lets every single step fail, as on a full disk, and cancels at every single step.
func TestPublishFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	for name, old := range map[string]*place.Package{"new": nil, "replace": &one} {
		for i, action := range actions(t, old, two) {
			t.Run(fmt.Sprintf("%s/%d %s", name, i, action), func(t *testing.T) {
				base := t.TempDir()
				target := filepath.Join(base, "a", "out")
				if old != nil {
					placetest.Publish(t, Place{Path: target}, *old)
				}
				before := placetest.Tree(t, base)
				n := 0
				full := Place{Path: target, Replace: true, step: func(a string) error {
					if n++; n == i+1 {
						return &os.PathError{Op: "write", Path: a, Err: syscall.ENOSPC}
					}
					return nil
				}}
				_, err := place.To(t.Context(), full, two)
				if afterCommit(action) {
					if err != nil {
						t.Errorf("the package is there, and yet: %v", err)
					}
					placetest.Publish(t, Place{Path: target, Replace: true}, two)
					placetest.Want(t, target, two)
					return
				}
				if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line on the full disk", err)
				}
				if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
					t.Errorf("the disk changed (-before +after):\n%s", diff)
				}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n = 0
				stopped := Place{Path: target, Replace: true, step: func(string) error {
					if n++; n == i+1 {
						cancel()
					}
					return nil
				}}
				switch _, err = place.To(ctx, stopped, two); {
				case err == nil:
					placetest.Want(t, target, two) // too late to stop
				case !errors.Is(err, context.Canceled):
					t.Errorf("got %v, want context.Canceled", err)
				default:
					if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
						t.Errorf("cancelled: the disk changed (-before +after):\n%s", diff)
					}
				}
			})
		}
	}
}

const (
	killStep   = "PUBLISH_TEST_KILL_STEP"
	killTarget = "PUBLISH_TEST_KILL_TARGET"
	killRevert = "PUBLISH_TEST_KILL_REVERT"
	killExit   = 77
)

// children are the processes that tests kill.
var children = map[string]func(value string) error{
	publishTo:  func(path string) error { return placetest.PublishChild(Place{Path: path}) },
	killTarget: killedPublish,
	pullFrom:   killedPull,
}

// killedPublish is the process that TestPublishKilled and TestRevertKilled kill: it ends itself at a step.
func killedPublish(target string) error {
	last, err := strconv.Atoi(os.Getenv(killStep))
	if err != nil {
		panic(err)
	}
	p, err := place.Open(os.Getenv(placetest.PackageEnv))
	if err != nil {
		return err
	}
	n := 0
	step := func(string) error {
		if n++; n == last {
			os.Exit(killExit)
		}
		return nil
	}
	if os.Getenv(killRevert) != "" {
		err = revertDirs(context.Background(), target, p, step)
	} else {
		_, err = place.To(context.Background(), Place{Path: target, Replace: true, step: step}, p)
	}
	if err == nil {
		err = errors.New("it was not killed")
	}
	return err
}

// TestPublishKilled ends the process at every step. Whatever it leaves, the target is one of the two
// packages or absent, and the next run ends as if nothing had happened.
func TestPublishKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	staged := filepath.Join(t.TempDir(), "two")
	placetest.Publish(t, Place{Path: staged}, two)
	list := actions(t, &one, two)
	for i, action := range list {
		t.Run(fmt.Sprintf("%d %s", i, action), func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			placetest.Publish(t, Place{Path: target}, one)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killTarget+"="+target, killStep+"="+strconv.Itoa(i+1), placetest.PackageEnv+"="+staged)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != killExit {
				t.Fatalf("exit code %d: %s", code, out)
			}
			if p, err := place.OpenVerified(t.Context(), target); err == nil {
				if p.Manifest.Files[0] != one.Manifest.Files[0] && p.Manifest.Files[0] != two.Manifest.Files[0] {
					t.Error("the target is neither package")
				}
			} else if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is damaged: %v", err)
			}
			// A run that may not replace repairs too, and leaves one of the packages.
			killed := placetest.Tree(t, base)
			_, err := place.To(t.Context(), Place{Path: target}, one)
			if err != nil && !strings.Contains(err.Error(), "contains another package") {
				t.Errorf("after %v: %v", killed, err)
			}
			placetest.Publish(t, Place{Path: target, Replace: true}, two)
			placetest.Want(t, target, two)
		})
	}
}

func TestRepair(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	const hex, hex2 = "0123456789abcdef", "fedcba9876543210"
	t.Run("others stay", func(t *testing.T) {
		base := t.TempDir()
		target := filepath.Join(base, "out")
		others := []string{"out.tmp-0123", "out.tmp-" + strings.ToUpper(hex), "out.tmp-" + hex + "x", "out2.tmp-" + hex, "out.tmp", "out.old-" + hex}
		want := map[string]string{}
		for _, name := range others {
			placetest.Write(t, filepath.Join(base, name, "mine"), "x")
			want[name], want[name+"/mine"] = "/", "x"
		}
		file := "out.tmp-" + hex2
		placetest.Write(t, filepath.Join(base, file), "a file")
		want[file] = "a file"
		placetest.Write(t, filepath.Join(base, "out.tmp-"+hex, "sub", "leftover"), "x")
		placetest.Publish(t, Place{Path: target, Replace: true}, one)
		got := placetest.Tree(t, base)
		maps.DeleteFunc(got, func(k, _ string) bool { return k == "out" || strings.HasPrefix(k, "out/") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("put back", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "out")
		placetest.Publish(t, Place{Path: target + ".old-" + hex}, one)
		_, err := place.To(t.Context(), Place{Path: target}, two)
		if err == nil || !strings.Contains(err.Error(), "contains another package") {
			t.Errorf("got %v", err)
		}
		placetest.Want(t, target, one)
	})
	t.Run("two of them", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "out")
		placetest.Publish(t, Place{Path: target + ".old-" + hex}, one)
		placetest.Publish(t, Place{Path: target + ".old-" + hex2}, two)
		_, err := place.To(t.Context(), Place{Path: target, Replace: true}, two)
		if err == nil || !strings.Contains(err.Error(), "2 packages that were moved aside") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("kept without replace", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "out")
		old := target + ".old-" + hex
		placetest.Publish(t, Place{Path: target}, two)
		placetest.Publish(t, Place{Path: old}, one)
		placetest.Publish(t, Place{Path: target}, two)
		if _, err := os.Stat(old); err != nil {
			t.Error(err)
		}
		placetest.Publish(t, Place{Path: target, Replace: true}, two)
		placetest.Want(t, target, two)
	})
}

// TestFileAddedDuringReplace: what a user puts into the old package while the new one is copied survives.
func TestFileAddedDuringReplace(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	target := filepath.Join(t.TempDir(), "out")
	placetest.Publish(t, Place{Path: target}, one)
	notes := filepath.Join(target, "notes")
	_, err := place.To(t.Context(), Place{Path: target, Replace: true, step: func(a string) error {
		if a == "create llm.mnn" {
			placetest.Write(t, notes, "mine")
		}
		return nil
	}}, two)
	if err == nil || !strings.Contains(err.Error(), `"notes"`) {
		t.Errorf("got %v", err)
	}
	if got := placetest.Tree(t, target)["notes"]; got != "mine" {
		t.Errorf("notes are %q", got)
	}
	placetest.Alone(t, target)
}

func TestTwoPublishers(t *testing.T) {
	p := placetest.Package(t, "one")
	target := filepath.Join(t.TempDir(), "out")
	var wg sync.WaitGroup
	got := make([]place.Receipt, 4)
	errs := make([]error, len(got))
	for i := range got {
		wg.Go(func() { got[i], errs[i] = place.To(t.Context(), Place{Path: target}, p) })
	}
	wg.Wait()
	count := map[place.Status]int{}
	for i := range got {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		count[got[i].Status]++
	}
	if diff := cmp.Diff(map[place.Status]int{place.Published: 1, place.Unchanged: len(got) - 1}, count); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	placetest.Want(t, target, p)
}

func TestLock(t *testing.T) {
	p := placetest.Package(t, "one")
	target := filepath.Join(t.TempDir(), "out")
	path, moment := filepath.Join(filepath.Dir(target), ".out.llmexport-lock"), 100*time.Millisecond
	live := target + ".tmp-0123456789abcdef"

	t.Run("a live publisher is not disturbed", func(t *testing.T) {
		l := flock.New(path)
		if err := l.Lock(); err != nil {
			t.Fatal(err)
		}
		placetest.Write(t, filepath.Join(live, "x"), "being written")
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		defer cancel()
		if _, err := place.To(ctx, Place{Path: target}, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want context.DeadlineExceeded", err)
		}
		if _, err := os.Stat(filepath.Join(live, "x")); err != nil {
			t.Error(err)
		}
		time.AfterFunc(moment, func() { l.Close() })
		placetest.Publish(t, Place{Path: target}, p)
		placetest.Want(t, target, p)
	})
	t.Run("left by a killed run", func(t *testing.T) {
		placetest.Write(t, path, "")
		placetest.Publish(t, Place{Path: target}, p)
		placetest.Want(t, target, p)
	})
	t.Run("somebody's file", func(t *testing.T) {
		placetest.Write(t, path, "mine")
		if _, err := place.To(t.Context(), Place{Path: target}, p); err == nil || !strings.Contains(err.Error(), "not a lock") {
			t.Errorf("got %v", err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestOpenVerified(t *testing.T) {
	p := placetest.Package(t, "one")
	target := filepath.Join(t.TempDir(), "out")
	r := placetest.Publish(t, Place{Path: target}, p)
	got, err := place.OpenVerified(t.Context(), r.Ref)
	if err != nil || got.Dir != target || got.Manifest.Digest != r.Digest {
		t.Errorf("%s, %v", got.Dir, err)
	}
	placetest.Write(t, filepath.Join(target, "llm.mnn.weight"), "llm.mnn.weight onf")
	if _, err := place.OpenVerified(t.Context(), target); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "llm.mnn.weight has sha256") {
		t.Errorf("flipped bit: %v", err)
	}
	if _, err := place.OpenVerified(t.Context(), filepath.Join(target, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
}

// TestPullReleased: packages that earlier versions of this program wrote still verify. They are never
// rewritten.
func TestOpenReleased(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "dir", "v*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no packages: %v", err)
	}
	for _, dir := range dirs {
		if _, err := place.OpenVerified(t.Context(), dir); err != nil {
			t.Error(err)
		}
	}
}

func TestMain(m *testing.M) { placetest.Main(m, children) }
