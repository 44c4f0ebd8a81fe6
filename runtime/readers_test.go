package runtime_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
)

// TestReaders: every tower and every encoder of sound gives the bits of the interpreter, in every mode and with any number of threads.
func TestReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	t.Parallel()
	const families = "../pipeline/arch/testdata/*/"
	pictures, err := filepath.Glob(families + "pictures.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	sounds, err := filepath.Glob(families + "sounds.safetensors")
	if err != nil || len(pictures) == 0 || len(sounds) == 0 {
		t.Fatal(len(pictures), len(sounds), err)
	}
	of := map[string][2]string{} // the files of a checkpoint
	for i, files := range [][]string{pictures, sounds} {
		for _, file := range files {
			both := of[filepath.Dir(file)]
			both[i] = file
			of[filepath.Dir(file)] = both
		}
	}
	for dir, files := range of {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			// Some matrices are too narrow for blocks.
			pkg, err := stagetest.Export(t.Context(), t.TempDir(), dir, "quantize: {bits: 8, block: row}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			p := openPackage(t, pkg)
			for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
				for _, cache := range []int64{0, 1 << 28} {
					var want [][]float32
					for _, threads := range []int{1, 1, 2, 3} {
						b := backend.Backend(cpu.Backend{})
						if want == nil {
							b = generic.Backend{}
						}
						o := runtime.Options{Mode: mode, DynamicOption: p.Config.DynamicOption, Threads: threads, CacheBytes: cache}
						got := readRows(t, p, b, o, files)
						if want == nil {
							want = got
							continue
						}
						for i := range want {
							if !slices.EqualFunc(got[i], want[i], func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
								t.Errorf("%v, %d bytes, %d threads: the rows of picture or clip %d differ", mode, cache, threads, i)
							}
						}
					}
				}
			}
		})
	}
}

// readRows are the rows of all pictures and clips of the golden files.
func readRows(t *testing.T, p *runtime.Package, b backend.Backend, o runtime.Options, files [2]string) (rows [][]float32) {
	t.Helper()
	keep := func(seen *runtime.Prompt, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range seen.Pictures {
			rows = append(rows, seen.Pictures[i].Rows)
		}
	}
	if files[0] != "" {
		golden, err := stagetest.ReadPictures(files[0])
		if err != nil {
			t.Fatal(err)
		}
		tower, err := runtime.NewTower(p, b, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, pix := range golden.Images {
			h, w := golden.Size(i)
			keep(tower.Look(t.Context(), &picture.Image{Height: h, Width: w, Pix: pix}, picture.Size{Height: h, Width: w}))
		}
	}
	if files[1] != "" {
		golden, err := stagetest.ReadSounds(files[1])
		if err != nil {
			t.Fatal(err)
		}
		ear, err := runtime.NewEar(p, b, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, wave := range golden.Waves {
			keep(ear.Hear(t.Context(), wave))
		}
	}
	if len(rows) == 0 {
		t.Fatal(fmt.Errorf("no rows for %v", files))
	}
	return rows
}
