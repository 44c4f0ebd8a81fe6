//go:build engine

package enginetest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// quick is a calibration that takes a moment.
const quick = "calibrate: {tokens: 2048, window: 128, probe: 512}\n"

// mixture is a budget that leaves every property of a spec in use; what the allocation may not take at this size is
// fixed. The table is row-wise.
const mixture = `budget: {bytes: 4.2MB}, overrides: [
  {match: "layers\\.0\\.mlp\\.down", bits: 2, block: 32, symmetric: true},
  {match: "layers\\.0\\.self_attn\\.v", bits: 8, block: 64, symmetric: true},
  {match: "layers\\.1\\.self_attn\\.v", bits: 6, block: 32},
  {match: "layers\\.2\\.self_attn\\.v", bits: 5, block: 128, symmetric: true},
  {match: "layers\\.3\\.mlp\\.down", bits: 3, block: 64},
  {match: "layers\\.3\\.self_attn\\.q", bits: 4, block: 128},
  {match: embed_tokens, bits: 8, block: row}]`

// TestCalibrated: packages whose codes were chosen while the model was watched compute on every engine what our runtime
// computes of them, at once and token by token, on 1 and 4 threads, and as shipped, loaded from the engine's cache too.
func TestCalibrated(t *testing.T) {
	t.Parallel()
	all := engines(t)
	tiny, untied := checkpoints(t, false)[0], filepath.Join("..", "..", "pipeline", "arch", "testdata", "qwen3-untied")
	cache := t.TempDir()
	for _, c := range []struct {
		name       string
		checkpoint string
		quantize   string
		targets    []string
		check      func(*testing.T, []manifest.Tensor)
	}{
		{"gptq-w4", tiny, "method: gptq, bits: 4", []string{"3.5", "3.6"}, nil},
		{"gptq-w3", tiny, "method: gptq, bits: 3", []string{"3.5"}, nil},
		{"gptq-w2", tiny, "method: gptq, bits: 2, symmetric: true", []string{"3.5"}, nil},
		{"mixed", tiny, "method: {gptq: {sweeps: 0, candidates: 4}}, " + mixture, []string{"3.5"}, isMixed},
		{"awq-search", tiny, "method: [awq, search], bits: 4", []string{"3.6"}, nil},
		{"gptq-distill", tiny, "method: [gptq, {distill: {steps: 4, tokens: 256}}], bits: 3", []string{"3.5"}, nil},
		{"rotation-gptq", untied, "method: [rotation, gptq], bits: 4, block: 32", []string{"3.6"}, nil},
	} {
		for _, target := range c.targets {
			t.Run(c.name+"/"+target, func(t *testing.T) {
				t.Parallel()
				dir := exportAs(t, cache, c.checkpoint, fmt.Sprintf("target: {engine: %q}\n%squantize: {%s}\nverify: {enabled: false}", target, quick, c.quantize))
				if c.check != nil {
					m, err := manifest.Open(dir)
					if err != nil {
						t.Fatal(err)
					}
					c.check(t, m.Tensors)
				}
				agree(t, runs(all, form{engine: target}), dir)
			})
		}
	}
}

// exportAs makes a package with sections of a recipe and returns its directory; cache may be that of others.
func exportAs(t *testing.T, cache, checkpoint, sections string) string {
	t.Helper()
	dir := t.TempDir()
	recipe, err := stagetest.WriteRecipe(dir, checkpoint, sections)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stagetest.Run(t.Context(), recipe, cache, 2); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "dist", "small")
}

