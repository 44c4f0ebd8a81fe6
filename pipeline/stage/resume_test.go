package stage_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/place"
)

// A second run finds everything and changes nothing, in the cache and in the place.
func TestRerun(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}")
	first := w.must(t)
	state := func() map[string]int64 {
		s := tree(t, w.dir)
		for name := range s {
			// The time of last use orders what gc removes; the record of the checkpoint is rewritten.
			base := filepath.Base(name)
			if base == "done.json" || strings.HasPrefix(base, "checkpoint-") || base == "digests.json" {
				delete(s, name)
			}
		}
		return s
	}
	before := state()
	second := w.must(t)
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
	a, b := first[0].Made, second[0].Made
	for i, x := range [][2]pipeline.Artifact{{a.Checkpoint, b.Checkpoint}, {a.Inputs, b.Inputs}, {a.Weights, b.Weights}, {a.Verdict, b.Verdict}} {
		if x[1].From = x[0].From; !x[0].Made() || x[0] != x[1] {
			t.Errorf("artifact %d: %+v, then %+v", i, x[0], x[1])
		}
	}
	if a, b := a.Published, b.Published; len(a) != 1 || a[0].Status != place.Published || len(b) != 1 || b[0].Status != place.Unchanged {
		t.Errorf("published as %+v, then %+v", a, b)
	}
}

// killed starts a run of its own process and kills it when when says so; it reports whether it still ran.
func killed(t testing.TB, w work, threads string, when func(start time.Time) bool) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), childRecipe+"="+strings.Join([]string{w.recipe(), w.cache(), filepath.ToSlash(w.out()), threads}, "\n"))
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("the run failed by itself: %v\n%s", err, stderr.String())
			}
			return false
		default:
		}
		if when(start) {
			_ = cmd.Process.Kill()
			<-done
			return true
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// journalLines counts what a run has recorded so far.
func journalLines(w work) int {
	names, _ := filepath.Glob(filepath.Join(w.cache(), "weights-*", "journal"))
	if len(names) == 0 {
		return 0
	}
	b, _ := os.ReadFile(names[0])
	return bytes.Count(b, []byte("\n"))
}

func exists(pattern ...string) func(time.Time) bool {
	return func(time.Time) bool {
		names, _ := filepath.Glob(filepath.Join(pattern...))
		return len(names) > 0
	}
}

// wholeOrAbsent demands that what a killed run left at its target is a package or nothing.
func wholeOrAbsent(t testing.TB, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	listing(t, dir)
}

// A run that is killed, at whatever moment, leaves no half package, and the next run gives the same bytes.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const sections = "verify: {enabled: false}"
	w := newWork(t, tiny, sections)
	begin := time.Now()
	w.must(t)
	whole := time.Since(begin)
	want := listing(t, w.out())

	clean := func() {
		t.Helper()
		for _, d := range []string{w.cache(), filepath.Dir(w.out())} {
			if err := os.RemoveAll(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish := func(t *testing.T) {
		t.Helper()
		wholeOrAbsent(t, w.out())
		before := journalLines(w)
		w.must(t)
		if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
			t.Errorf("after a kill with %d tensors written (-want +got):\n%s", before, diff)
		}
		if left, _ := filepath.Glob(filepath.Join(w.dir, "dist", "*")); len(left) != 1 {
			t.Errorf("next to the package: %v", left)
		}
		if left, _ := filepath.Glob(filepath.Join(w.cache(), "*.partial")); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
	for _, c := range []struct {
		name string
		when func(time.Time) bool
	}{
		{"tokenizer begun", exists(w.cache(), "rewrite-*")},
		{"weight file made", exists(w.cache(), "weights-*", "llm.mnn.weight")},
		{"1 tensor", func(time.Time) bool { return journalLines(w) >= 1 }},
		{"9 tensors", func(time.Time) bool { return journalLines(w) >= 9 }},
		{"40 tensors", func(time.Time) bool { return journalLines(w) >= 40 }},
		{"weights done", exists(w.cache(), "weights-*", "record.json")},
		{"package begun", exists(w.cache(), "package-*", "files", "*")},
		{"package sealed", exists(w.cache(), "package-*", "files", "manifest.json")},
		{"publishing", exists(w.dir, "dist", "*.tmp-*", "*")},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean()
			// A run may be over before it is seen; then there is nothing to resume.
			alive := killed(t, w, "1", c.when)
			t.Logf("killed: %v, %d tensors in the journal", alive, journalLines(w))
			finish(t)
		})
	}
	t.Run("at random, again and again", func(t *testing.T) {
		clean()
		rng := rand.New(rand.NewPCG(uint64(whole), 1))
		kills := 0
		for range 8 {
			limit := time.Duration(rng.Int64N(int64(whole)))
			if killed(t, w, "2", func(start time.Time) bool { return time.Since(start) > limit }) {
				kills++
				wholeOrAbsent(t, w.out())
			} else {
				clean() // it was done before; the next one starts from the beginning
			}
		}
		t.Logf("killed %d times", kills)
		finish(t)
	})
}

// A run that is cancelled returns the cause, and the next one goes on.
func TestCancelled(t *testing.T) {
	t.Parallel()
	w := newWork(t, tiny, "verify: {enabled: false}")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for journalLines(w) < 5 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel(cause)
	}()
	_, err := stagetest.Run(ctx, w.recipe(), w.cache(), 2)
	cancel(nil)
	<-stopped
	if err != nil && !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	w.must(t)
	listing(t, w.out())
}

