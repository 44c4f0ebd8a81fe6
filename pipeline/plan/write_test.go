package plan

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var policy = &quant.Policy{
	Default: quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16},
	Table:   quant.Spec{Bits: 8, Block: 64, Scale: tensor.F16},
}

// smallModel has biases, a table of its own, and matrices of several chunks: 2.3 million weights.
func smallModel(t testing.TB) (*Part, *generated) {
	t.Helper()
	p, src := smallPlan(t)
	return p.Parts[0], src
}

func smallPlan(t testing.TB) (*Plan, *generated) {
	t.Helper()
	m, src := published(t, "Qwen2.5-0.5B-Instruct", map[string]any{
		"hidden_size": 256, "intermediate_size": 1280, "num_hidden_layers": 1, "num_attention_heads": 4,
		"num_key_value_heads": 2, "vocab_size": 1999, "tie_word_embeddings": false, "max_window_layers": 1, "layer_types": []string{"full_attention"},
	})
	p, err := New(m, src.Tensors(), policy)
	if err != nil {
		t.Fatal(err)
	}
	return p, src
}

// written runs Write and checks what must hold for each: the digest is that of the bytes, items are reported
// in order with the digests of their spans.
func written(t testing.TB, p *Part, src tensor.Source, o WriteOptions) []byte {
	t.Helper()
	o.Quantizer = quant.RTN{}
	var dst bytes.Buffer
	next, progress := o.From, int64(0)
	base := p.offset(o.From)
	o.Done = func(item int, sum string) error {
		if item != next {
			t.Errorf("item %d was done when %d was due", item, next)
		}
		next++
		it := &p.Items[item]
		if int64(dst.Len()) != it.Offset+it.Size()-base {
			t.Errorf("item %d was done at %d bytes", item, dst.Len())
			return nil
		}
		if got := sumOf(dst.Bytes()[it.Offset-base:]); got != sum {
			t.Errorf("item %d: digest %s of bytes of digest %s", item, sum, got)
		}
		return nil
	}
	o.Progress = func(done int64) {
		if done < progress || done != base+int64(dst.Len()) {
			t.Errorf("progress %d after %d with %d bytes written", done, progress, dst.Len())
		}
		progress = done
	}
	sum, err := p.Write(t.Context(), &dst, src, o)
	if err != nil {
		t.Fatal(err)
	}
	if next != len(p.Items) || progress != p.Bytes || int64(dst.Len()) != p.Bytes-base {
		t.Errorf("%d of %d items, %d of %d bytes", next, len(p.Items), progress, p.Bytes)
	}
	if o.File == nil && sum != sumOf(dst.Bytes()) {
		t.Errorf("digest %s of bytes of digest %s", sum, sumOf(dst.Bytes()))
	}
	if o.File != nil && sum != hex.EncodeToString(o.File.Sum(nil)) {
		t.Errorf("digest %s is not that of the hash", sum)
	}
	return dst.Bytes()
}

func sumOf(b []byte) string {
	return digest.Of(b).Hex()
}

func TestWriteIsTheSameForEveryThreadCountAndLimit(t *testing.T) {
	p, src := smallModel(t)
	want := written(t, p, src, WriteOptions{Threads: 1, Memory: 1})
	for _, o := range []WriteOptions{{Threads: 2, Memory: 1}, {Threads: 7, Memory: 9 << 20}, {Threads: 1, Memory: 1 << 30}, {Threads: 7, Memory: 1 << 30}, {}} {
		if got := written(t, p, src, o); !bytes.Equal(got, want) {
			t.Errorf("%d threads, limit %d: other bytes", o.Threads, o.Memory)
		}
	}
}

func TestResume(t *testing.T) {
	p, src := smallModel(t)
	whole := written(t, p, src, WriteOptions{Threads: 2, Memory: 1 << 26})
	for from := 0; from <= len(p.Items); from += 1 + from/3 {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			at := p.offset(from)
			h := digest.New()
			h.Write(whole[:at])
			rest := written(t, p, src, WriteOptions{Threads: 2, Memory: 1 << 26, From: from, File: h})
			if !bytes.Equal(rest, whole[at:]) {
				t.Error("other bytes")
			}
			if got := h.Hex(); got != sumOf(whole) {
				t.Errorf("digest %s, want %s", got, sumOf(whole))
			}
		})
	}
}

// memory is a weight file in memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off+n > int64(len(m)) {
		return nil, tensor.ErrCorrupt
	}
	return m[off : off+n], nil
}

