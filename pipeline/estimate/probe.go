package estimate

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Typical are the rates of a core of some years ago. They stand in where the work is too small for a [Probe].
func Typical(threads int) (r effort.Rates) {
	core := effort.Rates{
		effort.Product: 4e10, effort.Scalar: 1e9, effort.Element: 2e8, effort.Trial: 5e8, effort.Memory: 5e9,
		effort.Disk: 3e8,
	}
	for k := range r {
		r[k] = core[k] * float64(max(1, threads))
	}
	r[effort.Memory], r[effort.Disk] = min(r[effort.Memory], 2e10), core[effort.Disk]
	return r
}

const (
	// probeTime is how long each rate is measured; all six take less than half a second.
	probeTime = 40 * time.Millisecond
	// probeTokens and mostWidth are the sides of the products that are timed: those of a model, within bounds.
	probeTokens, leastWidth, mostWidth = 256, 64, 768
	// probeMemory is read in bytes, or memoryOfThread for each thread: more than the caches of the cores hold. The plan of a large model is in
	// memory too.
	probeMemory, memoryOfThread = 32 << 20, 8 << 20
	probeFile                   = 8 << 20
	// waits is the share of the time of products by which every further thread makes them longer, because threads wait for each other between
	// them: jobs on 16 threads of an Intel Xeon took 1.2 times as long, next to those on 2, as the products alone. The share is that of
	// models of waitsWidth or wider. In narrower ones there is less work between two waits: at half the width, 1.4 times instead.
	waits, waitsWidth = 0.015, 512
	// reach is the share of the measured rates that computing reaches in a run, where matrices have many shapes and come from memory. By the
	// rates alone, runs with 2 and 16 threads and models of 256 to 576 columns were estimated at .66 to .97 of the time that they took.
	reach = 0.83
)

// Probe measures the rates of this machine with a number of threads, in half a second at most. width is that of the model's
// activations, because small matrices are multiplied more slowly. The files of a run will lie in dir; if it cannot be written to,
// the rate of disks is a typical one.
func Probe(dir string, threads, width int) effort.Rates {
	debug.FreeOSMemory() // what planning left would be collected while the machine is measured, and take memory together with what it reads
	width = min(max(width, leastWidth), mostWidth)
	p := prober{threads: max(1, threads), width: width, x: make([]float32, probeTokens*width), now: time.Now}
	for i := range p.x {
		p.x[i] = float32(i%29)/29 - .5
	}
	r := effort.Rates{
		effort.Product: reach * p.product() / p.waiting(), effort.Scalar: reach * p.scalar(), effort.Element: reach * p.element(),
		effort.Trial: reach * p.trial(), effort.Memory: p.memory(), effort.Disk: p.disk(dir),
	}
	for k, typical := range Typical(threads) {
		if r[k] <= 0 {
			r[k] = typical
		}
	}
	return r
}

// waiting is by what factor threads that wait for each other make products longer.
func (p *prober) waiting() float64 {
	return 1 + waits*float64(p.threads-1)*max(1, waitsWidth/float64(p.width))
}

// prober measures rates.
type prober struct {
	threads, width int
	x              []float32 // [probeTokens, width]
	now            func() time.Time
}

// rate repeats f, which does a number of units, for probeTime, after a first call that does not count.
func (p *prober) rate(units float64, f func()) float64 {
	f()
	start, n := p.now(), 0.0
	for {
		f()
		n++
		if d := p.now().Sub(start); d >= probeTime {
			return n * units / d.Seconds()
		}
	}
}

func (p *prober) product() float64 {
	const rows = probeTokens // of the matrix
	var w kernel.Packed
	w.Pack(p.x, rows, p.width, p.width)
	dst := make([]float32, probeTokens*rows)
	const step, part = 32, 2 * kernel.PanelRows // tokens and rows of a unit of work: enough units for many threads
	return p.rate(2*probeTokens*rows*float64(p.width), func() {
		kernel.Parallel(p.threads, probeTokens/step*(rows/part), func(lo, hi int) {
			for ; lo < hi; lo++ {
				from, row := lo/(rows/part)*step, lo%(rows/part)*part
				w.MulT(dst[from*rows:], p.x[from*p.width:], step, rows, p.width, row, row+part)
			}
		})
	})
}

func (p *prober) scalar() float64 {
	sums := make([]float32, p.threads*p.width)
	const rounds = 256
	return p.rate(2*rounds*float64(len(sums)), func() {
		kernel.Parallel(p.threads, p.threads, func(lo, hi int) {
			for r := range rounds {
				f, x := p.x[r], p.x[:p.width]
				for k := lo; k < hi; k++ {
					sum := sums[k*p.width : (k+1)*p.width]
					for i, v := range x {
						sum[i] += float32(f * v)
					}
				}
			}
		})
	})
}

func (p *prober) element() float64 {
	rows := make([]float32, len(p.x))
	return p.rate(float64(len(rows)), func() {
		kernel.Parallel(p.threads, probeTokens, func(lo, hi int) {
			copy(rows[lo*p.width:hi*p.width], p.x[lo*p.width:])
			for ; lo < hi; lo++ {
				kernel.Softmax(rows[lo*p.width : (lo+1)*p.width])
			}
		})
	})
}

func (p *prober) trial() float64 {
	s := quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}
	q := quant.NewSearch()
	e, err := q.Prepare(s, p.width/64*64, nil, 1)
	if err != nil {
		return 0
	}
	const rows = 4
	cols := p.width / 64 * 64
	l, err := s.Layout(rows, cols)
	if err != nil {
		return 0
	}
	units := trials(float64(p.threads*rows*cols), q.Candidates)[effort.Trial]
	blocks := make([]quant.Blocks, p.threads)
	for i := range blocks {
		blocks[i] = quant.NewBlocks(l, s)
	}
	return p.rate(units, func() {
		kernel.Parallel(p.threads, p.threads, func(lo, hi int) {
			for ; lo < hi; lo++ {
				// It has been prepared for these columns, so it cannot fail.
				_ = e.Encode(blocks[lo], quant.Matrix{Rows: rows, Cols: cols, Data: p.x[:rows*cols]})
			}
		})
	})
}

// memory times products of a single row, as text is drawn with: they take as long as reading the matrix.
func (p *prober) memory() float64 {
	const step = 4 * kernel.PanelRows
	rows := max(probeMemory, memoryOfThread*p.threads) / 4 / p.width / step * step
	var w kernel.Packed
	w.Resize(rows, p.width)
	kernel.Parallel(p.threads, rows/step, func(lo, hi int) {
		for ; lo < hi; lo++ {
			w.PackRows(p.x, lo*step, step, p.width)
		}
	})
	dst := make([]float32, rows)
	return p.rate(4*float64(rows)*float64(p.width), func() {
		kernel.Parallel(p.threads, rows/step, func(lo, hi int) { w.MulT(dst, p.x, 1, rows, p.width, lo*step, hi*step) })
	})
}

func (p *prober) disk(dir string) float64 {
	b := make([]byte, probeFile)
	for i := range b {
		b[i] = byte(i * i >> 8)
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return 0
	}
	if os.Remove(f.Name()) != nil { // some systems cannot remove an open file
		defer os.Remove(f.Name())
	}
	defer f.Close()
	failed := false
	rate := p.rate(float64(len(b)), func() {
		_, err := f.WriteAt(b, 0)
		failed = failed || err != nil
		_ = digest.Of(b)
	})
	if failed {
		return 0
	}
	return rate
}