// partial makes a cache as a killed run leaves it: weights under construction, and nothing behind them.
func partial(t *testing.T, w work) (weights string) {
	t.Helper()
	for _, pattern := range []string{"package-*", filepath.Join("weights-*", "done.json"), filepath.Join("weights-*", "llm.mnn"),
		filepath.Join("weights-*", "llm_config.json"), filepath.Join("weights-*", "record.json")} {
		names, err := filepath.Glob(filepath.Join(w.cache(), pattern))
		if err != nil || len(names) != 1 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		if err := os.RemoveAll(names[0]); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(w.cache(), "weights-*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	if err := os.Rename(names[0], names[0]+".partial"); err != nil {
		t.Fatal(err)
	}
	return names[0] + ".partial"
}

func change(t testing.TB, path string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a killed run left is believed only where journal and bytes agree.
func TestDamagedPartial(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, families+"llama-bias", "quantize: {block: 32}\nverify: {enabled: false}")
	w.must(t)
	want := listing(t, w.out())
	weight := func(f func(b []byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { change(t, filepath.Join(dir, "llm.mnn.weight"), f) }
	}
	journal := func(f func(b []byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { change(t, filepath.Join(dir, "journal"), f) }
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
	}{
		{"complete", func(*testing.T, string) {}},
		{"weights empty", weight(func([]byte) []byte { return nil })},
		{"weights cut", weight(func(b []byte) []byte { return b[:len(b)/3] })},
		{"weights longer", weight(func(b []byte) []byte { return append(b, make([]byte, 1<<16)...) })},
		{"first byte", weight(func(b []byte) []byte { b[0] ^= 1; return b })},
		{"last byte", weight(func(b []byte) []byte { b[len(b)-1] ^= 1; return b })},
		{"zeros as after a power failure", weight(func(b []byte) []byte { clear(b[len(b)/2:]); return b })},
		{"weights absent", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "llm.mnn.weight")) }},
		{"journal empty", journal(func([]byte) []byte { return nil })},
		{"journal absent", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "journal")) }},
		{"journal cut within a line", journal(func(b []byte) []byte { return b[:len(b)/2+3] })},
		{"journal garbage", journal(func([]byte) []byte { return bytes.Repeat([]byte("\x00\xff{\n"), 1000) })},
		{"journal with zeros behind", journal(func(b []byte) []byte { return append(b[:len(b)/2], make([]byte, 4096)...) })},
		{"journal without its first line", journal(func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] })},
		{"journal twice", journal(func(b []byte) []byte { return append(b, b...) })},
		{"journal of negative items", journal(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"item":`), []byte(`"item":-`)) })},
		{"journal with other sums", journal(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("a"), []byte("b")) })},
		{"files of a finished run", func(t *testing.T, dir string) {
			for _, n := range []string{"llm.mnn", "record.json", "done.json", "llm_config.json", "stray"} {
				if err := os.WriteFile(filepath.Join(dir, n), []byte("garbage"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.damage(t, partial(t, w))
			if err := os.RemoveAll(w.out()); err != nil {
				t.Fatal(err)
			}
			w.must(t)
			if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
				t.Errorf("package (-want +got):\n%s", diff)
			}
		})
	}
}

// Garbage in the store is replaced.
func TestGarbageInCache(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, families+"llama", "quantize: {block: 32}\nverify: {enabled: false}")
	w.must(t)
	want := listing(t, w.out())
	for _, name := range []string{"rewrite-*", "weights-*", "package-*"} {
		for _, garbage := range []string{"", "{", `{"digest":"sha256:12"}`, `{"digest":7}`} {
			entry, err := filepath.Glob(filepath.Join(w.cache(), name, "done.json"))
			if err != nil || len(entry) != 1 {
				t.Fatalf("%s: %v, %v", name, entry, err)
			}
			if err := os.WriteFile(entry[0], []byte(garbage), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(w.out()); err != nil {
				t.Fatal(err)
			}
			w.must(t)
			if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
				t.Errorf("%s: record %q (-want +got):\n%s", name, garbage, diff)
			}
		}
	}
	change(t, filepath.Join(w.cache(), "digests.json"), func([]byte) []byte { return []byte("garbage") })
	w.must(t)

	// A bit of a finished package that is an entry of the weights, too: both are made again in the same run.
	if err := os.RemoveAll(w.out()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(w.cache(), "package-*", "files", "llm.mnn.weight"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	change(t, files[0], func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	w.must(t)
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("a flipped bit (-want +got):\n%s", diff)
	}
}

// Six variants that are made at the same time in one cache are those that are made one after the other, and what they have in
// common is made once.
func TestSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const sections = `
quantize: {block: 32}
verify: {kl: {max: 9}, layers: {max: 9}, perplexity: {window: 16, windows: 1, decode: 2, max_source: 1e9, max_ratio: 1e9}}
variants:
  - {name: hqq, quantize: {method: hqq}}
  - {name: again}
  - {name: eight, quantize: {bits: 8}, verify: {enabled: false}}
  - {name: six, quantize: {bits: 6}, verify: {enabled: false}}
  - {name: symmetric, quantize: {symmetric: true}, verify: {enabled: false}}
`
	names := []string{"small", "hqq", "again", "eight", "six", "symmetric"}
	w, apart := newWork(t, families+"llama", sections), newWork(t, families+"llama", sections)
	apart.must(t)
	var g errgroup.Group
	for _, name := range names {
		g.Go(func() error { _, err := stagetest.RunOne(t.Context(), w.recipe(), w.cache(), 1, name); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if diff := cmp.Diff(listing(t, filepath.Join(apart.dir, "dist", name)), listing(t, filepath.Join(w.dir, "dist", name))); diff != "" {
			t.Errorf("%s (-apart +side by side):\n%s", name, diff)
		}
	}
	for pattern, want := range map[string]int{"rewrite-*": 1, "weights-*": 5, "parity-*": 1, "package-*": 6, "*.partial": 0, "*.lock": 0} {
		if found, err := filepath.Glob(filepath.Join(w.cache(), pattern)); err != nil || len(found) != want {
			t.Errorf("%s: %q, want %d, %v", pattern, found, want, err)
		}
	}
}
