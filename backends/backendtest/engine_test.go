package backendtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// engineCase is a graph whose results have the engine's bits.
type engineCase struct {
	name  string
	width int // of an embedding
	calls []int
	mode  backend.Mode
	build func(t *testing.T, b *builder, x int32) int32
	input func(x []float32) // changes what is put in
}

func engineCases() (list []engineCase) {
	for _, r := range []recurrent{
		{mnn.ShortConv, 1, 1, 24, 24, 3, false}, {mnn.ShortConv, 1, 1, 7, 7, 5, false},
		{mnn.GatedDeltaRule, 2, 4, 8, 12, 4, true}, {mnn.GatedDeltaRule, 3, 3, 5, 16, 2, false}, {mnn.GatedDeltaRule, 2, 4, 64, 64, 4, true},
	} {
		for _, calls := range [][]int{{1, 1}, {5}, {24, 1, 1, 1}, {101, 1}} {
			list = append(list, engineCase{fmt.Sprintf("%+v %v", r, calls), r.width(), calls, 0, func(_ *testing.T, b *builder, x int32) int32 {
				return b.recurrence(x, r, random(41, r.channels()*r.k))
			}, r.gate})
		}
	}
	for _, rows := range []int{1, 3, 6, 25} {
		for _, c := range []struct {
			batch, l, h int
			ta, tb      bool
		}{
			{4, 32, 64, false, false}, {3, 37, 20, false, true}, {3, 35, 20, false, true}, {2, 300, 24, false, false}, {2, 512, 16, false, true},
			{2, 37, 1, false, false}, {2, 37, 12, true, false}, {2, 37, 1, true, false}, {3, 35, 1, true, true},
		} {
			list = append(list, engineCase{fmt.Sprintf("product of %d rows %+v", rows, c), c.batch * c.l, []int{rows}, 0, func(_ *testing.T, b *builder, x int32) int32 {
				x = b.reshape(x, -1, int32(c.batch), int32(c.l))
				if c.ta {
					x = b.permute(x, 1, 2, 0)
				} else {
					x = b.permute(x, 1, 0, 2)
				}
				dims := []int32{int32(c.batch), int32(c.l), int32(c.h)}
				if c.tb {
					dims[1], dims[2] = dims[2], dims[1]
				}
				return b.op(mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeX: c.ta, TransposeY: c.tb}, x, b.floats(random(77, c.batch*c.l*c.h), dims...))
			}, nil})
		}
		for _, width := range []int{3, 16, 37} {
			for _, op := range []mnn.ReductionOp{mnn.ReduceSum, mnn.ReduceMean, mnn.ReduceMaximum} {
				for _, dims := range [][]int32{{-1}, {0}, {1}, {0, 2}} {
					list = append(list, engineCase{fmt.Sprintf("%v of [%d 3 %d] over %v", op, rows, width, dims), 3 * width, []int{rows}, 0,
						func(_ *testing.T, b *builder, x int32) int32 {
							return b.op(mnn.OpReduction, &mnn.Reduction{Op: op, Dims: dims, Keep: true, T: mnn.DTFloat}, b.reshape(x, -1, 3, int32(width)))
						}, nil})
				}
			}
		}
		for _, k := range []int32{1, 2, 8} {
			list = append(list, engineCase{fmt.Sprintf("places of the largest %d in %d rows", k, rows), 24, []int{rows}, 0,
				func(_ *testing.T, b *builder, x int32) int32 {
					y := b.ops(2, mnn.OpTopKV2, &mnn.TopK{T: mnn.DTFloat, Sorted: true, Largest: true}, b.reshape(x, -1, 24), b.scalar(k))
					return b.gather(b.floats(iota32(24), 24), y+1, 0)
				}, func(x []float32) {
					for i := range x {
						x[i] = float32(math.Round(float64(3 * x[i]))) // many are equal
					}
				}})
		}
	}
	m := mixture{32, 64, 6, 2}
	for _, s := range []quant.Spec{float32Spec, {Bits: 4, Block: 32, Scale: tensor.F32}, {Bits: 8, Block: 32, Scale: tensor.F32}} {
		for _, calls := range [][]int{{1, 1, 1}, {2, 1}, {40}, {7, 1}} {
			list = append(list, engineCase{fmt.Sprintf("experts %v %v", s, calls), m.hidden, calls, backend.Int8, func(t *testing.T, b *builder, x int32) int32 {
				y, _ := b.mixture(t, x, 0, m, random(61, m.experts*m.hidden), s)
				return y
			}, nil})
		}
	}
	return list
}

