package runtime_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// scratch holds the packages that several tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "runtime"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// smallPackage makes, once, an 8-bit package of a random checkpoint with a tied table, its rows in blocks.
var smallPackage = sync.OnceValues(func() (string, error) {
	return stagetest.Export(context.Background(), scratch, "../pipeline/arch/testdata/qwen3-tied", "quantize: {bits: 8, block: 32}\nverify: {enabled: false}")
})

func small(t testing.TB) string {
	t.Helper()
	dir, err := smallPackage()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func openPackage(t testing.TB, dir string) *runtime.Package {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func session(t testing.TB, p *runtime.Package, mode backend.Mode) *runtime.Session {
	t.Helper()
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: mode, Threads: 2, CacheBytes: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files of the small package that a runtime needs.
var files = []string{"config.json", "llm_config.json", "llm.mnn", "llm.mnn.weight", "tokenizer.mtok"}

// copyPackage copies what a runtime needs.
func copyPackage(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func rewrite(t testing.TB, dir, name string, change func(b []byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// attempt opens the package and runs three tokens through it. It must not panic, whatever the bytes.
func attempt(dir string) error {
	p, err := runtime.Open(dir)
	if err != nil {
		if p != nil {
			return errors.New("Open returned a package and an error")
		}
		return err
	}
	defer p.Close()
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: mode, Threads: 1})
		if err != nil {
			return err
		}
		if _, err := s.Forward(context.Background(), []int32{1, 2, 3}); err != nil {
			return err
		}
	}
	return nil
}

func TestMissingFiles(t *testing.T) {
	if err := attempt(copyPackage(t, small(t))); err != nil {
		t.Fatalf("a whole copy: %v", err)
	}
	for _, name := range files {
		dir := copyPackage(t, small(t))
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := attempt(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s missing: %v", name, err)
		}
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := attempt(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is a directory: %v", name, err)
		}
	}
}

func TestTruncatedFiles(t *testing.T) {
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			for _, share := range []int{0, 1, 10, 50, 90, 99} {
				dir := copyPackage(t, small(t))
				left := 0
				rewrite(t, dir, name, func(b []byte) []byte { left = len(b) * share / 100; return b[:left] })
				if err := attempt(dir); !errors.Is(err, tensor.ErrCorrupt) {
					t.Errorf("%d bytes: %v", left, err)
				}
			}
		})
	}
}

// Whatever byte of the small files is wrong, nothing panics.
func TestDamagedBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			refused := 0
			const places = 40
			dir := copyPackage(t, small(t))
			for i := range places {
				at := 0
				rewrite(t, dir, name, func(b []byte) []byte { at = (2*i + 1) * len(b) / (2 * places); b[at] ^= 0x55; return b })
				if attempt(dir) != nil {
					refused++
				}
				rewrite(t, dir, name, func(b []byte) []byte { b[at] ^= 0x55; return b })
			}
			t.Logf("%d of %d damaged files were refused", refused, places)
			if err := attempt(dir); err != nil {
				t.Errorf("repaired: %v", err)
			}
		})
	}
}

