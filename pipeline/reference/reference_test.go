package reference

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// someWindows are of unlike lengths, one of them empty.
func someWindows(t testing.TB) [][]int32 {
	golden := readFile(t, familyDir("qwen3-tied")+"/golden.safetensors")
	a, b := golden.tokens(t, "ids_0"), golden.tokens(t, "ids_1")
	return [][]int32{a, b, {}, a[:1], b[3:70], a[5:]}
}

// smallest is the least memory in which the longest of windows fits.
func smallest(t testing.TB, m *Model, windows [][]int32) int64 {
	t.Helper()
	defer func(memory int64) { m.memory = memory }(m.memory)
	for m.memory = 1; m.memory < 1<<30; m.memory += 1 << 10 {
		if !slices.ContainsFunc(windows, func(w []int32) bool { return m.Fit([][]int32{w}) == 0 }) {
			return m.memory
		}
	}
	t.Fatal("nothing fits")
	return 0
}

// The same bits for all numbers of threads, memory limits, and companions of a window.
func TestIndependence(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Run("qwen2", func(t *testing.T) {
		d, src := readCheckpoint(t, familyDir("qwen2-untied"))
		testIndependence(t, d, src)
	})
	for _, name := range []string{"falcon_h1", "deepseek_v3", "lfm2", "qwen3_next"} { // of other kinds of blocks
		t.Run(name, func(t *testing.T) {
			d, src := readCheckpoint(t, familyDir(name))
			testIndependence(t, d, src)
		})
	}
}

func testIndependence(t *testing.T, d *arch.Decoder, src tensor.Source) {
	windows := someWindows(t)
	model := func(opts Options) *Model {
		t.Helper()
		m, err := New(d, src, opts)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := model(Options{Threads: 1})
	if !first.keeps() {
		t.Fatal("the weights are not kept")
	}
	want := scoreAll(t, first, windows)
	same := func(t *testing.T, got, want []float32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Error("logits differ")
		}
	}
	for _, threads := range []int{2, 3, 8} {
		for i, got := range scoreAll(t, model(Options{Threads: threads}), windows) {
			same(t, got, want[i])
		}
	}
	many := slices.Repeat(windows, 8)
	t.Run("little memory", func(t *testing.T) {
		m := model(Options{Threads: 2, Memory: smallest(t, model(Options{Threads: 2}), windows)})
		if n := m.Fit(many); n == 0 || n == len(many) || m.keeps() {
			t.Fatalf("%d of %d windows fit, weights kept: %v", n, len(many), m.keeps())
		}
		for i, got := range scoreAll(t, m, many) {
			same(t, got, want[i%len(windows)])
		}
	})
	t.Run("groups", func(t *testing.T) {
		m := model(Options{Threads: 2})
		m.memory = smallest(t, m, windows)
		for m.Fit(many) < len(many) {
			m.memory += 1 << 10
		}
		m = model(Options{Threads: 2, Memory: m.memory})
		if w := m.windows(many); w.Most >= int64(len(slices.Concat(many...))) {
			t.Fatalf("all of %d tokens at a time", w.Most)
		}
		for i, got := range scoreAll(t, m, many) {
			same(t, got, want[i%len(windows)])
		}
	})
	t.Run("alone", func(t *testing.T) {
		m := model(Options{})
		for i, w := range windows {
			same(t, scoreAll(t, m, [][]int32{w})[0], want[i])
		}
	})
	t.Run("prefix", func(t *testing.T) { // nothing looks ahead
		m := model(Options{})
		got := scoreAll(t, m, [][]int32{windows[1][:65]})[0]
		same(t, got, want[1][:65*d.Vocab])
	})
}