// isMixed demands all widths, both symmetries, all blocks, and a table in rows.
func isMixed(t *testing.T, tensors []manifest.Tensor) {
	bits, blocks, symmetric, table := map[int]bool{}, map[int]bool{}, map[bool]bool{}, false
	for _, x := range tensors {
		if x.Spec == "f32" {
			continue
		}
		s, err := quant.ParseSpec(x.Spec)
		if err != nil {
			t.Fatal(err)
		}
		bits[s.Bits], blocks[s.Block], symmetric[s.Symmetric] = true, true, true
		table = table || (x.Name == "model.embed_tokens.weight" && s.Block == quant.WholeRow)
	}
	if len(bits) != 6 || len(blocks) != 4 || len(symmetric) != 2 || !table {
		t.Errorf("bits %v, blocks %v, symmetric %v, table in rows %v", bits, blocks, symmetric, table)
	}
}

// agree compares the package in dir on engines with our runtime: closely in float, bit by bit in int8.
func agree(t *testing.T, list []*engine, dir string) {
	t.Helper()
	const tokens, decode = 96, 16
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := [][]int32{window(t, p, tokens)}
	type mode struct {
		mode   backend.Mode
		option int
		repack bool
	}
	computed := map[mode][]float32{}
	want := func(m mode) []float32 {
		if computed[m] == nil {
			computed[m] = ours(t, p, runtime.Options{Mode: m.mode, DynamicOption: m.option, RepackLowBits: m.repack}, w, decode)
		}
		return computed[m]
	}
	for _, e := range list {
		repack := e.version < "3.6"
		for _, threads := range []int{1, 4} {
			config := map[string]any{"memory": "high", "thread_num": threads}
			kl, _ := divergence(t, e.logits(t, dir, config, w, decode), want(mode{mode: backend.Float}), p.Vocabulary())
			if t.Logf("engine %s, float, %d threads: KL %.6g", e.version, threads, kl); !(kl <= maxFloat) {
				t.Errorf("engine %s, float, %d threads: KL %.3g is more than %g", e.version, threads, kl, maxFloat)
			}
			for _, option := range []int{0, 2} {
				config = map[string]any{"memory": "low", "thread_num": threads, "dynamic_option": option}
				sameBits(t, fmt.Sprintf("engine %s, dynamic_option %d, %d threads", e.version, option, threads),
					e.logits(t, dir, config, w, decode), want(mode{backend.Int8, option, repack}))
			}
		}
		// Where the package allows it, the first load leaves the engine's cache of repacked weights and the second reads it.
		config := shipped(p)
		config["use_mmap"], config["tmp_path"] = true, t.TempDir()
		for load := 1; load <= 2; load++ {
			sameBits(t, fmt.Sprintf("engine %s, as shipped and mapped, load %d", e.version, load),
				e.logits(t, dir, config, w, decode), want(mode{backend.Int8, p.Config.DynamicOption, repack}))
		}
		made, err := filepath.Glob(filepath.Join(config["tmp_path"].(string), "*.static"))
		if err != nil {
			t.Fatal(err)
		}
		if left := len(made) > 0; left != cached(t, dir) {
			t.Errorf("engine %s: a cache was left: %v, the package allows it: %v", e.version, left, !left)
		}
	}
}

// cached says whether the package lets the engine load weights from its own cache: not those of fewer than 4 bits, which
// engines misread there, and of 16, on which they crash.
func cached(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Cached *bool `json:"use_cached_mmap"`
	}
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	return config.Cached == nil || *config.Cached
}

// shipped is what config.json says where engine.py would say something else.
func shipped(p *runtime.Package) map[string]any {
	return map[string]any{"memory": p.Config.Memory, "precision": p.Config.Precision, "thread_num": p.Config.ThreadNum}
}

// sameBits demands equal logits, zeros of either sign included.
func sameBits(t *testing.T, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) || len(want) == 0 {
		t.Errorf("%s: %d logits, ours has %d", what, len(want), len(got))
		return
	}
	if slices.EqualFunc(want, got, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		return
	}
	differ, most := 0, 0.0
	for i, v := range want {
		if v != got[i] {
			differ, most = differ+1, max(most, math.Abs(float64(v)-float64(got[i])))
		}
	}
	t.Errorf("%s: %d of %d logits differ, by up to %.3g", what, differ, len(want), most)
}
