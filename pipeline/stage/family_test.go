package stage_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime"
)

// familyNames are checkpoints of random weights, one for every feature of the described families.
var familyNames = []string{"llama", "llama-bias", "llama-linear-rope", "llama3-rope", "qwen2-tied", "qwen2-untied", "qwen3-tied", "qwen3-untied"}

// goldenBound is how far a logit of the package, which holds the weights as halves, may lie from that of transformers in
// float32. Weights of bfloat16 fit into halves but for the smallest; the rest is rounding of float32 sums.
const goldenBound = 1e-4

// record is a tensor of a golden file.
type record struct {
	ids    []int32
	logits []float32
}

// readGolden reads ids_N and logits_N.
func readGolden(t testing.TB, path, n string) (r record) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := 8 + int(binary.LittleEndian.Uint64(b))
	var entries map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:head], &entries); err != nil {
		t.Fatal(err)
	}
	data := func(name string) (string, []byte) {
		e, ok := entries[name]
		if !ok {
			t.Fatalf("%s has no %s", path, name)
		}
		return e.DType, b[head+e.Offsets[0] : head+e.Offsets[1]]
	}
	dtype, ids := data("ids_" + n)
	width := map[string]int{"I32": 4, "I64": 8}[dtype]
	for ; len(ids) > 0; ids = ids[width:] {
		r.ids = append(r.ids, int32(binary.LittleEndian.Uint32(ids)))
	}
	if dtype, raw := data("logits_" + n); dtype == "F32" {
		for ; len(raw) > 0; raw = raw[4:] {
			r.logits = append(r.logits, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	} else {
		t.Fatalf("logits are %s", dtype)
	}
	return r
}

func distance(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

// The bytes of a 16-bit package give the logits of transformers, at once, and in a prefill followed by single tokens.
func TestFamilies(t *testing.T) {
	for _, name := range familyNames {
		for _, engine := range []string{"3.5", "3.6"} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				w := newWork(t, families+name, "target: {engine: \""+engine+"\"}\nquantize: {bits: 16}\nverify: {enabled: false}")
				w.must(t)
				p, err := runtime.Open(w.out())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				s, err := runtime.NewSession(p, runtime.Options{Mode: backends.Float, Threads: 2, CacheBytes: 1 << 28})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []string{"0", "1"} {
					g := readGolden(t, filepath.Join(families+name, "golden.safetensors"), n)
					s.Reset()
					got, err := s.Forward(t.Context(), g.ids)
					if err != nil {
						t.Fatal(err)
					}
					if len(got) != len(g.logits) || len(g.ids) == 0 {
						t.Fatalf("%d logits, recorded %d", len(got), len(g.logits))
					}
					atOnce := distance(g.logits, got)
					vocab, prefill := len(got)/len(g.ids), min(32, len(g.ids)/2)
					s.Reset()
					l, err := s.Prefill(t.Context(), g.ids[:prefill])
					stepwise := 0.0
					for i := prefill; err == nil; i++ {
						stepwise = max(stepwise, distance(g.logits[(i-1)*vocab:i*vocab], l))
						if i == len(g.ids) {
							break
						}
						l, err = s.Decode(t.Context(), g.ids[i])
					}
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%d tokens: %.2g at once, %.2g one by one", len(g.ids), atOnce, stepwise)
					if !(atOnce <= goldenBound) || !(stepwise <= goldenBound) {
						t.Errorf("%d tokens: logits off by %g at once, %g one by one", len(g.ids), atOnce, stepwise)
					}
				}
			})
		}
	}
}

// What ends a turn, and what stands before a text, is the same in the package's tokenizer and the source's files.
func TestTokenizerFacts(t *testing.T) {
	for _, dir := range append([]string{tiny}, familyNames...) {
		if dir != tiny {
			dir = families + dir
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := stage.OpenSource(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			block := "32"
			if dir == tiny {
				block = "64"
			}
			w := newWork(t, dir, "quantize: {block: "+block+"}\nverify: {enabled: false}")
			w.must(t)
			p, err := runtime.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			e, f := p.Tokenizer, src.Facts
			special := e.Special()
			slices.Sort(special)
			if len(f.Stop) == 0 || !slices.Equal(e.Stop(), f.Stop) || !slices.Equal(e.Prefix(), f.Prefix) || !slices.Equal(special, f.Special) {
				t.Errorf("stop %v %v, prefix %v %v, special %v %v", e.Stop(), f.Stop, e.Prefix(), f.Prefix, special, f.Special)
			}
			if e.ChatTemplate() != f.ChatTemplate || e.EOS() != f.EOS || p.Config.Jinja.ChatTemplate != f.ChatTemplate || p.Config.Jinja.EOS != f.EOS {
				t.Errorf("template or eos differ: %q %q", e.EOS(), f.EOS)
			}
			if dir == tiny && !strings.Contains(f.ChatTemplate, "<|im_end|>") {
				t.Errorf("no chat template: %q", f.ChatTemplate)
			}
		})
	}
}
