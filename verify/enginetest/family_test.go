//go:build engine

package enginetest

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

var update = flag.Bool("update", false, "rewrite what docs/families.md says was measured, and the goldens of templates")

// maxGolden bounds KL(transformers || engine) of 16-bit packages, in nats.
const maxGolden = 1e-9

// measuredFile holds the largest divergence of every family for docs/families.md.
const measuredFile = "../../docs/measured.json"

// measured is KL(transformers || engine) of a 16-bit package: the largest of all situations, by engine.
type measured map[string]map[string]float64

// TestFamilies: 16-bit packages of every family give the logits of transformers on every engine, in every situation in
// which something was found to go wrong once.
func TestFamilies(t *testing.T) {
	t.Parallel()
	all := engines(t)
	var mu sync.Mutex
	found := measured{}
	for _, dir := range checkpointDirs(t) {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			long, err := stagetest.ReadGolden(filepath.Join(dir, "golden.safetensors"), "1")
			if err != nil {
				t.Fatal(err)
			}
			short, err := stagetest.ReadGolden(filepath.Join(dir, "golden.safetensors"), "0")
			if err != nil {
				t.Fatal(err)
			}
			stepwise, err := stagetest.ReadStepwise(filepath.Join(dir, "golden.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			pictures, err := stagetest.ReadPictures(filepath.Join(dir, "pictures.safetensors"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			// A model whose frequencies depend on the length of a call takes no prompt in pieces.
			whole := stepwise != nil
			if !whole {
				stepwise = long.Logits
			}
			for _, target := range targets(dir) {
				pkg := export(t, dir, form{engine: target, bits: 16})
				for _, e := range runs(all, form{engine: target}) {
					worst := 0.0
					one := func(situation string, config map[string]any, script [][]int32, want []float32) {
						t.Helper()
						config["memory"] = "high"
						got := e.run(t, pkg, config, script)
						if config["chunk"] != nil {
							want = want[len(want)-min(len(got), len(want)):]
						}
						kl, diff := divergence(t, want, got, len(long.Logits)/len(long.IDs))
						if worst = max(worst, kl); !(kl <= maxGolden) {
							t.Errorf("target %s, engine %s, %s: KL %.3g from transformers, largest difference %.3g", target, e.version, situation, kl, diff)
							worst = math.Inf(1)
						}
					}
					s := [][]int32{nil, short.IDs, nil, long.IDs}
					one("prefill", map[string]any{}, s, slices.Concat(short.Logits, long.Logits))
					s = append([][]int32{nil}, calls(long.IDs, 32)...)
					one("decode", map[string]any{}, s, stepwise)
					s = append(append([][]int32{}, nil, long.IDs, nil, long.IDs, nil), calls(short.IDs, 1)...)
					one("again, and from one token", map[string]any{}, s, slices.Concat(long.Logits, long.Logits, short.Logits))
					if !whole {
						one("in pieces", map[string]any{"chunk": 40}, [][]int32{nil, long.IDs}, long.Logits)
					}
					if pictures != nil {
						kl := e.pictured(t, pkg, pictures)
						t.Logf("target %s, engine %s: KL %.2g with pictures", target, e.version, kl)
						worst = max(worst, kl)
					}
					t.Logf("target %s, engine %s: KL at most %.2g", target, e.version, worst)
					mu.Lock()
					if found[name] == nil {
						found[name] = map[string]float64{}
					}
					found[name][e.version] = max(found[name][e.version], worst)
					mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(func() { // after the parallel ones
		if !*update || t.Failed() {
			return
		}
		var was measured
		b, err := os.ReadFile(measuredFile)
		if err == nil {
			err = json.Unmarshal(b, &was)
		}
		if err == nil {
			b, err = json.MarshalIndent(was.with(rounded(found), checkpointDirs(t)), "", "  ")
		}
		if err == nil {
			err = os.WriteFile(measuredFile, append(b, '\n'), 0o666)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// with takes the place of what was measured before, and keeps the numbers of the other checkpoints that there are, as -run
// leaves some out.
func (m measured) with(found measured, dirs []string) measured {
	out := measured{}
	for _, d := range dirs {
		name := filepath.Base(d)
		if kl, ok := found[name]; ok {
			out[name] = kl
		} else if kl, ok := m[name]; ok {
			out[name] = kl
		}
	}
	return out
}

// TestPartialUpdate: measuring some checkpoints keeps the numbers of the others, and forgets those that are gone.
func TestPartialUpdate(t *testing.T) {
	was := measured{"llama": {"3.6.1": 1}, "phi": {"3.6.1": 2}, "gone": {"3.6.1": 3}}
	got := was.with(measured{"phi": {"3.6.1": 4}, "opt": {"3.6.1": 5}}, []string{"a/llama", "a/phi", "a/opt", "a/new"})
	want := measured{"llama": {"3.6.1": 1}, "phi": {"3.6.1": 4}, "opt": {"3.6.1": 5}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// rounded keeps two digits.
func rounded(m measured) measured {
	for _, engines := range m {
		for e, v := range engines {
			unit := math.Pow(10, math.Floor(math.Log10(v))-1)
			engines[e] = math.Round(v/unit) * unit
		}
	}
	return m
}

// TestQuantizedFamilies: of 4- and 8-bit packages, engine and our runtime give the same logits in both modes.
func TestQuantizedFamilies(t *testing.T) {
	t.Parallel()
	all := engines(t)
	for _, dir := range checkpointDirs(t) {
		g, err := stagetest.ReadGolden(filepath.Join(dir, "golden.safetensors"), "1")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []form{{engine: targets(dir)[0], bits: 8, table: 8, block: "auto"}, {engine: "3.6", bits: 4, table: 8, block: "auto"}} {
			t.Run(filepath.Base(dir)+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				p, err := runtime.Open(export(t, dir, f))
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				w := [][]int32{g.IDs}
				compare(t, all, f, p, w, 8, "float", runtime.Options{Mode: backend.Float}, map[string]any{"memory": "high"}, maxFloat)
				compare(t, all, f, p, w, 8, "int8", runtime.Options{Mode: backend.Int8}, map[string]any{"memory": "low"}, maxInt8)
			})
		}
	}
}

// checkpointDirs are the small checkpoints with logits of transformers: those of the repository, and those that
// LLMEXPORT_CHECKPOINTS names in addition, separated like PATH.
func checkpointDirs(t *testing.T) []string {
	t.Helper()
	patterns := []string{filepath.Join("..", "..", "pipeline", "arch", "testdata")}
	patterns = append(patterns, filepath.SplitList(os.Getenv("LLMEXPORT_CHECKPOINTS"))...)
	var list []string
	for _, p := range patterns {
		dirs, err := filepath.Glob(filepath.Join(p, "*", "golden.safetensors"))
		if err != nil || len(dirs) == 0 {
			t.Fatalf("%s holds no checkpoints: %v", p, err)
		}
		for _, d := range dirs {
			list = append(list, filepath.Dir(d))
		}
	}
	return list
}
