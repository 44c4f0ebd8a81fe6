package calibrate

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Whatever is damaged of what an earlier call left, or belongs to another directory, is made again: the files become what
// they would be without it.
func TestQuantizeDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	jobs := smallJobs(t)
	for _, name := range []string{"llama-bias", "llama"} { // with foldings, and rotated
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := jobs[name]
			j.Name = "codes-1"
			whole := t.TempDir()
			f := j.run(t, whole)
			want := content(t, whole)
			files := filesOf(t, whole)
			again := func(what string, files map[string]string) {
				t.Helper()
				dir := t.TempDir()
				for name, text := range files {
					check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
				}
				if g := j.run(t, dir); g.Digest() != f.Digest() {
					t.Errorf("%s: other digest", what)
				}
				same(t, what, want, content(t, dir))
			}
			// Of each kind of file one, so that the test stays short; make rot takes all.
			kinds := map[string]string{}
			for name := range files {
				kind := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(name, ".codes"), ".f32"), "0123456789")
				kinds[kind] = max(kinds[kind], name)
			}
			for _, name := range slices.Sorted(maps.Values(kinds)) {
				damaged := maps.Clone(files)
				b := []byte(files[name])
				b[len(b)/2] ^= 1
				damaged[name] = string(b)
				again(name+": a flipped bit", damaged)
				damaged[name] = ""
				again(name+": emptied", damaged)
			}
			// The same files under another name, as another recipe makes them.
			k := jobs[name]
			k.Name = "codes-2"
			k.Windows = slices.Clone(k.Windows)
			k.Windows[0] = slices.Clone(k.Windows[0])
			slices.Reverse(k.Windows[0])
			dir := t.TempDir()
			k.run(t, dir)
			again("files of another directory", filesOf(t, dir))
		})
	}
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	items, err := os.ReadDir(dir)
	check(t, err)
	files := map[string]string{}
	for _, e := range items {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check(t, err)
		files[e.Name()] = string(b)
	}
	return files
}
