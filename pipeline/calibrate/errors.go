package calibrate

import (
	"fmt"
	"math/rand/v2"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// encoders are those of several specs for one input. They take over from each other what they have in common.
type encoders struct {
	quantizer quant.Quantizer
	threads   int
	tally     *effort.Tally // or nil
	stats     *quant.Stats
	of        map[quant.Spec]quant.Encoder
	like      quant.Encoder
}

// similar is implemented by quantizers whose encoders for the same statistics have something in common.
type similar interface {
	PrepareLike(like quant.Encoder, s quant.Spec, cols int, in *quant.Stats, threads int) (quant.Encoder, error)
}

// coder returns a coder of one thread for a spec.
func (e *encoders) coder(s quant.Spec, cols int) (*coder, error) {
	c := &coder{quantizer: e.quantizer, threads: 1, tally: e.tally}
	if s.Bits == 16 {
		return c, nil
	}
	x := e.of[s]
	if x == nil {
		var err error
		if q, ok := e.quantizer.(similar); ok {
			x, err = q.PrepareLike(e.like, s, cols, e.stats, e.threads)
		} else {
			x, err = e.quantizer.Prepare(s, cols, e.stats, e.threads)
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", s, err)
		}
		if e.like == nil {
			e.tally.AddWork(estimate.Prepare(e.quantizer, cols, false))
		}
		e.of[s], e.like = x, x
	}
	c.spec, c.cols, c.stats, c.last = s, cols, e.stats, x
	return c, nil
}

// errors encodes w in several ways and returns what sum makes of the errors dW H dWᵀ of the rows. A sample is small, so specs are
// processed in parallel, each by one thread, or several at a time by a device.
func (e *encoders) errors(w quant.Matrix, specs []quant.Spec, sum func(rows []float64) float64) ([]float64, error) {
	coders := make([]*coder, len(specs))
	for i, s := range specs {
		var err error
		if coders[i], err = e.coder(s, w.Cols); err != nil {
			return nil, err
		}
	}
	list, failed := make([]float64, len(specs)), make([]error, len(specs))
	if kernel.HasDevice() {
		for step, from := max(1, slabBytes/4/len(w.Data)), 0; from < len(specs); from += step {
			to := min(from+step, len(specs))
			rows := e.together(w, coders[from:to], specs[from:to], failed[from:to])
			for i := range to - from {
				list[from+i] = sum(rows[i*w.Rows : (i+1)*w.Rows])
			}
		}
		return list, firstOf(specs, failed)
	}
	kernel.Parallel(e.threads, len(specs), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			_, hat, err := coders[i].encode(w, specs[i], e.stats)
			if failed[i] = err; err == nil {
				e.tally.AddWork(estimate.OutputError(w.Rows, w.Cols).Times(.5))
				list[i] = sum(forms(w.Data, hat, w.Rows, w.Cols, e.stats, 1))
			}
		}
	})
	return list, firstOf(specs, failed)
}

// firstOf returns the first error.
func firstOf(specs []quant.Spec, failed []error) error {
	for i, err := range failed {
		if err != nil {
			return fmt.Errorf("%v: %w", specs[i], err)
		}
	}
	return nil
}

// together returns the errors dW H dWᵀ of the rows of w in all specs, spec by spec: what a device does of that, it does for all of them. Where
// a spec has failed, they mean nothing.
func (e *encoders) together(w quant.Matrix, coders []*coder, specs []quant.Spec, failed []error) []float64 {
	var list []quant.Encoder
	var blocks []quant.Blocks
	var of []int // specs
	size := len(w.Data)
	hats := kernel.Scratch(len(specs) * size)
	for i, c := range coders {
		if c.last == nil {
			var hat []float32
			_, hat, failed[i] = c.encode(w, specs[i], e.stats)
			copy(hats[i*size:], hat)
			continue
		}
		l, err := specs[i].Layout(w.Rows, w.Cols)
		if failed[i] = err; err == nil {
			list, blocks, of = append(list, c.last), append(blocks, quant.NewBlocks(l, specs[i])), append(of, i)
		}
	}
	for k, err := range quant.EncodeEach(list, blocks, w, e.threads) {
		failed[of[k]] = err
		e.tally.AddWork(estimate.Encode(e.quantizer, w.Rows, w.Cols, crossed(e.stats)))
	}
	kernel.Parallel(e.threads, len(of), func(k, end int) {
		for ; k < end; k++ {
			if i := of[k]; failed[i] == nil {
				blocks[k].Dequantize(hats[i*size:(i+1)*size], specs[i])
			}
		}
	})
	kernel.Parallel(e.threads, len(specs), func(i, end int) {
		for ; i < end; i++ {
			subtracted(hats[i*size:], w.Data, hats[i*size:], 0, size)
		}
	})
	e.tally.AddWork(estimate.OutputError(len(specs)*w.Rows, w.Cols).Times(.5))
	return forms(hats, nil, len(specs)*w.Rows, w.Cols, e.stats, e.threads)
}

// Rows of a sample: a sixteenth of a matrix within bounds. The rows are the same for all options, so that ratios of errors vary
// much less than errors. Experts are many, and their divergences are summed over classes.
const (
	leastSample, mostSample = 32, 64
	expertSample            = 8
)

// sample is the number of rows whose options are compared.
func (x *op) sample() int {
	n := max(leastSample, min(x.rows/16, mostSample))
	if x.expert {
		n = expertSample
	}
	return min(n, x.rows)
}

// sampled are these rows: one in each of as many runs of rows, at a place that is drawn, because rows at equal distances would
// have the same place in their attention heads.
func (x *op) sampled() []int {
	n := x.sample()
	random := rand.New(rand.NewPCG(uint64(x.rows), uint64(n)))
	list := make([]int, n)
	for i := range list {
		from, to := i*x.rows/n, (i+1)*x.rows/n
		list[i] = from + int(random.IntN(to-from))
	}
	return list
}

// rowsOf returns rows of the weights of a linear layer.
func rowsOf(l *forward.Linear, rows []int) (quant.Matrix, error) {
	m := quant.Matrix{Rows: len(rows), Cols: l.Cols, Data: make([]float32, len(rows)*l.Cols)}
	for i, r := range rows {
		if err := l.ReadRows(m.Row(i), r); err != nil {
			return m, err
		}
	}
	return m, nil
}
