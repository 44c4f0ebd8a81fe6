package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func places(stores ...*fakeStore) []Place {
	var list []Place
	for _, s := range stores {
		list = append(list, Place{s, Target{}})
	}
	return list
}

func TestAll(t *testing.T) {
	p := newPackage(t, "one")
	bad := errors.New("no more room")
	fail := func() error { return bad }
	tests := map[string]struct {
		a, b, c fakeStore
		log     string
		want    []string // parts of the error
		refs    []string // of the receipts
	}{
		"good":        {log: "stage a, stage b, stage c, commit a, commit b, commit c", refs: []string{"a", "b", "c"}},
		"stage fails": {b: fakeStore{stage: fail}, log: "stage a, stage b", want: []string{"no more room; no place shows it"}},
		"commit fails": {c: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a, commit b, commit c, revert b, revert a",
			want: []string{"no more room (a: taken back, as before; b: taken back, as before; c: failed)"}},
		"first commit fails": {a: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a",
			want: []string{"no more room (a: failed; b: as before; c: as before)"}},
		"revert fails": {a: fakeStore{revert: fail}, c: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a, commit b, commit c, revert b, revert a",
			want: []string{"a: shows the package, it could not be taken back: no more room; b: taken back"}, refs: []string{"a"}},
		"was there": {a: fakeStore{had: true}, c: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a, commit b, commit c, revert b",
			want: []string{"a: has the package, as before; b: taken back"}, refs: []string{"a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var log []string
			stores := []*fakeStore{&tc.a, &tc.b, &tc.c}
			for i, s := range stores {
				s.name, s.log = string(rune('a'+i)), &log
			}
			receipts, err := All(t.Context(), places(stores...), p)
			if (err == nil) != (tc.want == nil) {
				t.Errorf("error %v", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) || !errors.Is(err, bad) {
					t.Errorf("got %v, want %q", err, w)
				}
			}
			if got := strings.Join(log, ", "); got != tc.log {
				t.Errorf("did %s, want %s", got, tc.log)
			}
			var refs []string
			for _, r := range receipts {
				refs = append(refs, r.Ref)
			}
			if !slices.Equal(refs, tc.refs) {
				t.Errorf("receipts %q, want %q", refs, tc.refs)
			}
			for _, s := range stores {
				if began := strings.Contains(tc.log, "stage "+s.name) && s.stage == nil; began != (s.closed == 1) {
					t.Errorf("%s was closed %d times", s.name, s.closed)
				}
			}
		})
	}
	t.Run("interrupted between two", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &fakeStore{name: "a", commit: func() error { cancel(); return nil }}
		b := &fakeStore{name: "b"}
		receipts, err := All(ctx, places(a, b), p)
		if !errors.Is(err, context.Canceled) || len(receipts) != 0 || a.shown || b.shown {
			t.Errorf("%v %v %v %v", receipts, err, a.shown, b.shown)
		}
	})
}

// Two directories get a package together, or keep what they had.
func TestAllDirs(t *testing.T) {
	one, two := newPackage(t, "one"), newPackage(t, "two")
	for name, prepare := range map[string]func(t *testing.T, target string){
		"nothing": func(t *testing.T, target string) {},
		"empty": func(t *testing.T, target string) {
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"another": func(t *testing.T, target string) { mustPublish(t, Dir{Path: target}, one) },
		"same":    func(t *testing.T, target string) { mustPublish(t, Dir{Path: target}, two) },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			prepare(t, target)
			before := tree(t, base)
			d := Dir{Path: target, Replace: true}
			bad := &fakeStore{name: "bad", commit: func() error { return syscall.ENOSPC }}
			_, err := All(t.Context(), []Place{{d, Target{}}, {bad, Target{}}}, two)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(before, tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
			if _, err := All(t.Context(), []Place{{d, Target{}}, {Dir{Path: filepath.Join(base, "b")}, Target{}}}, two); err != nil {
				t.Fatal(err)
			}
			wantPackage(t, target, two)
			wantPackage(t, filepath.Join(base, "b"), two)
		})
	}
	t.Run("killed between two", func(t *testing.T) {
		base := t.TempDir()
		a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
		mustPublish(t, Dir{Path: a}, two)
		mustPublish(t, Dir{Path: b + ".tmp-0123456789abcdef"}, two)
		receipts, err := All(t.Context(), []Place{{Dir{Path: a}, Target{}}, {Dir{Path: b}, Target{}}}, two)
		if err != nil || len(receipts) != 2 || receipts[0].Status != Unchanged || receipts[1].Status != Published {
			t.Errorf("%+v, %v", receipts, err)
		}
		wantPackage(t, b, two)
	})
	t.Run("notes since", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "out")
		bad := &fakeStore{name: "bad", commit: func() error { write(t, filepath.Join(target, "notes"), "mine"); return syscall.ENOSPC }}
		receipts, err := All(t.Context(), []Place{{Dir{Path: target}, Target{}}, {bad, Target{}}}, two)
		if len(receipts) != 1 || err == nil || !strings.Contains(err.Error(), `shows the package, it could not be taken back`) || tree(t, target)["notes"] != "mine" {
			t.Errorf("%v %v", receipts, err)
		}
	})
}

