package bench

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestCostOf: the checkpoint has 3 layers, hidden 64, 4 heads of 16 that share 2, an MLP of 160, 320 tokens.
func TestCostOf(t *testing.T) {
	dir := filepath.Join("..", "..", "pipeline", "arch", "testdata", "llama")
	src, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	described, err := arch.Describe(config, src.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Lower(described, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := CostOf(m.Parts[0].Graph)
	const head, layer = 320 * 64, 64*64 + 2*32*64 + 64*64 + 3*160*64
	want := Cost{Bits: got.Bits, Weights: 3*layer + head, HeadWeights: head, WeightBytes: got.WeightBytes, CacheWidth: 3 * 2 * 2 * 16, QueryWidth: 3 * 64}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCostFormulas(t *testing.T) {
	c := Cost{Weights: 100, HeadWeights: 40, WeightBytes: 50, CacheWidth: 8, QueryWidth: 16}
	// Two tokens: 60 weights twice, the head once; three pairs of a query and a key, for scores and for values.
	if got, want := c.prefillOperations(2), 2*(60*2+40+2*16*3.0); got != want {
		t.Errorf("prefill of 2: %v operations, want %v", got, want)
	}
	// Two tokens behind five: caches of 6 and 7 positions.
	if got, want := c.decodeBytes(5, 2), 2*50+(6+7)*8*4.0; got != want {
		t.Errorf("decode of 2 behind 5: %v bytes, want %v", got, want)
	}
}

func TestSpreadOf(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    Spread
	}{
		{[]float64{3}, Spread{3, 3, 3, 0, []float64{3}}},
		{[]float64{5, 1}, Spread{3, 1, 5, math.Sqrt(8), []float64{5, 1}}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9, math.Sqrt(19), []float64{9, 1, 2}}},
	} {
		if diff := cmp.Diff(c.want, SpreadOf(c.samples)); diff != "" {
			t.Errorf("%v: %s", c.samples, diff)
		}
	}
}

func TestPeaks(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	list := []int{1, 2}
	start := time.Now()
	for i, p := range machinePeaks(list) {
		if len(p.Compute) != len(kernel.PeakLoops()) || (p.Read > 0) != kernel.PeakRead(nil) {
			t.Errorf("%d threads: %+v", list[i], p)
		}
		for _, c := range p.Compute {
			if c.Giga < 1 || c.Giga > 1e5 || p.compute(c.Kind) != c.Giga {
				t.Errorf("%d threads: %+v", list[i], c)
			}
		}
		t.Logf("%d threads: %+v", list[i], p)
	}
	t.Logf("%v", time.Since(start))
}

func TestFastestRunsAllThreads(t *testing.T) {
	const threads = 3
	ran := make([]int, threads)
	fastest(threads, 0, func(thread int) { ran[thread]++ })
	if slices.Min(ran) < 2 || slices.Min(ran) != slices.Max(ran) {
		t.Errorf("rounds by thread: %v", ran)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Prompt: 8, Decode: 2, Depth: 8, Threads: []int{1}, Repetitions: 1}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"nothing to do":  func(o *Options) { o.Prompt, o.Decode = 0, 0 },
		"no repetitions": func(o *Options) { o.Repetitions = 0 },
		"no threads":     func(o *Options) { o.Threads = nil },
		"zero threads":   func(o *Options) { o.Threads = []int{1, 0} },
		"negative depth": func(o *Options) { o.Depth = -1 },
		"huge prompt":    func(o *Options) { o.Prompt = maxTokens + 1 },
	} {
		o := good
		change(&o)
		_, err := Run(t.Context(), "", nil, o)
		if bad := (*OptionError)(nil); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRandomTokens(t *testing.T) {
	a := randomTokens(1000, 7)
	if slices.Min(a) != 0 || slices.Max(a) != 6 || !slices.Equal(a, randomTokens(1000, 7)) {
		t.Error("tokens are outside the vocabulary or change")
	}
}

func TestCPUModel(t *testing.T) {
	if CPUModel() == "" {
		t.Error("no name")
	}
}