// Wider storage of the same numbers gives the same logits.
func TestDTypes(t *testing.T) {
	d, src := readTensors(t, familyDir("qwen2-tied"))
	windows := someWindows(t)[:1]
	logits := func(src tensor.Source) []float32 {
		t.Helper()
		m, err := New(d, src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return scoreAll(t, m, windows)[0]
	}
	want := logits(src)
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F64} {
		t.Run(dtype.String(), func(t *testing.T) {
			wide := &memory{data: make(map[string][]byte)}
			for _, info := range src.infos {
				x := make([]float32, len(src.data[info.Name])/2)
				kernel.BF16ToF32(x, src.data[info.Name])
				var b []byte
				for _, v := range x {
					if dtype == tensor.F32 {
						b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
					} else {
						b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
					}
				}
				info.DType, info.Size = dtype, int64(len(b))
				wide.infos, wide.data[info.Name] = append(wide.infos, info), b
			}
			if !slices.Equal(logits(wide), want) {
				t.Error("logits differ from those of BF16")
			}
		})
	}
}

// The residual stream of the last layer, normalised, is what the head gets.
func TestLayers(t *testing.T) {
	d, src := readCheckpoint(t, familyDir("llama-bias"))
	windows := someWindows(t)
	m, err := New(d, src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var layers []int
	var last []float32
	if err := m.Layers(t.Context(), windows, func(layer int, hidden []float32) error {
		layers = append(layers, layer)
		last = append(last[:0], hidden...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, layers); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if err := m.Norm(last); err != nil {
		t.Fatal(err)
	}
	hidden, err := m.Hidden(t.Context(), windows)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(last, hidden) {
		t.Error("Layers and Hidden differ")
	}
	logits := make([]float32, len(hidden)/d.Hidden*d.Vocab)
	if err := m.Logits(t.Context(), logits, hidden); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits, slices.Concat(scoreAll(t, m, windows)...)) {
		t.Error("Logits and Score differ")
	}
	if err := m.Logits(t.Context(), logits[1:], hidden); err == nil {
		t.Error("Logits took a short destination")
	}
}

func TestNewErrors(t *testing.T) {
	const up = "model.layers.1.mlp.up_proj.weight"
	for _, c := range []struct {
		name   string
		change func(*arch.Decoder, *memory)
		want   error
		text   string
	}{
		{"missing tensor", func(d *arch.Decoder, m *memory) { mlpOf(d, 1).Up.Weight.Tensor = "nothing" }, tensor.ErrCorrupt, `layer 1: mlp.up: the checkpoint has no tensor "nothing"`},
		{"shape", func(d *arch.Decoder, m *memory) { m.info(t, up).Shape = tensor.Shape{64, 160} }, tensor.ErrCorrupt, up + " has shape [64 160], not [160 64]"},
		{"size", func(d *arch.Decoder, m *memory) { m.info(t, up).Size-- }, tensor.ErrCorrupt, up},
		{"element type", func(d *arch.Decoder, m *memory) { m.info(t, up).DType = tensor.I16 }, tensor.ErrUnsupported, up + ": I16"},
		{"slot", func(d *arch.Decoder, m *memory) { mlpOf(d, 1).Up.Weight.Rows = 7 }, tensor.ErrCorrupt, "the description says 7 x 64"},
		{"heads", func(d *arch.Decoder, m *memory) { attentionOf(d, 0).KVHeads = 3 }, tensor.ErrCorrupt, "3 key heads"},
		{"absurd heads", func(d *arch.Decoder, m *memory) { attentionOf(d, 0).HeadDim = math.MaxInt }, tensor.ErrCorrupt, "heads of"},
		{"norm", func(d *arch.Decoder, m *memory) { d.FinalNorm.Gamma.Rows = 8 }, tensor.ErrCorrupt, "final norm"},
		{"no layers", func(d *arch.Decoder, m *memory) { d.Layers = nil }, tensor.ErrCorrupt, "0 layers"},
		{"rotary frequencies", func(d *arch.Decoder, m *memory) { d.Ropes[0].InvFreq = d.Ropes[0].InvFreq[1:] }, tensor.ErrCorrupt, "rotary"},
		{"rotary value", func(d *arch.Decoder, m *memory) { d.Ropes[0].InvFreq[1] = math.NaN() }, tensor.ErrCorrupt, "rotary frequency 1 is NaN"},
		{"rotary width", func(d *arch.Decoder, m *memory) { d.Ropes[0].Dim, d.Ropes[0].InvFreq = 128, make([]float64, 64) }, tensor.ErrCorrupt, "rotation of 128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, src := readTensors(t, familyDir("llama"))
			c.change(d, src)
			m, err := New(d, src, Options{})
			if m != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want one with %q", err, c.text)
			}
		})
	}
}