// What is written is read back through the linked graph, by the reader of packages, and lies within the bound
// of the storage form.
func TestWrittenFileReadsBack(t *testing.T) {
	for _, body := range []string{"w4-b64-asym", "w3-b32-sym", "w8-brow-asym-s32", "f16"} {
		t.Run(body, func(t *testing.T) {
			small, src := smallPlan(t)
			s := spec(t, body)
			table := s
			if s.Bits == 3 {
				table.Bits = 4
			}
			pl, err := New(small.Model, src.Tensors(), &quant.Policy{Default: s, Table: table})
			if err != nil {
				t.Fatal(err)
			}
			p := pl.Parts[0]
			file := memory(written(t, p, src, WriteOptions{Threads: 2, Memory: 1 << 26}))
			g := p.Link()
			if _, err := g.Marshal(); err != nil {
				t.Fatal(err)
			}
			for i := range p.Items {
				it := &p.Items[i]
				want := source(t, src, it.Slot.Weight.Tensor)
				switch it.Slot.Kind {
				case lower.NormSlot:
					at := g.Ops[it.Slot.Op].Param.(*mnn.LayerNorm).External
					got := mnn.Floats(file[at[0] : at[0]+at[1]])
					for k := range want {
						if got[k] != want[k] {
							t.Fatalf("%s: [%d] is %g, want %g", it.Slot.Name, k, got[k], want[k])
						}
					}
				case lower.LinearSlot:
					c := g.Ops[it.Slot.Op].Param.(*mnn.Convolution)
					w, err := c.Open(file)
					if err != nil {
						t.Fatal(err)
					}
					checkMatrix(t, it, w, want)
					if it.Slot.Bias.Tensor == "" {
						continue
					}
					for k, v := range source(t, src, it.Slot.Bias.Tensor) {
						if w.Bias[k] != v {
							t.Fatalf("%s: bias %d is %g, want %g", it.Slot.Name, k, w.Bias[k], v)
						}
					}
				case lower.TableSlot:
					// The engine reads rows of the table through the lookup, which has no header.
					l := pl.Lookup()
					if l.WeightOffset != it.Offset || l.AlphaOffset+l.AlphaSize != it.Offset+it.Size() || it.Header != 0 {
						t.Errorf("lookup %+v of %+v", l, it)
					}
				}
			}
		})
	}
}

func checkMatrix(t *testing.T, it *Item, m *mnn.Matrix, want []float32) {
	t.Helper()
	got := make([]float32, len(want))
	m.Rows32(got, make([]uint8, len(want)), 0, m.Rows)
	for k, v := range want {
		bound := max(0x1p-11*math.Abs(float64(v)), 0x1p-25) // halves, the smallest 2^-24 apart
		if m.Blocks > 0 {
			b := k / (m.Cols / m.Blocks)
			zero := float32(0)
			if !m.Symmetric {
				zero = m.Zero[b]
			}
			bound = it.Choice.Spec.Bound(m.Scale[b], zero) + 0x1p-22*math.Abs(float64(v)) // float32 of the reader
		}
		if d := math.Abs(float64(got[k] - v)); !(d <= bound) {
			t.Fatalf("%s: weight %d is %g, want %g within %g", it.Slot.Name, k, got[k], v, bound)
		}
	}
}

func source(t *testing.T, src tensor.Source, name string) []float32 {
	t.Helper()
	r, err := src.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(b)/2)
	kernel.BF16ToF32(v, b)
	return v
}

// failing is a destination that takes so many bytes and then calls fail.
type failing struct {
	room int
	fail func() error
}

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.room {
		if err := f.fail(); err != nil {
			return f.room, err
		}
	}
	f.room -= min(f.room, len(b))
	return len(b), nil
}

var errDiskFull = errors.New("no space left on device")

// set stores a BF16 value as element n of a tensor.
func set(name string, n int64, bits uint16) func(string, int64, []byte) {
	return func(of string, off int64, b []byte) {
		if at := 2*n - off; of == name && at >= 0 && at+2 <= int64(len(b)) {
			binary.LittleEndian.PutUint16(b[at:], bits)
		}
	}
}

