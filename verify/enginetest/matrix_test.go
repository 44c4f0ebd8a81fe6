//go:build engine

package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/verify"
)

// Bounds of KL(engine || our runtime), in nats. In float mode two programs differ by the order of float32 sums; the
// int8 mode reproduces the engine's arithmetic, of which what is not reproduced shows as flipped codes.
const (
	maxFloat = 1e-8
	maxInt8  = 1e-5
)

// form is a storage form of the matrix.
type form struct {
	engine      string
	bits, table int
	block       string
	symmetric   bool
}

func (f form) String() string {
	sym := "asym"
	if f.symmetric {
		sym = "sym"
	}
	return fmt.Sprintf("%s-w%d-t%d-b%s-%s", f.engine, f.bits, f.table, f.block, sym)
}

// forms lists what is tried: everything, or a selection that has every value of every property.
func forms(full bool) []form {
	var list []form
	for _, e := range []string{"3.5", "3.6"} {
		list = append(list, form{engine: e, bits: 16, table: 16, block: "64"})
		for _, bt := range [][2]int{{8, 8}, {6, 8}, {5, 8}, {4, 8}, {4, 4}, {3, 8}, {2, 8}} {
			for _, block := range []string{"32", "64", "128"} {
				for _, sym := range []bool{false, true} {
					list = append(list, form{e, bt[0], bt[1], block, sym})
				}
			}
		}
	}
	if full {
		return list
	}
	return slices.DeleteFunc(list, func(f form) bool {
		return f.bits != 16 && !(f.block == "64" && !f.symmetric && f.engine == "3.6") && !(f.bits == 4 && f.engine == "3.5" && f.symmetric)
	})
}

func checkpoints(t *testing.T, full bool) []string {
	list := []string{filepath.Join("..", "..", "testdata", "tiny-qwen3")}
	small := filepath.Join("..", "..", "..", "shared", "models", "small-qwen3")
	if _, err := os.Stat(small); err == nil && full {
		list = append(list, small)
	} else if full {
		t.Log("small-qwen3 is not there: only tiny-qwen3 is tried")
	}
	return list
}

// export makes a package without verification.
func export(t *testing.T, checkpoint string, f form) string {
	t.Helper()
	quantize := fmt.Sprintf("{bits: %d, block: %s, symmetric: %v, overrides: [{match: embed|wte, bits: %d}]}", f.bits, f.block, f.symmetric, f.table)
	if f.bits == 16 {
		quantize = "{bits: 16}"
	}
	dir, err := stagetest.Export(t.Context(), t.TempDir(), checkpoint,
		fmt.Sprintf("target: {engine: %q}\nquantize: %s\nverify: {enabled: false}", f.engine, quantize))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ours computes the same logits on our runtime.
func ours(t *testing.T, p *runtime.Package, o runtime.Options, windows [][]int32, decode int) []float32 {
	t.Helper()
	o.CacheBytes = 1 << 30
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for _, w := range windows {
		s.Reset()
		l, err := s.Forward(t.Context(), w[:len(w)-decode])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l...)
		for _, id := range w[len(w)-decode:] {
			if l, err = s.Decode(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			all = append(all, l...)
		}
	}
	return all
}

func window(t *testing.T, p *runtime.Package, n int) []int32 {
	ids := p.Tokenizer.Encode(verify.BuiltIn)
	if len(ids) < n {
		t.Fatalf("%d tokens", len(ids))
	}
	return ids[:n]
}

// TestMatrix: the engine and our runtime agree on every storage form, engine version, mode and call pattern.
func TestMatrix(t *testing.T) {
	t.Parallel()
	full := os.Getenv("LLMEXPORT_MATRIX") == "full"
	all := engines(t)
	for _, c := range checkpoints(t, full) {
		for _, f := range forms(full) {
			t.Run(filepath.Base(c)+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				dir := export(t, c, f)
				p, err := runtime.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				w := [][]int32{window(t, p, 512)}
				for _, decode := range []int{0, 256} {
					compare(t, all, f, p, w, decode, "float", runtime.Options{Mode: backend.Float}, map[string]any{"memory": "high"}, maxFloat)
					for _, option := range []int{0, 2} {
						compare(t, all, f, p, w, decode, fmt.Sprint("int8-", option), runtime.Options{Mode: backend.Int8, DynamicOption: option},
							map[string]any{"memory": "low", "dynamic_option": option}, maxInt8)
					}
				}
			})
		}
	}
}