func TestScoreErrors(t *testing.T) {
	const up = "model.layers.1.mlp.up_proj.weight"
	d, src := readTensors(t, familyDir("qwen2-untied"))
	set := func(name string, element int, bits uint16) func(*memory) {
		return func(m *memory) { binary.LittleEndian.PutUint16(m.data[name][2*element:], bits) }
	}
	ids := []int32{1, 2, 3}
	for _, c := range []struct {
		name    string
		change  func(*memory)
		windows [][]int32
		want    error
		text    string
	}{
		{"nan", set(up, 64*3+5, 0x7fc0), [][]int32{ids}, tensor.ErrCorrupt, up + ": element [3 5] is NaN"},
		{"infinity", set(up, 0, 0xff80), [][]int32{ids}, tensor.ErrCorrupt, up + ": element [0 0] is -Inf"},
		{"nan in the table", set("model.embed_tokens.weight", 2*64, 0x7fc0), [][]int32{ids}, tensor.ErrCorrupt, "embed_tokens"},
		{"nan in a norm", set("model.norm.weight", 7, 0x7fc0), [][]int32{ids}, tensor.ErrCorrupt, "model.norm.weight: element [0 7]"},
		{"nan in a bias", set("model.layers.0.self_attn.q_proj.bias", 1, 0x7fc0), [][]int32{ids}, tensor.ErrCorrupt, "q_proj.bias"},
		{"nan in the head", set("lm_head.weight", 64, 0x7fc0), [][]int32{ids}, tensor.ErrCorrupt, "lm_head.weight: element [1 0]"},
		{"truncated", func(m *memory) { m.data[up] = m.data[up][:100] }, [][]int32{ids}, tensor.ErrCorrupt, up + ": 100 bytes instead of 20480"},
		{"gone", func(m *memory) { delete(m.data, up) }, [][]int32{ids}, nil, up},
		{"token", nil, [][]int32{ids, {5, 320}}, nil, "window 1: token 320 is not in a vocabulary of 320"},
		{"negative token", nil, [][]int32{{-1}}, nil, "token -1"},
		{"too long", nil, [][]int32{make([]int32, 513)}, tensor.ErrUnsupported, "513 tokens, the longest context of the checkpoint is 512"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := src.clone()
			if c.change != nil {
				c.change(src)
			}
			m, err := New(d, src, Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			err = m.Score(t.Context(), c.windows, func(Tile) error { return nil })
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want one with %q", err, c.text)
			}
		})
	}
}

func TestStops(t *testing.T) {
	d, src := readCheckpoint(t, familyDir("qwen2-untied"))
	m, err := New(d, src, Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	windows := someWindows(t)
	stop := errors.New("enough")
	calls := 0
	if err := m.Score(t.Context(), windows, func(Tile) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("Score: %d calls, %v", calls, err)
	}
	calls = 0
	if err := m.Layers(t.Context(), windows, func(int, []float32) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("Layers: %d calls, %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = m.Layers(ctx, windows, func(int, []float32) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := m.Score(t.Context(), nil, func(Tile) error { return stop }); err != nil {
		t.Errorf("no windows: %v", err)
	}
	if err := m.Score(t.Context(), [][]int32{{}, {}}, func(Tile) error { return stop }); err != nil {
		t.Errorf("empty windows: %v", err)
	}

	small, err := New(d, src, Options{Threads: 1, Memory: 1000})
	if err != nil {
		t.Fatal(err)
	}
	const text = "24 tokens need more than the memory limit of 1000 bytes"
	if err := small.Score(t.Context(), windows, func(Tile) error { return nil }); err == nil || !strings.Contains(err.Error(), "window 0: ") ||
		!strings.Contains(err.Error(), text) {
		t.Errorf("Score in 1000 bytes: %v", err)
	}
	if _, err := small.Hidden(t.Context(), windows[:1]); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("Hidden in 1000 bytes: %v", err)
	}
}