func TestConfigRefused(t *testing.T) {
	object := func(from, to string) func(b []byte) []byte {
		return func(b []byte) []byte {
			s := strings.Replace(string(b), from, to, 1)
			if s == string(b) {
				panic("no " + from)
			}
			return []byte(s)
		}
	}
	tie := func(v string) func(b []byte) []byte {
		return func(b []byte) []byte {
			at := strings.Index(string(b), `"tie_embeddings"`)
			return []byte(string(b[:at]) + `"tie_embeddings": ` + v + "}")
		}
	}
	for _, c := range []struct {
		name, file string
		change     func(b []byte) []byte
		want       error
		text       string
	}{
		{"no object", "config.json", func([]byte) []byte { return []byte("[]") }, tensor.ErrCorrupt, "config.json"},
		{"text behind", "config.json", func(b []byte) []byte { return append(b, 'x') }, tensor.ErrCorrupt, "config.json"},
		{"name leads out", "config.json", object(`"llm.mnn.weight"`, `"../llm.mnn.weight"`), tensor.ErrCorrupt, "leaves the package"},
		{"absolute name", "config.json", object(`"llm.mnn"`, `"/etc/passwd"`), tensor.ErrCorrupt, "leaves the package"},
		{"tokenizer leads out", "config.json", object(`"tokenizer.mtok"`, `"a/../../tokenizer.mtok"`), tensor.ErrCorrupt, "leaves the package"},
		{"empty name", "config.json", object(`"llm.mnn"`, `""`), tensor.ErrCorrupt, "leaves the package"},
		{"llm_config leads out", "config.json", object(`"llm_model"`, `"llm_config": "../x", "llm_model"`), tensor.ErrCorrupt, "leaves the package"},
		{"a name that is a number", "config.json", object(`"llm.mnn"`, `7`), tensor.ErrCorrupt, "config.json"},
		{"part leads out", "config.json", object(`"llmexport": {`, `"llmexport": {"parts": ["../x"],`), tensor.ErrCorrupt, "leaves the package"},
		{"part is missing", "config.json", object(`"llmexport": {`, `"llmexport": {"parts": ["draft"],`), fs.ErrNotExist, "draft.mnn"},
		{"integer mask", "llm_config.json", object(`"float"`, `"int"`), tensor.ErrUnsupported, "attention_mask"},
		{"sliding attention", "llm_config.json", object(`"full"`, `"sliding"`), tensor.ErrUnsupported, "attention_type"},
		{"mixed attention without a window", "llm_config.json", object(`"full"`, `"mix"`), tensor.ErrUnsupported, "sliding_window 0"},
		{"negative window", "llm_config.json", object(`"full"`, `"mix", "sliding_window": -1`), tensor.ErrUnsupported, "sliding_window -1"},
		{"scale", "llm_config.json", object(`"is_mrope"`, `"attn_scale": 0.5, "is_mrope"`), tensor.ErrUnsupported, "attn_scale"},
		{"no width", "llm_config.json", object(`"hidden_size": 64`, `"hidden_size": 0`), tensor.ErrCorrupt, "hidden_size"},
		{"negative width", "llm_config.json", object(`"hidden_size": 64`, `"hidden_size": -64`), tensor.ErrCorrupt, "hidden_size"},
		{"huge width", "llm_config.json", object(`"hidden_size": 64`, `"hidden_size": 9223372036854775807`), tensor.ErrCorrupt, "hidden_size"},
		{"too large a width", "llm_config.json", object(`"hidden_size": 64`, `"hidden_size": 1e30`), tensor.ErrCorrupt, "hidden_size"},
		{"another width", "llm_config.json", object(`"hidden_size": 64`, `"hidden_size": 32`), tensor.ErrCorrupt, ""},

		{"tie: a word", "llm_config.json", tie(`"x"`), tensor.ErrCorrupt, "tie_embeddings"},
		{"tie: four numbers", "llm_config.json", tie(`[1,2,3,8]`), tensor.ErrCorrupt, "4 entries"},
		{"tie: nothing at 0", "llm_config.json", tie(`[0,20480,100,8,32]`), tensor.ErrUnsupported, "tie_embeddings"},
		{"tie: 5 bits", "llm_config.json", tie(`[64,20544,100,5,32]`), tensor.ErrUnsupported, "5-bit"},
		{"tie: outside", "llm_config.json", tie(`[1000000000,1000020480,2560,8,32]`), tensor.ErrCorrupt, "weight file"},
		{"tie: negative", "llm_config.json", tie(`[-20480,0,2560,8,32]`), tensor.ErrCorrupt, "weight file"},
		{"tie: backwards", "llm_config.json", tie(`[20480,64,2560,8,32]`), tensor.ErrCorrupt, "not whole rows"},
		{"tie: overflow", "llm_config.json", tie(`[-9223372036854775808,9223372036854775807,2560,8,32]`), tensor.ErrCorrupt, ""},
		{"tie: no whole row", "llm_config.json", tie(`[64,20545,2560,8,32]`), tensor.ErrCorrupt, "not whole rows"},
		{"tie: block", "llm_config.json", tie(`[64,20544,2560,8,33]`), tensor.ErrCorrupt, "blocks of 33"},
		{"tie: negative block", "llm_config.json", tie(`[64,20544,2560,8,-32]`), tensor.ErrCorrupt, "blocks of -32"},
		{"tie: too few scales", "llm_config.json", tie(`[64,20544,2556,8,32]`), tensor.ErrCorrupt, "scales"},
		{"tie: scales outside", "llm_config.json", tie(`[64,20544,99999999999,8,32]`), tensor.ErrCorrupt, "weight file"},
		{"tie: type of scales", "llm_config.json", tie(`{"weight_offset":64,"alpha_offset":20544,"alpha_size":2560,"quant_bit":8,"quant_block":32,"alpha_dtype":"bf16"}`), tensor.ErrUnsupported, "bf16"},
		{"tie: a fraction", "llm_config.json", tie(`{"weight_offset":64.5}`), tensor.ErrCorrupt, "tie_embeddings"},
		{"no tie and no table", "llm_config.json", tie(`null`), fs.ErrNotExist, "embeddings_bf16.bin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyPackage(t, small(t))
			rewrite(t, dir, c.file, c.change)
			if err := attempt(dir); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// Only tokens of the vocabulary have rows.
func TestEmbedRange(t *testing.T) {
	p := openPackage(t, small(t))
	if n := p.Vocabulary(); n != 320 {
		t.Fatalf("vocabulary %d", n)
	}
	for _, id := range []int32{-1, 320, math.MaxInt32, math.MinInt32} {
		if _, err := p.Embed([]int32{0, id}); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("token %d: %v", id, err)
		}
	}
	s := session(t, p, backend.Float)
	if _, err := s.Prefill(t.Context(), nil); err == nil {
		t.Error("Prefill of nothing")
	}
	if _, err := s.Decode(t.Context(), 320); err == nil {
		t.Error("Decode of a token that does not exist")
	}
	if s.Len() != 0 {
		t.Errorf("%d tokens after failures", s.Len())
	}
}

// stretch bounds how far float32 logits may move when the same sums are cut elsewhere.
const stretch = 1e-4

// One pass and single tokens give the same logits; a conversation starts from the beginning after Reset.
func TestForward(t *testing.T) {
	p := openPackage(t, small(t))
	window := make([]int32, 41)
	for i := range window {
		window[i] = int32(i * 37 % 320)
	}
	s := session(t, p, backend.Float)
	want, err := s.Forward(t.Context(), window)
	if err != nil {
		t.Fatal(err)
	}
	want = slices.Clone(want)
	if len(want) != len(window)*320 || s.Len() != len(window) {
		t.Fatalf("%d logits, %d tokens", len(want), s.Len())
	}
	near := func(what string, at int, got []float32) {
		t.Helper()
		for i, v := range got {
			if d := math.Abs(float64(v - want[at*320+i])); !(d <= stretch) {
				t.Fatalf("%s: position %d differs by %g", what, at, d)
			}
		}
	}
	s.Reset()
	for i, id := range window {
		got, err := s.Decode(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		near("single tokens", i, got)
	}
	s.Reset()
	if got, err := s.Prefill(t.Context(), window[:9]); err != nil {
		t.Error(err)
	} else {
		near("prefill", 8, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Advance(ctx, [][]int32{window}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestAdvance: windows that run together, and logits that are made some rows at a time, have the bits of windows that
// run alone and at once.
func TestAdvance(t *testing.T) {
	p := openPackage(t, small(t))
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		for _, option := range []int{0, 2} {
			for _, length := range []int{1, 5, 16, 40} {
				s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: mode, DynamicOption: option})
				if err != nil {
					t.Fatal(err)
				}
				var windows [][]int32
				var want []float32
				for k := range 3 {
					w := make([]int32, length)
					for i := range w {
						w[i] = int32((k*97 + i*i*31 + 5) % 320)
					}
					windows = append(windows, w)
					s.Reset()
					l, err := s.Forward(t.Context(), w)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, l...)
				}
				for _, rows := range []int{1, 2, 3, 7, 8, 3 * length} {
					if err := s.Advance(t.Context(), windows); err != nil {
						t.Fatal(err)
					}
					for at := 0; at < 3*length; at += rows {
						to := min(at+rows, 3*length)
						got, err := s.Logits(t.Context(), at, to)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got, want[at*320:to*320]) {
							t.Fatalf("%v, option %d, windows of %d, rows %d: rows %d to %d differ", mode, option, length, rows, at, to)
						}
					}
				}
			}
		}
	}
}

// Results do not depend on threads, and sessions of one package do not on each other.
func TestSessionsAreIndependent(t *testing.T) {
	p := openPackage(t, small(t))
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		want, err := session(t, p, mode).Forward(t.Context(), []int32{5, 6, 7, 8, 9})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for threads := 1; threads <= 4; threads++ {
			s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: mode, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				got, err := s.Forward(t.Context(), []int32{5, 6, 7, 8, 9})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%v with %d threads: other logits, %v", mode, threads, err)
				}
			})
		}
		wg.Wait()
	}
}