func compare(t *testing.T, all []*engine, f form, p *runtime.Package, w [][]int32, decode int, name string, o runtime.Options,
	config map[string]any, limit float64) {
	t.Helper()
	logits := map[bool][]float32{} // by RepackLowBits
	for _, e := range runs(all, f) {
		o.RepackLowBits = e.version < "3.6"
		if logits[o.RepackLowBits] == nil {
			logits[o.RepackLowBits] = ours(t, p, o, w, decode)
		}
		got := logits[o.RepackLowBits]
		kl, diff := divergence(t, e.logits(t, p.Dir, config, w, decode), got, p.Vocabulary())
		t.Logf("%s engine %s decode %d: KL %.3g, largest difference %.3g", name, e.version, decode, kl, diff)
		if !(kl <= limit) {
			t.Errorf("%s engine %s decode %d: KL %.3g is more than %g", name, e.version, decode, kl, limit)
		}
	}
}

// runs lists the engines that a form is made for.
func runs(all []*engine, f form) []*engine {
	var list []*engine
	for _, e := range all {
		if strings.Compare(e.version[:3], f.engine) >= 0 {
			list = append(list, e)
		}
	}
	return list
}

// TestThreads: wherever the manifest calls a thread count safe, the engine is right at it, for prompts below, at and
// above the length from which it may not be. LLMEXPORT_MATRIX=full tries all counts at all lengths.
func TestThreads(t *testing.T) {
	t.Parallel()
	dir := export(t, checkpoints(t, false)[0], form{engine: "3.6", bits: 4, table: 8, block: "64"})
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const pack = 8 // of the wheels, which run AVX2 code
	i := slices.IndexFunc(m.Threads, func(x manifest.Threads) bool { return x.Pack == pack })
	if i < 0 {
		t.Fatal("the manifest does not list pack width 8")
	}
	safe := m.Threads[i].Safe
	full := os.Getenv("LLMEXPORT_MATRIX") == "full"
	for _, n := range []int{255, 256, 512} {
		w := [][]int32{window(t, p, n)}
		for _, e := range engines(t) {
			if e.version < "3.6" {
				continue
			}
			want := e.logits(t, dir, map[string]any{"memory": "low", "thread_num": 1}, w, 0)
			var wrong []int
			for threads := 2; threads <= 16; threads++ {
				if !full && n != 256 && (threads < 8 || !slices.Contains(safe, threads)) {
					continue // threads that are more than the cores spin, waiting for one another
				}
				kl, _ := divergence(t, want, e.logits(t, dir, map[string]any{"memory": "low", "thread_num": threads}, w, 0), p.Vocabulary())
				if !(kl <= maxInt8) {
					wrong = append(wrong, threads)
				}
				if slices.Contains(safe, threads) && !(kl <= maxInt8) {
					t.Errorf("engine %s, %d tokens, %d threads: KL %.3g from 1 thread, but the manifest calls it safe", e.version, n, threads, kl)
				}
			}
			t.Logf("engine %s, %d tokens: wrong at threads %v; manifest says unsafe %v", e.version, n, wrong, m.Threads[i].Unsafe)
			// dynamic_option 2 and chunk 255 take the engine off that path. With chunk it returns the last piece only, and a
			// piece of one token would be decoded.
			option := func(threads int, key string, v int) []float32 {
				return e.logits(t, dir, map[string]any{"memory": "low", "thread_num": threads, key: v}, w, 0)
			}
			if kl, _ := divergence(t, option(1, "dynamic_option", 2), option(9, "dynamic_option", 2), p.Vocabulary()); !(kl <= maxInt8) {
				t.Errorf("engine %s, %d tokens, dynamic_option 2: KL %.3g between 1 and 9 threads", e.version, n, kl)
			}
			if got := option(9, "chunk", 255); n%255 > 1 {
				if kl, _ := divergence(t, want[len(want)-len(got):], got, p.Vocabulary()); !(kl <= maxInt8) {
					t.Errorf("engine %s, %d tokens, 9 threads with chunk 255: KL %.3g", e.version, n, kl)
				}
			}
		}
	}
}

// TestTokenizer: the engine's tokenizer gives the ids of tokenizer.json.
func TestTokenizer(t *testing.T) {
	t.Parallel()
	dir := export(t, checkpoints(t, false)[0], form{engine: "3.6", bits: 4, table: 8, block: "64"})
	src, err := source.Open(t.Context(), source.Origin{Dir: checkpoints(t, false)[0]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	texts := slices.DeleteFunc(strings.SplitAfter(verify.BuiltIn, "\n"), func(s string) bool { return s == "" })
	for _, e := range engines(t) {
		a, err := e.do(job{Package: dir, Texts: texts})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			if want := src.Tokenizer.Encode(text, false); !slices.Equal(a.IDs[i], want) {
				t.Errorf("engine %s: %q gives %v, want %v", e.version, text, a.IDs[i], want)
			}
		}
	}
}
