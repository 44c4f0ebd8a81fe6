package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type weights []byte

func (w weights) Size() int64 { return int64(len(w)) }

func (w weights) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > w.Size() || n > w.Size()-off {
		return nil, tensor.ErrCorrupt
	}
	return w[off : off+n], nil
}

// model is a small checkpoint as a package would hold it.
type model struct {
	name  string
	graph []byte
	file  weights
	width int
	// window is that of the masks, see backend.Options.
	window int
}

// packaged is the package of a checkpoint of the families' tests.
func packaged(t testing.TB, name string, s quant.Spec) model {
	t.Helper()
	dir := filepath.Join("..", "..", "pipeline", "arch", "testdata", name)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	described, err := arch.Describe(config, checkpoint.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := described.Text
	src, err := arch.Open(d, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Classic(d, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := plan.New(m, src.Tensors(), &quant.Policy{Default: s, Table: table(s), Tower: table(s)})
	if err != nil {
		t.Fatal(err)
	}
	p := pl.Parts[0]
	var file bytes.Buffer
	if _, err := p.Write(t.Context(), &file, src, plan.WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 26}); err != nil {
		t.Fatal(err)
	}
	b, err := p.Link().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	width := d.Hidden
	if d.Lookup.Tensor != "" { // with columns that mark pictures
		width = d.Lookup.Cols
	}
	return model{fmt.Sprint(name, " ", s.Bits), b, file.Bytes(), width, m.Window}
}

// table is s, or what engines can look embeddings up in.
func table(s quant.Spec) quant.Spec {
	if s.Bits < 8 && s.Bits != 4 {
		s.Bits = 8
	}
	return s
}

// models have all widths, tied tables and others, norms of heads, and biases.
func models(t testing.TB) []model {
	spec := func(bits int) quant.Spec { return quant.Spec{Bits: bits, Block: 32, Scale: tensor.F16} }
	return []model{
		packaged(t, "qwen3-tied", spec(4)), packaged(t, "qwen3-untied", spec(8)), packaged(t, "qwen2-tied", spec(3)),
		packaged(t, "llama-bias", spec(4)), packaged(t, "llama3-rope", quant.Half), packaged(t, "qwen2-untied", spec(6)),
	}
}

func (m *model) compile(t testing.TB, b backend.Backend, o backend.Options) backend.Executable {
	t.Helper()
	g, err := mnn.Open(m.graph)
	if err != nil {
		t.Fatal(err)
	}
	o.Window = m.window
	e, err := b.Compile(g, m.file, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// seen is an output that an observer was shown.
type seen struct {
	op     string
	output int
	shape  string
	values []float32
}

func (m *model) watch(list *[]seen) func(op *mnn.Op, output int, shape []int, values []float32) {
	return func(op *mnn.Op, output int, shape []int, values []float32) {
		*list = append(*list, seen{op.Name, output, fmt.Sprint(shape), append([]float32{}, values...)})
	}
}

// TestModels: with every mode, every option, several threads and calls of every kind, logits and everything that an
// observer sees have the bits of the interpreter.
func TestModels(t *testing.T) {
	for _, m := range models(t) {
		for _, o := range []backend.Options{
			{}, {CacheBytes: 1 << 30}, {CacheBytes: 1 << 14},
			{Mode: backend.Int8}, {Mode: backend.Int8, DynamicOption: 2}, {Mode: backend.Int8, RepackLowBits: true},
		} {
			t.Run(fmt.Sprintf("%s/%v option %d cache %d", m.name, o.Mode, o.DynamicOption, o.CacheBytes), func(t *testing.T) {
				want := m.compile(t, generic.Backend{}, o)
				o.Threads = 1 + len(m.name)%3
				got := m.compile(t, Backend{}, o)
				r := rand.New(rand.NewPCG(1, 2))
				a, b := []backend.State{want.NewState()}, []backend.State{got.NewState()}
				for i, c := range []backend.Call{
					{Tokens: 5, All: true}, {Tokens: 1}, {Tokens: 1}, {Tokens: 24}, {Tokens: 70, All: true}, {Tokens: 1, All: true}, {Tokens: 3, Offset: 9}, {Tokens: 24},
					{Tokens: m.width}, {Tokens: 2 * m.width}, // as many tokens as a row has elements
				} {
					c.Embeddings = make([]float32, c.Tokens*m.width)
					for k := range c.Embeddings {
						c.Embeddings[k] = float32(r.NormFloat64())
					}
					var x, y []seen
					if i == 0 || i == 2 || i == 3 {
						c.Observe = m.watch(&x)
					}
					p, err := want.Run(t.Context(), a, c)
					if err != nil {
						t.Fatal(err)
					}
					if c.Observe != nil {
						c.Observe = m.watch(&y)
					}
					q, err := got.Run(t.Context(), b, c)
					if err != nil {
						t.Fatal(err)
					}
					same(t, fmt.Sprintf("call %d of %d tokens", i, c.Tokens), q, p)
					if len(x) != len(y) {
						t.Fatalf("call %d: %d outputs were observed, want %d", i, len(y), len(x))
					}
					for k := range x {
						if x[k].op != y[k].op || x[k].output != y[k].output || x[k].shape != y[k].shape {
							t.Fatalf("call %d: output %d is %s %d %s, want %s %d %s", i, k, y[k].op, y[k].output, y[k].shape, x[k].op, x[k].output, x[k].shape)
						}
						same(t, x[k].op, y[k].values, x[k].values)
					}
					if a[0].Len() != b[0].Len() {
						t.Fatalf("%d cached positions, want %d", b[0].Len(), a[0].Len())
					}
				}
			})
		}
	}
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d is %g, want the bits of %g", what, i, got[i], want[i])
		}
	}
}

// TestPeaks: the peaks that fused plans know are those of the interpreter, and that of the last layer is among them.
func TestPeaks(t *testing.T) {
	for _, m := range models(t) {
		for _, tokens := range []int{1, 5, 70} {
			x := make([]float32, tokens*m.width)
			r := rand.New(rand.NewPCG(5, uint64(tokens)))
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			collect := func(be backend.Backend) map[string]float32 {
				e := m.compile(t, be, backend.Options{Threads: 2, CacheBytes: 1 << 30})
				peaks := map[string]float32{}
				for range 2 { // the second call begins again
					clear(peaks)
					_, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{
						Embeddings: x, Tokens: tokens, All: true, Peaks: func(op *mnn.Op, v float32) { peaks[op.Name] = max(peaks[op.Name], v) },
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				return peaks
			}
			want, got := collect(generic.Backend{}), collect(Backend{})
			for name, v := range got {
				if w, ok := want[name]; !ok || w != v {
					t.Errorf("%s, %d tokens: %s is %g, want %g", m.name, tokens, name, v, w)
				}
			}
			if _, ok := got[lower.HeadOp]; !ok || len(got) < len(want)/3 {
				t.Errorf("%s, %d tokens: %d peaks of %d", m.name, tokens, len(got), len(want))
			}
		}
	}
}

// TestUnfused: angles of another shape than those that rotary ops are fused for are broadcast as they are.
func TestUnfused(t *testing.T) {
	m := packaged(t, "qwen3-tied", quant.Half)
	run := func(be backend.Backend) []float32 {
		g, err := mnn.Open(m.graph)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for i := range g.Ops {
			if r, ok := g.Ops[i].Param.(*mnn.Reshape); ok && (g.Ops[i].Name == "/rotary/cos_heads" || g.Ops[i].Name == "/rotary/sin_heads") {
				r.Dims = r.Dims[1:]
				changed++
			}
		}
		e, err := be.Compile(g, m.file, backend.Options{})
		if err != nil || changed != 2 {
			t.Fatal(changed, err)
		}
		x := make([]float32, m.width)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		l, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: x, Tokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	same(t, "logits", run(Backend{}), run(generic.Backend{}))
}

// TestNoTokens: a graph whose slice of the last tokens is empty gives no logits.
func TestNoTokens(t *testing.T) {
	for _, m := range models(t) {
		g, err := mnn.Open(m.graph)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(g.Ops, func(op mnn.Op) bool { return op.Name == "/last" })
		if i < 0 {
			t.Fatal("there is no slice of the last tokens")
		}
		in := g.Ops[i].Inputs // of, begin, end
		in[1] = in[2]
		for _, be := range []backend.Backend{Backend{}, generic.Backend{}} {
			for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
				e, err := be.Compile(g, m.file, backend.Options{Mode: mode})
				if err != nil {
					t.Fatal(err)
				}
				l, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: make([]float32, 3*m.width), Tokens: 3})
				if err != nil || len(l) != 0 {
					t.Errorf("%T %v: %d logits, %v", be, mode, len(l), err)
				}
			}
		}
	}
}

// TestUnshaped: a layer that reads what another one has reshaped is refused if it did not reshape it itself.
func TestUnshaped(t *testing.T) {
	for _, m := range models(t) {
		g, err := mnn.Open(m.graph)
		if err != nil {
			t.Fatal(err)
		}
		op := func(name string) *mnn.Op {
			i := slices.IndexFunc(g.Ops, func(op mnn.Op) bool { return op.Name == name })
			if i < 0 {
				t.Fatalf("there is no %s", name)
			}
			return &g.Ops[i]
		}
		op("/layers.1/self_attn/q_proj/Linear/pre_convert").Inputs[0] = op("/layers.0/self_attn/q_proj/Linear/pre_reshape").Inputs[0]
		for _, be := range []backend.Backend{Backend{}, generic.Backend{}} {
			e, err := be.Compile(g, m.file, backend.Options{})
			if err == nil {
				_, err = e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: make([]float32, 3*m.width), Tokens: 3})
			}
			if !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("%T: %v", be, err)
			}
		}
	}
}