// Observe sees the layers of a call; Replace and Embed change what is computed.
func TestHooks(t *testing.T) {
	p := openPackage(t, small(t))
	seen := 0
	s := session(t, p, backend.Float)
	s.Observe = func(op *mnn.Op, _ int, shape []int, v []float32) {
		if strings.HasSuffix(op.Name, "/mlp/residual") {
			seen++
			if n := shape[len(shape)-1]; n != 64 || len(v) != 3*64 {
				t.Errorf("%s: shape %v, %d values", op.Name, shape, len(v))
			}
		}
	}
	want, err := s.Forward(t.Context(), []int32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if seen != p.Config.LayerNums {
		t.Errorf("saw %d layers of %d", seen, p.Config.LayerNums)
	}
	nothing := func(*mnn.Op) (*backend.Replacement, []float32, error) { return nil, nil, nil }
	kept, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Threads: 1, Replace: nothing})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kept.Forward(t.Context(), []int32{1, 2, 3}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Replace by nothing changes logits, %v", err)
	}
	other, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Embed: func(ids []int32) ([]float32, error) { return p.Embed([]int32{7, 7, 7}) }})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := other.Forward(t.Context(), []int32{1, 2, 3}); err != nil || slices.Equal(got, want) {
		t.Errorf("Embed changes nothing, %v", err)
	}
}

