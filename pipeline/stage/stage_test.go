package stage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
)

var update = flag.Bool("update", false, "rewrite the listings of testdata/e2e")

const (
	tiny     = "../../testdata/tiny-qwen3"
	families = "../arch/testdata/"
	// tinyLayers is the number of layers of tiny.
	tinyLayers = 4
)

// childRecipe, in the environment, makes this binary a run that a test kills: recipe, cache and output.
const childRecipe = "STAGE_TEST_RECIPE"

func TestMain(m *testing.M) {
	if args := os.Getenv(childRecipe); args != "" {
		a := strings.Split(args, "\n")
		threads, err := strconv.Atoi(a[3])
		if err == nil {
			_, err = stagetest.Run(context.Background(), a[0], a[1], threads, "publish[0].dir="+a[2])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if args := os.Getenv(childSpan); args != "" {
		a := strings.Split(args, "\n")
		m := worker{dir: a[1], store: a[2], every: time.Millisecond}
		if _, err := m.part(context.Background(), work{a[0]}, stage.Span{Until: a[3]}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if mode := os.Getenv(fakeSigner); mode != "" && len(os.Args) > 1 && (os.Args[1] == "sign" || os.Args[1] == "verify") {
		if err := fakeSign(mode, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a directory with a recipe, a cache and a place to publish to.
type work struct{ dir string }

// newWork writes a recipe for a checkpoint; sections is YAML.
func newWork(t testing.TB, checkpoint, sections string) work {
	t.Helper()
	w := work{t.TempDir()}
	if _, err := stagetest.WriteRecipe(w.dir, checkpoint, sections); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w work) recipe() string { return filepath.Join(w.dir, "recipe.yaml") }
func (w work) cache() string  { return filepath.Join(w.dir, "cache") }

// out is where a recipe without places publishes.
func (w work) out() string { return filepath.Join(w.dir, "dist", "small") }

// unpublish removes the package, so that another one can take its place.
func (w work) unpublish(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(w.out()); err != nil {
		t.Fatal(err)
	}
}

func (w work) run(t testing.TB, overrides ...string) ([]*stage.Run, error) {
	t.Helper()
	return stagetest.Run(t.Context(), w.recipe(), w.cache(), 2, overrides...)
}

func (w work) must(t testing.TB, overrides ...string) []*stage.Run {
	t.Helper()
	jobs, err := w.run(t, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// listing has a line for each file of a package: digest, size, name; and demands that the manifest agrees.
func listing(t testing.TB, dir string) string {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.VerifyFiles(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		f, err := manifest.HashFile(t.Context(), filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %9d %s\n", f.SHA256, f.Size, f.Name)
	}
	return b.String()
}

// TestPackages exports what testdata/e2e asks for and compares every byte of the packages by digest. One of them is
// verified: its measurements, too, are the same on every machine.
func TestPackages(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob(filepath.Join("testdata", "e2e", "*", "recipe.yaml"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, recipe := range cases {
		dir := filepath.Dir(recipe)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			out := filepath.Join(tmp, "out")
			if _, err := stagetest.Run(t.Context(), recipe, filepath.Join(tmp, "cache"), 2, "publish[0].dir="+filepath.ToSlash(out)); err != nil {
				t.Fatal(err)
			}
			got := listing(t, out)
			path := filepath.Join(dir, "package.txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(strings.ReplaceAll(string(want), "\r\n", "\n"), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("package (-want +got):\n%s", diff)
			}
		})
	}
}

// Neither the number of threads nor the memory limit nor the place changes a byte, measurements included.
func TestSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const sections = "verify: {perplexity: {window: 16, windows: 2, decode: 4}}"
	w := newWork(t, tiny, sections)
	var want string
	for _, threads := range []int{1, 2, 7} {
		tmp := t.TempDir()
		out := filepath.Join(tmp, "out")
		if _, err := stagetest.Run(t.Context(), w.recipe(), filepath.Join(tmp, "cache"), threads,
			"publish[0].dir="+filepath.ToSlash(out), "limits.memory="+strconv.Itoa(threads)+"GiB"); err != nil {
			t.Fatal(err)
		}
		got := listing(t, out)
		if want == "" {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d threads (-1 thread +%d):\n%s", threads, threads, diff)
		}
	}
}

// The recipe inside a package loads again, gives the same package, and tells neither limits nor places.
func TestStoredRecipe(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32, overrides: [{match: down, bits: 8}]}\n"+
		"verify: {enabled: false}\nlimits: {memory: 1234MiB, threads: 3}\npublish: [{dir: secret-place}]")
	w.must(t)
	first := filepath.Join(w.dir, "secret-place")
	b, err := os.ReadFile(filepath.Join(first, "recipe.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"secret-place", "1234", `"threads":3`, filepath.ToSlash(w.dir), "arch/testdata"} {
		if bytes.Contains(b, []byte(word)) {
			t.Errorf("the stored recipe tells %s: %s", word, b)
		}
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if _, ok := v["publish"]; ok {
		t.Errorf("the stored recipe has a place: %s", b)
	}
	again := filepath.Join(w.dir, "again")
	if err := os.WriteFile(w.recipe(), b, 0o666); err != nil {
		t.Fatal(err)
	}
	// Where the checkpoint lies is no part of it.
	source, err := filepath.Abs(families + "qwen3-tied")
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, "publish[0].dir="+filepath.ToSlash(again), "model.path="+filepath.ToSlash(source))
	if diff := cmp.Diff(listing(t, first), listing(t, again)); diff != "" {
		t.Errorf("packages (-first +again):\n%s", diff)
	}
}

// tree lists what lies below a directory, with times of change where wanted.
func tree(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = info.ModTime().UnixNano()
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}
