package hub

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSweep removes what killed runs have left, once nobody can be at it.
func TestSweep(t *testing.T) {
	_, _, commit, o := realHub(t, tinyFiles())
	c := newCache(o, testRepo)
	part := filepath.Join(c.dir, "blobs", strings.Repeat("a", 64)+partName)
	incomplete := filepath.Join(c.dir, "blobs", strings.Repeat("b", 64)+".incomplete")
	note := filepath.Join(c.own(), commit+".json.01234567.tmp")
	paths := []string{note, part, part + ".journal", incomplete}
	for _, x := range []struct {
		age  time.Duration
		gone []string
	}{
		{0, nil},
		{2 * 24 * time.Hour, []string{note}},
		{31 * 24 * time.Hour, []string{note, part, part + ".journal"}}, // the other one is not ours
	} {
		for _, path := range paths {
			then := time.Now().Add(-x.age)
			if err := replaceFile(path, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(c.snapshotDir(commit)); err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve(t.Context(), mainRef, o); err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if _, err := os.Stat(path); os.IsNotExist(err) != slices.Contains(x.gone, path) {
				t.Errorf("after %v: %s: %v", x.age, filepath.Base(path), err)
			}
		}
	}
}