// withStop replaces the stop tokens of a package's tokenizer.
func withStop(t *testing.T, dir string, stop ...int32) string {
	t.Helper()
	b, err := os.ReadFile("../pipeline/arch/testdata/qwen3-tied/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	mtok, _, err := tok.MTOK(tokenizer.MTOKOptions{Stop: stop})
	if err != nil {
		t.Fatal(err)
	}
	dir = copyPackage(t, dir)
	rewrite(t, dir, "tokenizer.mtok", func([]byte) []byte { return mtok })
	return dir
}

func TestGenerate(t *testing.T) {
	prompt := []int32{10, 20, 30}
	generate := func(dir string, o runtime.GenerateOptions) (out []int32) {
		t.Helper()
		s := session(t, openPackage(t, dir), backend.Float)
		if err := s.Generate(t.Context(), prompt, o, func(id int32) bool { out = append(out, id); return true }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	free := generate(withStop(t, small(t)), runtime.GenerateOptions{MaxTokens: 12})
	if len(free) != 12 {
		t.Fatalf("12 tokens wanted: %v", free)
	}
	// Greedy is what single steps give.
	s := session(t, openPackage(t, small(t)), backend.Float)
	logits, err := s.Prefill(t.Context(), prompt)
	for _, want := range free {
		if err != nil {
			t.Fatal(err)
		}
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		if int32(best) != want {
			t.Fatalf("%d instead of %d", want, best)
		}
		logits, err = s.Decode(t.Context(), want)
	}
	// Any of the stop tokens ends it and is not yielded.
	at := len(free) / 2
	first := slices.Index(free, free[at])
	if got := generate(withStop(t, small(t), 3, free[at]), runtime.GenerateOptions{MaxTokens: 12}); !slices.Equal(got, free[:first]) {
		t.Errorf("stop at %d: %v of %v", free[at], got, free)
	}
	if got := generate(small(t), runtime.GenerateOptions{}); got != nil {
		t.Errorf("no tokens wanted: %v", got)
	}
	// One that yield ends.
	n := 0
	s.Reset()
	if err := s.Generate(t.Context(), prompt, runtime.GenerateOptions{MaxTokens: 12}, func(int32) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("%d tokens, %v", n, err)
	}
	if err := s.Generate(t.Context(), []int32{-5}, runtime.GenerateOptions{MaxTokens: 1}, func(int32) bool { return true }); err == nil {
		t.Error("a prompt that is no token")
	}
	// Random, with a seed.
	o := runtime.GenerateOptions{MaxTokens: 12, Sampler: &runtime.Sampler{Temperature: 1}, Seed: 7}
	a, b := generate(withStop(t, small(t)), o), generate(withStop(t, small(t)), o)
	o.Seed = 8
	if c := generate(withStop(t, small(t)), o); !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("seeds: %v, %v, %v", a, b, c)
	}
}