func TestWriteFails(t *testing.T) {
	const up, norm, bias, table = "model.layers.0.mlp.up_proj.weight", "model.norm.weight", "model.layers.0.self_attn.k_proj.bias", "model.embed_tokens.weight"
	halves := &quant.Policy{Default: quant.Half, Table: quant.Half}
	for _, c := range []struct {
		name   string
		room   int // of the destination, or 0
		policy *quant.Policy
		damage func(string, int64, []byte)
		short  string
		cancel bool
		done   error
		want   error
		text   string
	}{
		{name: "disk full at once", room: 1, want: errDiskFull},
		{name: "disk full later", room: 1 << 19, want: errDiskFull},
		{name: "cancelled", cancel: true, room: 1 << 19, want: context.Canceled},
		{name: "recording fails", done: errDiskFull, want: errDiskFull},
		{name: "NaN", damage: set(up, 1279*256+3, 0x7fc0), want: tensor.ErrCorrupt, text: up + ": rows 1216 to 1279: row 63: weight is NaN"},
		{name: "infinity", damage: set(table, 5, 0xff80), want: tensor.ErrCorrupt, text: table},
		{name: "NaN in a norm", damage: set(norm, 255, 0x7fc0), want: tensor.ErrCorrupt, text: norm},
		{name: "NaN in a bias", damage: set(bias, 1, 0x7fc0), want: tensor.ErrCorrupt, text: bias},
		{name: "NaN in halves", policy: halves, damage: set(up, 7, 0x7fc0), want: tensor.ErrCorrupt, text: up},
		{name: "too large for halves", policy: halves, damage: set(up, 7, 0x4800), want: tensor.ErrUnsupported, text: up + ": rows 0 to 63: weight 131072 exceeds"},
		{name: "too large for scales", damage: set(up, 7, 0x4d00), want: tensor.ErrUnsupported, text: up},
		{name: "short source", short: up, want: tensor.ErrCorrupt, text: up + ": row 1024: file ends early"},
		{name: "short norm", short: norm, want: tensor.ErrCorrupt, text: norm},
		{name: "short bias", short: bias, want: tensor.ErrCorrupt, text: bias + ": file ends early"},
	} {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", c.name, threads), func(t *testing.T) {
				before := runtime.NumGoroutine()
				pl, src := smallPlan(t)
				if c.policy != nil {
					var err error
					if pl, err = New(pl.Model, src.Tensors(), c.policy); err != nil {
						t.Fatal(err)
					}
				}
				p := pl.Parts[0]
				src.damage, src.short = c.damage, c.short
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var dst io.Writer = io.Discard
				if c.room > 0 {
					dst = &failing{c.room, func() error {
						if c.cancel {
							cancel()
							return nil
						}
						return errDiskFull
					}}
				}
				sum, err := p.Write(ctx, dst, src, WriteOptions{
					Quantizer: quant.RTN{}, Threads: threads, Memory: 1 << 26,
					Done: func(int, string) error { return c.done },
				})
				if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) || sum != "" {
					t.Errorf("%q, %v", sum, err)
				}
				noLeak(t, before)
			})
		}
	}
}

// noLeak waits for goroutines that are about to end.
func noLeak(t *testing.T, before int) {
	t.Helper()
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestWriteOfACancelledContextWritesNothing(t *testing.T) {
	p, src := smallModel(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	cancel(cause)
	_, err := p.Write(ctx, io.Discard, src, WriteOptions{Quantizer: quant.RTN{}, Threads: 2})
	if !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

// What is encoded ahead gives the same bytes, and nothing is left when it is not wanted.
func TestBegin(t *testing.T) {
	p, src := smallModel(t)
	want := written(t, p, src, WriteOptions{Threads: 1, Memory: 1})
	for _, ahead := range []int64{0, 1, 300_000, p.Bytes, 10 * p.Bytes} {
		before := runtime.NumGoroutine()
		o := WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1, Ahead: ahead}
		w := p.Begin(t.Context(), src, o)
		time.Sleep(10 * time.Millisecond)
		var dst bytes.Buffer
		sum, err := w.Finish(&dst, nil, nil)
		if err != nil || !bytes.Equal(dst.Bytes(), want) || sum != sumOf(want) {
			t.Errorf("%d bytes ahead: digest %s, %v", ahead, sum, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w = p.Begin(ctx, src, o)
		cancel()
		w.Wait()
		noLeak(t, before)
	}
	if n, all := p.chunks(0, p.Bytes), p.chunks(0, 10*p.Bytes); n != all || n < len(p.Items) || p.chunks(0, 0) != 0 || p.chunks(len(p.Items), 9) != 0 {
		t.Errorf("%d and %d chunks of %d items", n, all, len(p.Items))
	}
}

// A plan may be written several times at once.
func TestWriteConcurrently(t *testing.T) {
	p, src := smallModel(t)
	var sums [3]string
	var wg sync.WaitGroup
	for i := range sums {
		wg.Go(func() {
			sums[i], _ = p.Write(t.Context(), io.Discard, src, WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 26})
		})
	}
	wg.Wait()
	if sums[0] == "" || sums[1] != sums[0] || sums[2] != sums[0] {
		t.Errorf("%v", sums)
	}
}

// The bytes are RTN's of BF16 rows on every architecture.
func TestWriteIsTheSameEverywhere(t *testing.T) {
	p, src := smallModel(t)
	const want = "07083797852cf2665b4fe24316d107cb9a989a9ddd1bbcfecd6f2868cc4142de"
	sum, err := p.Write(t.Context(), io.Discard, src, WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 26})
	if err != nil || sum != want {
		t.Errorf("digest %s, %v, want %s", sum, err, want)
	}
}
