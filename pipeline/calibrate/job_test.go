package calibrate

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// job is a call of Quantize.
type job struct {
	Options
	Scheme
}

// run calls Quantize and fails the test on an error.
func (j job) run(t testing.TB, dir string) *Finished {
	t.Helper()
	j.Dir = dir
	f, err := Quantize(t.Context(), j.Options, j.Scheme)
	check(t, err)
	return f
}

// on is the same job on so many threads with so much memory.
func (j job) on(threads int, memory int64) job {
	j.Threads, j.Memory = threads, memory
	return j
}

const plenty = 1 << 30

// newJob is a job with 4 bits in blocks of 32, the table in 8 bits.
func newJob(t testing.TB, d *arch.Decoder, src tensor.Source, windows [][]int32, methods ...quant.Method) job {
	return job{
		Options{Decoder: d, Source: src, Windows: windows, Skip: 1, Threads: 2, Memory: plenty},
		Scheme{Chain: chainOf(t, methods...), Specs: specs(t, d, quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}, quant.Spec{Bits: 8,
			Scale: tensor.F16}), Sequential: true},
	}
}

// specs chooses a spec for every matrix of a model, with the largest block that its columns allow.
func specs(t testing.TB, d *arch.Decoder, body, table quant.Spec) map[string]quant.Spec {
	t.Helper()
	all, p := map[string]quant.Spec{}, quant.Policy{Default: body, Table: table, AutoBlock: true}
	choose := func(w arch.Weight, role quant.Role) {
		c, err := p.Choose(w.Tensor, role, w.Rows, w.Cols)
		check(t, err)
		all[w.Tensor] = c.Spec
	}
	d.Linears(func(name string, l *arch.Linear) {
		role := quant.Body
		if name == headInput {
			role = quant.Table
		}
		choose(l.Weight, role)
	})
	choose(d.Embedding, quant.Table)
	return all
}

// randomText is text for models that have never seen any.
func randomText(d *arch.Decoder, windows, length int) [][]int32 {
	r := rand.New(rand.NewPCG(1, 1))
	list := make([][]int32, windows)
	for i := range list {
		for range length {
			list[i] = append(list[i], r.Int32N(int32(d.Vocab)))
		}
	}
	return list
}

var ownText = map[string][][]int32{}
var ownTextMutex sync.Mutex

// tinyText is text that the trained model wrote: windows of 64 tokens, the first 12 for calibration and 8 to measure on.
func tinyText(t *testing.T, d *arch.Decoder, src tensor.Source) (text, probe [][]int32) {
	t.Helper()
	ownTextMutex.Lock()
	defer ownTextMutex.Unlock()
	if ownText[tinyDir] == nil {
		w, err := Sample(t.Context(), d, src, Sampling{Windows: 20, Length: 64, First: []int32{8191}, Seed: 1, Threads: 2})
		check(t, err)
		ownText[tinyDir] = w
	}
	return ownText[tinyDir][:12], ownText[tinyDir][12:]
}

// madeUp describes random models of widths that blocks of 64 do not divide.
func madeUp(t *testing.T, hidden, intermediate int, tied bool) (*arch.Decoder, tensor.Source) {
	t.Helper()
	config := fmt.Appendf(nil, `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 16, "hidden_act": "silu",
		"hidden_size": %d, "initializer_range": 0.2, "intermediate_size": %d, "max_position_embeddings": 512, "model_type": "qwen3",
		"num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
		"sliding_window": null, "tie_word_embeddings": %v, "use_sliding_window": false, "vocab_size": 200}`, hidden, intermediate, tied)
	src, err := checkpoint.New(config, 3)
	check(t, err)
	m, err := arch.Describe(config, src.Tensors(), arch.Options{})
	check(t, err)
	return m.Text, src
}

// edited is a source in which some values are others.
func edited(t *testing.T, src tensor.Source, w arch.Weight, edit func(x []float32)) *Overlay {
	t.Helper()
	x := floats(t, src, w)
	edit(x)
	o, ok := src.(*Overlay)
	if !ok {
		o = NewOverlay(src)
	}
	check(t, o.ReplaceValues(w.Tensor, x))
	return o
}

// poisoned is a source in which the first element of a BF16 tensor has other bits.
type poisoned struct {
	tensor.Source
	name string
	bits uint16
}

func (p *poisoned) Open(name string) (*io.SectionReader, error) {
	r, err := p.Source.Open(name)
	if err != nil || name != p.name {
		return r, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	b[0], b[1] = byte(p.bits), byte(p.bits>>8)
	return io.NewSectionReader(strings.NewReader(string(b)), 0, int64(len(b))), nil
}

const (
	bf16NaN   = 0x7fc0
	bf16Large = 0x7e00 // 2^125
)

// content is the digest of every file in a directory.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	check(t, err)
	all := map[string]string{}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check(t, err)
		all[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return all
}

func same(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// noActivations demands that no file of activations is left.
func noActivations(t *testing.T, dir string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	check(t, err)
	if len(list) > 0 {
		t.Errorf("files left: %v", list)
	}
}

// ops lists the matrices of a result by name.
func ops(f *Finished) map[string]Op {
	all := map[string]Op{}
	for _, op := range f.Ops {
		all[op.Tensor] = op
	}
	return all
}

// tally counts what a callback of progress is told, and fails the test where that goes back or beyond the end.
type tally struct {
	t           *testing.T
	done, total int64
	calls       int
}

func (p *tally) add(done, total int64) {
	if p.calls > 0 && done <= p.done || done > total || p.total != 0 && total != p.total {
		p.t.Errorf("progress %d of %d behind %d of %d", done, total, p.done, p.total)
	}
	p.done, p.total = done, total
	p.calls++
}

func (p *tally) end() {
	if p.calls == 0 || p.done != p.total {
		p.t.Errorf("progress ends at %d of %d after %d calls", p.done, p.total, p.calls)
	}
}