// revertDirs publishes two to a directory beside a place that fails.
func revertDirs(ctx context.Context, target string, p Package, step func(string) error) error {
	bad := &fakeStore{name: "bad", commit: func() error { return syscall.ENOSPC }}
	_, err := All(ctx, []Place{{Dir{Path: target, Replace: true, step: step}, Target{}}, {bad, Target{}}}, p)
	return err
}

// TestRevertKilled ends the process at every step of a publication that is taken back. The target is one of the
// packages or absent, and the next run ends as if nothing had happened.
func TestRevertKilled(t *testing.T) {
	one, two := newPackage(t, "one"), newPackage(t, "two")
	staged := filepath.Join(t.TempDir(), "two")
	mustPublish(t, Dir{Path: staged}, two)
	var list []string
	target := filepath.Join(t.TempDir(), "out")
	mustPublish(t, Dir{Path: target}, one)
	if err := revertDirs(t.Context(), target, two, func(a string) error { list = append(list, a); return nil }); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	wantPackage(t, target, one)
	from := slices.Index(list, "move aside")
	if !slices.Contains(list, "move out") || !slices.Contains(list, "move back") || from < 0 {
		t.Fatalf("steps %q", list)
	}
	for i := from; i < len(list); i++ {
		t.Run(list[i], func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "out")
			mustPublish(t, Dir{Path: target}, one)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killTarget+"="+target, fmt.Sprintf("%s=%d", killStep, i+1), "PUBLISH_TEST_KILL_PACKAGE="+staged, "PUBLISH_TEST_KILL_REVERT=1")
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != killExit {
				t.Fatalf("exit code %d: %s", code, out)
			}
			if _, err := OpenVerified(t.Context(), target); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is damaged: %v", err)
			}
			mustPublish(t, Dir{Path: target, Replace: true}, two)
			wantPackage(t, target, two)
		})
	}
}

func TestDirDiff(t *testing.T) {
	one, two := newPackage(t, "one"), newPackage(t, "two")
	write(t, filepath.Join(two.Dir, "llm.mnn"), "llm.mnn one")
	two.Manifest.Files[1] = one.Manifest.Files[1]
	data, err := two.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	size := two.Manifest.Bytes() + int64(len(data))
	all := []string{"config.json", "llm.mnn", "llm.mnn.weight", "manifest.json", "sub/empty.bin"}
	tests := map[string]struct {
		prepare func(target string)
		want    Diff
		err     string
	}{
		"nothing": {func(string) {}, Diff{Status: Published, Add: all, Upload: size}, ""},
		"same":    {func(d string) { mustPublish(t, Dir{Path: d}, two) }, Diff{Status: Unchanged, Keep: all}, ""},
		"another": {func(d string) { mustPublish(t, Dir{Path: d}, one) }, Diff{Status: Replaced, Change: []string{"config.json", "llm.mnn.weight", "manifest.json"}, Keep: []string{"llm.mnn", "sub/empty.bin"}, Upload: size}, ""},
		"damaged": {func(d string) {
			mustPublish(t, Dir{Path: d}, two)
			write(t, filepath.Join(d, "llm.mnn"), "llm.mnn onf")
			os.Remove(filepath.Join(d, "config.json"))
		}, Diff{Status: Replaced, Add: []string{"config.json"}, Change: []string{"llm.mnn"}, Keep: []string{"llm.mnn.weight", "manifest.json", "sub/empty.bin"}, Upload: size}, ""},
		"file": {func(d string) { write(t, d, "mine") }, Diff{}, "is not a directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			tc.prepare(target)
			before := tree(t, base)
			got, err := Dir{Path: target, Replace: true}.Diff(t.Context(), two)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestNamed(t *testing.T) {
	got, err := Target{Dir: "dist/{name}/{name}", Replace: true, LicenseAck: "{odd}"}.Named("x-int4")
	if want := (Target{Dir: "dist/x-int4/x-int4", Replace: true, LicenseAck: "{odd}"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"dist/{nam}", "dist/{name", "name}"} {
		if _, err := (Target{Dir: bad}).Named("x"); err == nil || !strings.Contains(err.Error(), "the one placeholder") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var entry *EntryError
	if _, err := Places([]Target{{Dir: "a/../{name}"}, {Dir: "x"}}, ".", "x"); !errors.As(err, &entry) || entry.Entry != 1 {
		t.Errorf("one place twice: %v", err)
	}
}

func TestParseTarget(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	for ref, want := range map[string]string{"out": filepath.Join(base, "out"), "dir:out": filepath.Join(base, "out"), "dir:///x/y": "/x/y", "/x": "/x", "./a:b": filepath.Join(base, "a:b")} {
		got, err := ParseTarget(ref)
		if err != nil || got.Dir != filepath.ToSlash(want) {
			t.Errorf("%s: %+v, %v, want %s", ref, got, err, want)
		}
	}
	for _, bad := range []string{"", "dir:", "gopher://x"} {
		if got, err := ParseTarget(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	if got, err := (Target{Dir: "x"}).With("replace", "private"); err != nil || got != (Target{Dir: "x", Replace: true}) {
		t.Errorf("%+v, %v", got, err)
	}
}
