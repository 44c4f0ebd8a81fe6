package cuda

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	shapes     = flag.Int("shapes", 8, "how many random shapes of each product are compared")
	checkpoint = flag.String("checkpoint", "../../../../pipeline/arch/testdata/qwen3-tied", "what TestPackage makes packages of")
	least      = flag.Int("least", 1<<20, "how many multiplications are worth the card there")
)

// dir is where the emulation is built.
var dir string

func TestMain(m *testing.M) {
	dir, _ = os.MkdirTemp("", "cuda")
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// engine opens the card that LLMEXPORT_CUDA_DRIVER names a driver of, or the emulation, which is built if there is a C++ compiler.
func engine(t *testing.T) *Engine {
	t.Helper()
	if os.Getenv("LLMEXPORT_CUDA_DRIVER") == "" {
		compiler, err := exec.LookPath("g++")
		if err != nil {
			t.Skip("no C++ compiler for the emulated driver")
		}
		path := filepath.Join(dir, "driver.so")
		options := []string{"-O2", "-march=native", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC", "-fno-gnu-unique", "-Wl,-Bsymbolic",
			"-Wno-unknown-pragmas", "-o", path, "emulated/driver.cpp"}
		if _, err := os.Stat(path); err != nil {
			if out, err := exec.Command(compiler, options...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		t.Setenv("LLMEXPORT_CUDA_DRIVER", path)
	}
	e, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	e.least, e.slot = 0, 1<<17
	return e
}

// floats returns values of unlike sizes, with denormals and now and then an infinity.
func floats(r *rand.Rand, n int, infinite bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
		switch r.IntN(40) {
		case 0:
			x[i] *= 1e-39
		case 1:
			x[i] *= 1e20
		case 2:
			x[i] *= 1e-30
		case 3:
			x[i] = float32(math.Copysign(0, -1))
		}
		if infinite && r.IntN(500) == 0 {
			x[i] = float32(math.Inf(1 - 2*r.IntN(2)))
		}
	}
	return x
}

// part returns factors of a product.
func part(a []float32, la kernel.Layout, lda int, b kernel.Factor, k int) kernel.Part {
	return kernel.Part{A: kernel.Factor{Data: a, Layout: la, Stride: lda}, B: b, K: k}
}

// TestFailures leaves codes and scales as they were where memory does not suffice, and where any call of the driver fails.
func TestFailures(t *testing.T) {
	d := randomDescent(rand.New(rand.NewPCG(12, 1)), false)
	e := engine(t)
	e.Bound(1000)
	if e.Compute(cloneDescent(d)) || e.Err() != nil {
		t.Errorf("a descent that does not fit was computed, or failed: %v", e.Err())
	}
	calls := 0
	for failed := true; failed; calls++ {
		e, got := engine(t), cloneDescent(d)
		failed = !failAt(e, calls, func() bool { return e.Compute(got) })
		if failed && (e.Err() == nil || differ(got.Codes, d.Codes)+differ(got.Scale, d.Scale)+differ(got.Zero, d.Zero) > 0 || e.Compute(got)) {
			t.Errorf("call %d failed: no error, or something changed, or the card was used afterwards: %v", calls, e.Err())
		}
	}
	if calls < 20 {
		t.Errorf("a descent made %d calls", calls-1)
	}
	f := randomFeedback(rand.New(rand.NewPCG(13, 1)))
	for failed, call := true, 0; failed; call += 2 {
		e, got := engine(t), cloneFeedback(f)
		failed = !failAt(e, call, func() bool { return e.Compute(got) })
		if failed && (e.Err() == nil || differ(got.Codes, f.Codes)+differ(got.Scale, f.Scale)+differ(got.Zero, f.Zero) > 0) {
			t.Errorf("call %d of a feedback failed: no error, or something changed: %v", call, e.Err())
		}
	}
	const n = 2*factorColumns + 4
	for failed, call := true, 0; failed; call += 3 {
		a := make([]float32, n*n)
		for i := range n {
			a[i*n+i] = 1
		}
		e, f := engine(t), quant.NewFactoring(a, n)
		f.Version = kernel.NewVersion()
		if failed = !failAt(e, call, func() bool { return e.Compute(f) }); failed && (e.Err() == nil || len(e.kept.of) > 0) {
			t.Errorf("call %d of a factoring failed without an error, or its result stays", call)
		}
	}
}

// failAt lets one call of the driver fail, counted from 0, while f runs.
func failAt(e *Engine, call int, f func() bool) bool {
	whole := *e.driver
	var calls atomic.Int64
	rc := func(r int32) int32 {
		if calls.Add(1) == int64(call)+1 {
			return 719
		}
		return r
	}
	e.driver = &driver{
		setCurrent: whole.setCurrent, newStream: whole.newStream, firstStream: whole.firstStream, newEvent: whole.newEvent, allocHost: whole.allocHost,
		freeHost: whole.freeHost,
		after:    whole.after, free: whole.free,
		alloc: func(p *uint64, n uint64) int32 { return rc(whole.alloc(p, n)) },
		toDevice: func(to uint64, from unsafe.Pointer, n uint64, s uintptr) int32 {
			return rc(whole.toDevice(to, from, n, s))
		},
		toHost: func(to unsafe.Pointer, from, n uint64, s uintptr) int32 { return rc(whole.toHost(to, from, n, s)) },
		record: func(e, s uintptr) int32 { return rc(whole.record(e, s)) },
		await:  func(e uintptr) int32 { return rc(whole.await(e)) },
		launch: func(k uintptr, gx, gy, gz, bx, by, bz, shared uint32, s uintptr, a, x unsafe.Pointer) int32 {
			return rc(whole.launch(k, gx, gy, gz, bx, by, bz, shared, s, a, x))
		},
	}
	return f()
}

// TestQuantize encodes a matrix with the card and without, and with a card that fails meanwhile.
func TestQuantize(t *testing.T) {
	const rows, cols, tokens = 8, 448, 500
	r := rand.New(rand.NewPCG(9, 9))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	x := random(tokens * cols)
	y := random(tokens * cols)
	kernel.AddScaled(y, x, 3)
	st := &quant.Stats{Cols: cols, Tokens: tokens, Hessian: make([]float32, cols*cols), Cross: make([]float32, cols*cols)}
	transposed := make([]float32, cols*tokens)
	for i := range cols {
		for p := range tokens {
			transposed[i*tokens+p] = x[p*cols+i]
		}
	}
	kernel.MatMul(st.Hessian, transposed, x, cols, cols, tokens, cols, tokens, cols)
	kernel.MatMul(st.Cross, transposed, y, cols, cols, tokens, cols, tokens, cols)
	w := quant.Matrix{Rows: rows, Cols: cols, Data: random(rows * cols)}
	s := quant.Spec{Bits: 4, Block: 64, Scale: tensor.F32}
	l, err := s.Layout(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	encode := func() quant.Blocks {
		b := quant.NewBlocks(l, s)
		c, err := quant.NewGPTQ().Prepare(s, cols, st, 1)
		if err == nil {
			err = c.(quant.Together).EncodeTogether(b, w, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := encode()
	e := engine(t)
	e.slot = 1 << 18
	kernel.SetDevice(e)
	defer kernel.SetDevice(nil)
	got := encode()
	// The factor, the mismatch, the target, the feedback and the descent.
	if n := e.Spent().Products; n != 1+2+1+1+1 || e.Err() != nil {
		t.Errorf("%d pieces of work were done on the card, %v", n, e.Err())
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("codes or scales differ")
	}
	// The card fails in the factor, the mismatch, the target, the feedback and the descent.
	for _, c := range []struct{ call, done int }{{50, 0}, {180, 1}, {270, 3}, {302, 4}, {345, 5}} {
		e := engine(t)
		e.slot = 1 << 18
		kernel.SetDevice(e)
		if same := failAt(e, c.call, func() bool { return reflect.DeepEqual(encode(), want) }); !same || e.Err() == nil || e.Spent().Products != int64(c.done) {
			t.Errorf("call %d fails: the same codes and scales %v, %v after %d pieces of work", c.call, same, e.Err(), e.Spent().Products)
		}
	}
}

// TestPackage makes packages with one card, with two and without: the same files. What computes less than the threshold stays on the CPU.
func TestPackage(t *testing.T) {
	for i, quantize := range []string{"{method: gptq, block: 32, budget: {bpw: 6}}", "{method: gptq, block: 32}"} {
		files := func() []manifest.File {
			dir, err := stagetest.Export(t.Context(), t.TempDir(), *checkpoint,
				"calibrate: {tokens: 256, window: 64, probe: 64}\nquantize: "+quantize+"\nverify: {enabled: false}\n")
			if err != nil {
				t.Fatal(err)
			}
			m, err := manifest.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			return m.Files
		}
		want := files()
		for n := range 1 + i {
			cards := []*Engine{engine(t), engine(t)}[:n+1]
			for _, e := range cards {
				e.least, e.moving = *least, []seat{here, there, here}[i+n]
			}
			kernel.SetDevice(cards[0])
			if n > 0 {
				kernel.SetDevice(NewGroup(cards))
			}
			got := files()
			kernel.SetDevice(nil)
			if len(want) == 0 || !reflect.DeepEqual(got, want) {
				t.Errorf("quantize %s, %d cards:\ngot  %v\nwant %v", quantize, n+1, got, want)
			}
			for i, e := range cards {
				s := e.Spent()
				if s.Products == 0 || e.Err() != nil {
					t.Errorf("quantize %s, card %d of %d: %d pieces of work, %v", quantize, i, n+1, s.Products, e.Err())
				}
				t.Logf("quantize %s, card %d of %d: %d pieces of work, %d multiplications", quantize, i, n+1, s.Products, s.Multiplications)
			}
		}
	}
}

// TestOpen refuses what cannot be used.
func TestOpen(t *testing.T) {
	engine(t)
	if _, err := Open(99); err == nil {
		t.Error("card 99 was opened")
	}
	t.Setenv("LLMEXPORT_CUDA_DRIVER", filepath.Join(t.TempDir(), "none.so"))
	if _, err := Open(0); err == nil {
		t.Error("a driver that does not exist was opened")
	}
}

// TestMeasure measures small products, and compares them.
func TestMeasure(t *testing.T) {
	e := engine(t)
	m, err := e.Measure([]Shape{{70, 40}, {40, 70}}, []Shape{{300, 40}}, 50, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Products) != 8 || len(m.Works) != 31 || len(e.held) != 0 || m.Send <= 0 || m.Receive <= 0 || m.Peak <= 0 {
		t.Errorf("measured %+v", m)
	}
	for _, p := range m.Products {
		if p.Differ != 0 || p.Card <= 0 || p.CPU <= 0 || p.Tile128 <= 0 || p.Tile256 <= 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, p := range m.Works {
		if p.Differ != 0 || p.Card <= 0 || p.CPU <= 0 {
			t.Errorf("%+v", p)
		}
	}
}
