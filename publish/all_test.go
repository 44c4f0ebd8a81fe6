package publish

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func places(stores ...*fakeStore) []Place {
	var list []Place
	for _, s := range stores {
		list = append(list, Place{s, Target{}})
	}
	return list
}

func TestAll(t *testing.T) {
	p := placetest.Package(t, "one")
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
			want: []string{"no more room (a: reverted; b: reverted; c: failed)"}},
		"first commit fails": {a: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a",
			want: []string{"no more room (a: failed; b: unchanged; c: unchanged)"}},
		"revert fails": {a: fakeStore{revert: fail}, c: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a, commit b, commit c, revert b, revert a",
			want: []string{"a: still shows the package, reverting failed: no more room; b: reverted"}, refs: []string{"a"}},
		"was there": {a: fakeStore{had: true}, c: fakeStore{commit: fail}, log: "stage a, stage b, stage c, commit a, commit b, commit c, revert b",
			want: []string{"a: unchanged, already had the package; b: reverted"}, refs: []string{"a"}},
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
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	for name, prepare := range map[string]func(t *testing.T, target string){
		"nothing": func(t *testing.T, target string) {},
		"empty": func(t *testing.T, target string) {
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"another": func(t *testing.T, target string) { placetest.Publish(t, dir.Place{Path: target}, one) },
		"same":    func(t *testing.T, target string) { placetest.Publish(t, dir.Place{Path: target}, two) },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			prepare(t, target)
			before := placetest.Tree(t, base)
			d := dir.Place{Path: target, Replace: true}
			bad := &fakeStore{name: "bad", commit: func() error { return syscall.ENOSPC }}
			_, err := All(t.Context(), []Place{{d, Target{}}, {bad, Target{}}}, two)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
			if _, err := All(t.Context(), []Place{{d, Target{}}, {dir.Place{Path: filepath.Join(base, "b")}, Target{}}}, two); err != nil {
				t.Fatal(err)
			}
			placetest.Want(t, target, two)
			placetest.Want(t, filepath.Join(base, "b"), two)
		})
	}
	t.Run("killed between two", func(t *testing.T) {
		base := t.TempDir()
		a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
		placetest.Publish(t, dir.Place{Path: a}, two)
		placetest.Publish(t, dir.Place{Path: b + ".tmp-0123456789abcdef"}, two)
		receipts, err := All(t.Context(), []Place{{dir.Place{Path: a}, Target{}}, {dir.Place{Path: b}, Target{}}}, two)
		if err != nil || len(receipts) != 2 || receipts[0].Status != place.Unchanged || receipts[1].Status != place.Published {
			t.Errorf("%+v, %v", receipts, err)
		}
		placetest.Want(t, b, two)
	})
	t.Run("notes since", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "out")
		bad := &fakeStore{name: "bad", commit: func() error { placetest.Write(t, filepath.Join(target, "notes"), "mine"); return syscall.ENOSPC }}
		receipts, err := All(t.Context(), []Place{{dir.Place{Path: target}, Target{}}, {bad, Target{}}}, two)
		if len(receipts) != 1 || err == nil || !strings.Contains(err.Error(), `still shows the package, reverting failed`) ||
			placetest.Tree(t, target)["notes"] != "mine" {
			t.Errorf("%v %v", receipts, err)
		}
	})
}
