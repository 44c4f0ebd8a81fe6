package stage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
)

// watch is little text, so that a run takes seconds.
const watch = "calibrate: {tokens: 1024, window: 64, probe: 256}\n"

const unverified = "verify: {enabled: false}"

// readOne reads the JSON of the only file of a name in the caches of a work.
func (w work) readOne(t testing.TB, pattern string, v any) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(w.cache(), pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	b, err := os.ReadFile(names[0])
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// allocated is what an allocation says of itself.
type allocated struct {
	Specs map[string]string
	KL    float64
	Bytes int64
}

// atBudget makes a package at a budget, and returns what the allocation says and what the package takes.
func (w work) atBudget(t *testing.T, budget string, overrides ...string) (allocated, *stage.Cost) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(w.cache(), "allocation-*"), w.out()} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.RemoveAll(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.must(t, append(overrides, "quantize.budget="+budget)...)
	var a allocated
	w.readOne(t, "allocation-*/allocation.json", &a)
	m, err := manifest.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, x := range m.Tensors {
		if spec, ok := a.Specs[x.Name]; ok {
			found++
			if x.Spec != spec {
				t.Errorf("%s: stored as %s, allocated %s", x.Name, x.Spec, spec)
			}
		}
	}
	if found != len(a.Specs) {
		t.Errorf("%d of %d allocated matrices in the manifest", found, len(a.Specs))
	}
	p, err := runtime.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := stage.CostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

// A package keeps to its budget and uses it up; sensitivities are measured once for all budgets.
func TestBudgets(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, watch+"quantize: {method: rtn}\n"+unverified)

	// The choices lie close enough together.
	const used = 0.98
	var last allocated
	for _, n := range []int64{2_600_000, 3_000_000, 4_200_000} {
		a, c := w.atBudget(t, fmt.Sprintf("{bytes: %d}", n))
		if c.Bytes > n || a.Bytes > n || a.Bytes < c.Bytes || float64(c.Bytes) < used*float64(n) {
			t.Errorf("%d bytes: a package of %d, %d allocated", n, c.Bytes, a.Bytes)
		}
		if last.Specs != nil && a.KL >= last.KL {
			t.Errorf("%d bytes: %g nats, %g with fewer", n, a.KL, last.KL)
		}
		last = a
	}
	for _, n := range []float64{3, 4.25, 6} {
		if _, c := w.atBudget(t, fmt.Sprintf("{bpw: %g}", n)); c.BitsPerWeight() > n || c.BitsPerWeight() < used*n {
			t.Errorf("%g bits: %g", n, c.BitsPerWeight())
		}
	}
	for _, n := range []int64{11_400_000, 13_000_000} {
		_, c := w.atBudget(t, fmt.Sprintf("{device_ram: %d}", n))
		if got := c.Memory.Total(assemble.DeviceContext); got > n || float64(got) < 0.9*float64(n) { // 3 bits take as much as 8
			t.Errorf("%d bytes of memory: %d", n, got)
		}
	}
	before := int64(1 << 60)
	for _, n := range []float64{0.01, 0.05, 0.3} {
		a, c := w.atBudget(t, fmt.Sprintf("{kl: %g}", n))
		if a.KL > n || a.KL < 0.8*n || c.Bytes >= before {
			t.Errorf("%g nats: %g predicted, %d bytes, more nats %d", n, a.KL, c.Bytes, before)
		}
		before = c.Bytes
	}

	t.Run("not better if uniform", func(t *testing.T) {
		names, err := filepath.Glob(filepath.Join(w.cache(), "sensitivities-*", "sensitivities.json"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		b, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		sens, err := quant.ParseSensitivities(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []string{"w4-b64-asym", "w4-b32-sym", "w8-b128-sym"} {
			// sum is that of the divergences of matrices which are stored as of says.
			sum := func(of func(tensor string) string) (sum float64) {
				for _, item := range sens.Items {
					for _, o := range item.Options {
						if o.Spec.String() == of(item.Members[0]) {
							sum += o.KL
						}
					}
				}
				return sum
			}
			uniform := sum(func(string) string { return spec })
			s, err := quant.ParseSpec(spec)
			if err != nil {
				t.Fatal(err)
			}
			w.must(t, "publish[0].dir="+filepath.ToSlash(filepath.Join(w.dir, spec)), fmt.Sprintf("quantize.bits=%d", s.Bits),
				fmt.Sprintf("quantize.block=%d", s.Block), fmt.Sprintf("quantize.symmetric=%t", s.Symmetric),
				fmt.Sprintf("quantize.overrides=[{match: embed, bits: %d}]", s.Bits))
			p, err := runtime.Open(filepath.Join(w.dir, spec))
			if err != nil {
				t.Fatal(err)
			}
			n, err := p.Bytes()
			p.Close()
			if err != nil {
				t.Fatal(err)
			}
			// The allocation counts what verification may add to config.json.
			a, _ := w.atBudget(t, fmt.Sprintf("{bytes: %d}", n+64))
			got := sum(func(tensor string) string { return a.Specs[tensor] })
			t.Logf("%s: %.4f nats, allocated %.4f", spec, uniform, got)
			if got > uniform+1e-9 {
				t.Errorf("%s: %g nats, allocated %g in %d bytes", spec, uniform, got, n)
			}
		}
	})

	t.Run("too small", func(t *testing.T) {
		for _, c := range []struct {
			key, small string
		}{{"bytes", "1100000"}, {"bytes", "2000000"}, {"bpw", "0.5"}, {"device_ram", "1100000"}, {"kl", "0.000001"}} {
			w.unpublish(t)
			_, err := w.run(t, fmt.Sprintf("quantize.budget={%s: %s}", c.key, c.small))
			var at *recipes.Error
			if !errors.As(err, &at) || !strings.HasPrefix(at.Message, "quantize.budget."+c.key+": cannot be met: the smallest ") {
				t.Fatalf("%s %s: %v", c.key, c.small, err)
			}
			found := regexp.MustCompile(`possible is (more than )?([0-9.e-]+)`).FindStringSubmatch(at.Message)
			if found == nil {
				t.Fatalf("%s %s: %v", c.key, c.small, err)
			}
			if found[1] != "" { // refused before anything is measured
				continue
			}
			least := found[2]
			t.Logf("%s: %s", c.key, least)
			w.atBudget(t, fmt.Sprintf("{%s: %s}", c.key, least))
			if n, err := strconv.ParseInt(least, 10, 64); err == nil {
				w.unpublish(t)
				if _, err := w.run(t, fmt.Sprintf("quantize.budget={%s: %d}", c.key, n-1)); err == nil {
					t.Errorf("%s: %s is not the smallest", c.key, least)
				}
			}
		}
	})

	t.Run("overrides", func(t *testing.T) {
		a, _ := w.atBudget(t, "{bpw: 4.5}", "quantize.overrides=[{match: layers.1.mlp.up_proj, bits: 6, block: 128}, {match: layers.2.self_attn.v_proj, bits: 16}]")
		if len(a.Specs) != 7*tinyLayers+1-2 {
			t.Errorf("%d matrices allocated", len(a.Specs))
		}
		specs := specsOf(t, w.out())
		if specs["w6-b128-asym"] < 1 || specs["f16"] != 1 {
			t.Errorf("%v", specs)
		}
		w.unpublish(t)
		_, err := w.run(t, "quantize.budget={bpw: 6}", "quantize.overrides=[{match: ., bits: 4}]")
		if err == nil || !strings.Contains(err.Error(), "quantize.budget: overrides fix every matrix") {
			t.Errorf("everything fixed: %v", err)
		}
	})

	t.Run("measured once", func(t *testing.T) {
		var log bytes.Buffer
		w.unpublish(t)
		ctx := zerolog.New(&log).WithContext(t.Context())
		if _, err := stagetest.Run(ctx, w.recipe(), w.cache(), 2, "quantize.budget={bpw: 5}"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), `"stage":"allocate","message":"nothing to do: same inputs, options and program as before"`) || !strings.Contains(log.String(), "predicted_kl") {
			t.Errorf("measured again:\n%s", log.String())
		}
		names, err := filepath.Glob(filepath.Join(w.cache(), "sensitivities-*", "sensitivities.json"))
		if err != nil || len(names) != 1 {
			t.Errorf("%v, %v", names, err)
		}
	})
}

// A package at a budget is verified against limits for its mean width, and neither its bytes nor those of a package whose
// codes were chosen while the model was watched depend on the number of threads.
func TestCalibratedSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct{ name, quantize string }{
		{"gptq", "quantize: {method: gptq, bits: 3}\n"},
		{"budget", "quantize: {method: rtn, budget: {bpw: 3.25}}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, tiny, watch+c.quantize+"verify: {perplexity: {window: 64, windows: 2, decode: 4}}")
			want := ""
			for _, threads := range []int{2, 1, 7} {
				tmp := t.TempDir()
				out := filepath.Join(tmp, "out")
				if _, err := stagetest.Run(t.Context(), w.recipe(), filepath.Join(tmp, "cache"), threads, "publish[0].dir="+filepath.ToSlash(out)); err != nil {
					t.Fatal(err)
				}
				got := listing(t, out)
				if want == "" {
					want = got
					m, err := manifest.Open(out)
					if err != nil || !m.Verified || m.Metrics["kl"].Value > 0.5 {
						t.Errorf("verified %v, %v: %v", m.Verified, m.Metrics["kl"], err)
					}
				}
				if got != want {
					t.Errorf("%d threads: other bytes\n%s\n%s", threads, want, got)
				}
			}
		})
	}
}