// prepare gives the graph, its weights and the input of case i.
func (c *engineCase) prepare(t *testing.T, i int) (g *mnn.Graph, w file, x []float32) {
	t.Helper()
	b := &builder{}
	in := b.input("input_ids")
	b.Ops[0].Param.(*mnn.Input).Dims = []int32{-1, 1, int32(c.width)}
	y := c.build(t, b, in)
	b.Tensors[in], b.Tensors[y], b.Outputs = "input_ids", "logits", []string{"logits"}
	n := 0
	for _, tokens := range c.calls {
		n += tokens
	}
	x = random(uint64(1000+i), n*c.width)
	if c.input != nil {
		c.input(x)
	}
	return &b.Graph, b.file, x
}

func littleEndian(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x+0)) // the sign of a zero is not followed
	}
	return b
}

// TestEngine compares results with checksums of what stock engines gave: testdata/engine-3.6.json (3.6.0 and 3.6.1) and
// engine-3.5.json. With ENGINE_PYTHON, an interpreter with MNN, and ENGINE_VERSION the file is written instead.
func TestEngine(t *testing.T) {
	for _, version := range []string{"3.6", "3.5"} {
		t.Run(version, func(t *testing.T) {
			cases := engineCases()
			path := filepath.Join("testdata", "engine-"+version+".json")
			if python := os.Getenv("ENGINE_PYTHON"); python != "" {
				if os.Getenv("ENGINE_VERSION") != version {
					t.Skip("another version")
				}
				record(t, cases, python, path)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]uint32
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			for i := range cases {
				c := &cases[i]
				g, w, x := c.prepare(t, i)
				for _, be := range all {
					e, err := be.Compile(g, w, backend.Options{Mode: c.mode, RepackLowBits: version == "3.5", Threads: 2})
					if err != nil {
						t.Fatal(c.name, err)
					}
					if got := crc32.ChecksumIEEE(littleEndian(pieces(t, e, e.NewState(), x, c.width, c.calls))); got != want[c.name] {
						t.Errorf("%s: %s differs", be.Name(), c.name)
					}
				}
			}
			if len(want) != len(cases) {
				t.Errorf("%d checksums of %d cases", len(want), len(cases))
			}
		})
	}
}

func record(t *testing.T, cases []engineCase, python, path string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var jobs []map[string]any
	for i := range cases {
		c := &cases[i]
		g, w, x := c.prepare(t, i)
		b, err := g.Marshal()
		if err != nil {
			t.Fatal(c.name, err)
		}
		name := write(fmt.Sprint(i), b)
		write(fmt.Sprint(i, ".weight"), w)
		write(fmt.Sprint(i, ".in"), littleEndian(x))
		jobs = append(jobs, map[string]any{"file": name, "width": c.width, "calls": c.calls, "low": c.mode == backend.Int8})
	}
	b, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python, filepath.Join("testdata", "run.py"), write("jobs.json", b)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sums := map[string]uint32{}
	for i := range cases {
		raw, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".out")))
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, len(raw)/4)
		for k := range v {
			v[k] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:]))
		}
		sums[cases[i].name] = crc32.ChecksumIEEE(littleEndian(v))
	}
	if b, err = json.MarshalIndent(sums, "", "\t"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