// TestStates: states of one executable at the same time do not disturb each other.
func TestStates(t *testing.T) {
	m := packaged(t, "qwen3-tied", quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16})
	e := m.compile(t, Backend{}, backend.Options{Mode: backend.Int8, Threads: 2})
	conversation := func(seed uint64) (out []float32) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := []backend.State{e.NewState()}
		for _, n := range []int{7, 1, 1, 12, 1} {
			x := make([]float32, n*m.width)
			for k := range x {
				x[k] = float32(r.NormFloat64())
			}
			l, err := e.Run(t.Context(), s, backend.Call{Embeddings: x, Tokens: n})
			if err != nil {
				t.Error(err)
				return nil
			}
			out = append(out, l...)
		}
		return out
	}
	const n = 6
	var alone, together [n][]float32
	for i := range alone {
		alone[i] = conversation(uint64(i))
	}
	done := make(chan int)
	for i := range together {
		go func() { together[i] = conversation(uint64(i)); done <- i }()
	}
	for range n {
		<-done
	}
	for i := range alone {
		same(t, fmt.Sprint("conversation ", i), together[i], alone[i])
	}
}

// FuzzGraph runs damaged graphs: they are refused, or give what the interpreter gives.
func FuzzGraph(f *testing.F) {
	list := models(f)
	for i := range list {
		f.Add(uint8(i), uint16(0), []byte{})
		f.Add(uint8(i), uint16(2000+i), []byte{1, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, patch []byte) {
		m := list[int(which)%len(list)]
		b := bytes.Clone(m.graph)
		// Graphs are some 10 to 30 thousand bytes, in words of four.
		copy(b[min(len(b), 4*int(at)%len(b)):], patch)
		g, err := mnn.Open(b)
		if err != nil {
			return
		}
		for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			x := make([]float32, 3*m.width)
			for i := range x {
				x[i] = float32(i%17) - 8
			}
			run := func(be backend.Backend) ([]float32, error) {
				e, err := be.Compile(g, m.file, backend.Options{Mode: mode})
				if err != nil {
					return nil, err
				}
				return e.Run(ctx, []backend.State{e.NewState()}, backend.Call{Embeddings: x, Tokens: 3, All: true})
			}
			got, err := run(Backend{})
			if errors.Is(err, errUnfused) {
				t.Fatalf("%v: %v", mode, err)
			}
			if err != nil || ctx.Err() != nil {
				continue
			}
			want, err := run(generic.Backend{})
			if ctx.Err() != nil {
				continue
			}
			if err != nil {
				t.Fatalf("%v: the interpreter refuses what runs here: %v", mode, err)
			}
			for i := range want {
				if i >= len(got) || math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
					t.Fatalf("%v: value %d of %d differs", mode, i, len(want))
				}
			}
		}
	})
}
