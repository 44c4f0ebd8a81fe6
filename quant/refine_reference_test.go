package quant

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// plainSweeps is refinement.run for one row and one code after the other, in the orders of sums that it promises.
func plainSweeps(r *refinement) {
	m, n, full := r.rows, r.cols, min(r.block, descentPanel)
	errors := slices.Clone(r.pulled)
	kernel.MatMul(r.pulled, r.outputs, errors, m, n, m, n, m, n)
	for range r.sweeps {
		moved := false
		for lo := 0; lo < n; lo += full {
			if plainPanel(r, lo, min(full, n-lo)) {
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

func plainPanel(r *refinement, lo, width int) (any bool) {
	m, n := r.rows, r.cols
	square, gradient, change := make([]float32, width*width), make([]float32, m*width), make([]float32, m*width)
	for i := range width {
		copy(square[i*width:(i+1)*width], r.hessian[(lo+i)*n+lo:])
		square[i*width+i] += r.ridge
	}
	kernel.MatMul(gradient, r.pulled, r.hessian[lo:], m, width, n, width, n, n)
	for i := range m {
		for j := range width {
			gradient[i*width+j] += float32(r.pulled[i*n+lo+j] * r.ridge)
		}
	}
	for from := 0; from < m; from += refinePanel {
		to, turned, some := min(from+refinePanel, m), make([]float32, refinePanel*width), false
		for row := from; row < to; row++ {
			if !plainRow(r, row, lo, width, square, gradient[row*width:(row+1)*width], change[row*width:(row+1)*width]) {
				continue
			}
			some = true
			by := turned[(row-from)*width : (row-from+1)*width]
			kernel.MatMul(by, change[row*width:], square, 1, width, width, width, width, width)
			for i := row + 1; i < to; i++ {
				for j, v := range by {
					gradient[i*width+j] += float32(v * r.outputs[i*m+row])
				}
			}
		}
		if some && to < m {
			product := make([]float32, (m-to)*width)
			kernel.MatMul(product, r.outputs[to*m+from:], turned, m-to, width, to-from, width, m, width)
			for i, v := range product {
				gradient[to*width+i] += v
			}
		}
		any = any || some
	}
	if any {
		product := make([]float32, m*width)
		kernel.MatMul(product, r.outputs, change, m, width, m, width, m, width)
		for i := range m {
			for j := range width {
				r.pulled[i*n+lo+j] += product[i*width+j]
			}
		}
	}
	return any
}

// plainRow moves a row and stores the change of its weights.
func plainRow(r *refinement, row, lo, width int, square, gradient, change []float32) (moved bool) {
	codes, curve, mid := r.dst.Codes[row*r.cols+lo:][:width], r.outputs[row*r.rows+row], float32(int(1)<<(r.spec.Bits-1))
	scale, zero := r.terms(row, lo)
	code, kq := make([]float32, width), make([]float32, width)
	for i, c := range codes {
		code[i] = float32(c) - mid
		change[i] = -(float32(scale*code[i]) + zero)
	}
	s, z := scale, zero
	if width == r.block {
		var f fit
		kernel.MatMul(kq, code, square, 1, width, width, width, width, width)
		for i, c := range code {
			f.gq += float64(float64(c) * float64(gradient[i]))
			f.g1 += float64(gradient[i])
			f.qq += float64(float64(c) * float64(kq[i]))
			f.q1 += float64(float64(c) * float64(r.sums[lo+i]))
		}
		f.gq, f.g1 = f.gq/float64(curve), f.g1/float64(curve)
		if s, z = f.solve(scale, zero, r.total[lo/width], r.spec); s != scale || z != zero {
			moved = true
			for i := range gradient {
				gradient[i] += float32(kq[i] * float32((s-scale)*curve))
				gradient[i] += float32(r.sums[lo+i] * float32((z-zero)*curve))
			}
		}
	}
	grid, inverse := signed(r.spec.Bits), 1/s
	for i, q := range code {
		slope, bend := gradient[i], curve*square[i*width+i]
		best := grid.nearest(q - float32(slope/bend*inverse))
		d := float32(s * (best - q))
		if cost := float64(d) * (2*float64(slope) + float64(float64(d)*float64(bend))); best == q || !(cost < 0) {
			continue
		}
		code[i], moved = best, true
		for j := i + 1; j < width; j++ {
			gradient[j] += float32(square[i*width+j] * float32(d*curve))
		}
	}
	if !moved {
		clear(change)
		return false
	}
	at := row*r.blocks + lo/r.block
	if r.dst.Scale[at] = s; r.dst.Zero != nil {
		r.dst.Zero[at] = z
	}
	for i, q := range code {
		codes[i] = uint8(q + mid)
		change[i] += float32(s*q) + z
	}
	return true
}

// plainChoice is refinement.chooseOnce for one row, one column and one grid after the other.
func plainChoice(r *refinement) {
	m, n, width := r.rows, r.cols, r.width
	errors, grid, mid := make([]float32, m*n), signed(r.spec.Bits), float32(int(1)<<(r.spec.Bits-1))
	factor := r.feedback.factor
	for end := n; end > 0; end -= width {
		first := max(0, end-width)
		width := end - first
		missed := make([]float32, m*width)
		for hi := m; hi > 0; hi -= chooseRows {
			lo := max(0, hi-chooseRows)
			aims, value := make([]float32, (hi-lo)*width), make([]float32, (hi-lo)*width)
			for i := range hi - lo {
				for j := range width {
					aims[i*width+j] = r.target[r.rowOrder[lo+i]*n+r.order[first+j]]
				}
			}
			for to := m; to > hi; to -= chooseRows {
				kernel.MatMul(value, r.mix[lo*m+to-chooseRows:], missed[(to-chooseRows)*width:], hi-lo, width, chooseRows, width, m, width)
				kernel.Add(aims, aims, value)
			}
			drawn := make([]float32, (hi-lo)*width)
			if end < n {
				kernel.MatMul(drawn, errors[lo*n+end:], factor[end*n+first:], hi-lo, width, n-end, width, n, n)
			}
			difference(value, aims, drawn)
			for i := hi - 1; i >= lo && r.choosesGrids(); i-- {
				plainGrid(r, r.rowOrder[i], first, width, value[(i-lo)*width:(i-lo+1)*width])
			}
			for i := hi - 1; i >= lo; i-- {
				aim, row := aims[(i-lo)*width:(i-lo+1)*width], r.rowOrder[i]
				for j := i + 1; j < hi; j++ {
					kernel.AddScaled(aim, missed[j*width:(j+1)*width], r.mix[i*m+j])
				}
				value := value[:width]
				difference(value, aim, drawn[(i-lo)*width:])
				scale, zero := r.terms(row, r.order[first]/r.block*r.block)
				inverse := 1 / scale
				for j := width - 1; j >= 0; j-- {
					q := grid.nearest(float32((value[j] - zero) * inverse))
					hat := float32(scale*q) + zero
					err := (value[j] - hat) / factor[(first+j)*n+first+j]
					r.dst.Codes[row*n+r.order[first+j]], missed[i*width+j], errors[i*n+first+j] = uint8(q+mid), hat-aim[j], err
					kernel.AddScaled(value[:j], factor[(first+j)*n+first:][:j], -err)
				}
			}
		}
	}
}

// plainGrid chooses the grid of a row and a block.
func plainGrid(r *refinement, row, first, width int, value []float32) {
	scale, zero, at := make([]float32, 1), make([]float32, 1), row*r.blocks+r.order[first]/r.block
	searchGrids(scale, zero, value, r.importance[first:first+width], r.spec, r.candidates)
	if !r.spec.stores(scale[0]) || !isFinite(zero[0]) {
		return
	}
	left := func(scale, zero float32) (sum float64) {
		grid, inverse, trial := signed(r.spec.Bits), 1/scale, slices.Clone(value)
		for j := width - 1; j >= 0; j-- {
			row := r.feedback.factor[(first+j)*r.cols+first:][:j+1]
			err := (trial[j] - (float32(scale*grid.nearest(float32((trial[j]-zero)*inverse))) + zero)) / row[j]
			sum += float64(float64(err) * float64(err))
			kernel.AddScaled(trial[:j], row[:j], -err)
		}
		return sum
	}
	round := func(v float32) float32 {
		if r.spec.Scale == tensor.F16 {
			return kernel.RoundF16(v)
		}
		return v
	}
	s, z := scale[0], zero[0]
	least := left(s, z)
	try := func(scale, zero float32) {
		if r.spec.stores(scale) && isFinite(zero) && left(scale, zero) < least {
			least, s, z = left(scale, zero), scale, zero
		}
	}
	steps := []float32{1, -1, 2, -2, 3, -3}
	for _, step := range steps {
		try(round(scale[0]+float32(scale[0]*float32(step*scaleStep))), zero[0])
	}
	chosen := s
	for _, step := range steps {
		if !r.spec.Symmetric {
			try(chosen, round(zero[0]+float32(chosen*float32(step*zeroStep))))
		}
	}
	if r.dst.Scale[at] = s; r.dst.Zero != nil {
		r.dst.Zero[at] = z
	}
}

// Choices have the codes and the grids of those that try one after the other, for any number of threads.
func TestChoicesArePlain(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	for _, s := range []Spec{{4, 64, false, tensor.F16}, {2, 32, false, tensor.F16}, {8, 128, true, tensor.F32}, {3, WholeRow, false, tensor.F16}} {
		list := []int{1, 8, 31, 41, 100}
		if testing.Short() {
			list = list[3:]
		}
		for _, rows := range list {
			cols := 256
			if s.Block == WholeRow {
				cols = descentPanel + 40
			}
			in, w := statsOf(cols, 512), gaussian(rows, cols, r.Uint64())
			outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 4*rows, r.Uint64())}
			chosen := func(threads int, choose func(r *refinement)) Blocks {
				r, first := refinementOf(t, s, w, in, outputs, threads)
				r.restore(first)
				choose(r)
				return r.dst
			}
			want := chosen(1, plainChoice)
			for _, threads := range []int{1, 7} {
				if got := chosen(threads, func(r *refinement) { r.chooseOnce() }); !sameBlocks(got, want) {
					t.Errorf("%v, %d rows, %d threads: other codes or grids", s, rows, threads)
				}
			}
		}
	}
}

// Sweeps have the codes, the grids and the errors of those that do one thing after the other, for any number of threads.
func TestSweepsArePlain(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	for _, s := range []Spec{{4, 64, false, tensor.F16}, {2, 32, false, tensor.F16}, {8, 128, true, tensor.F32}, {3, WholeRow, false, tensor.F16}} {
		list := []int{1, 31, 33, 70, 200, 300}
		if testing.Short() {
			list = list[4:]
		}
		for _, rows := range list {
			cols := 2*kernel.Segment + 128
			switch s.Block {
			case WholeRow:
				cols = descentPanel + 40
			case 32:
				cols = 192
			}
			in, w := statsOf(cols, 256), gaussian(rows, cols, r.Uint64())
			outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 2*rows, r.Uint64())}
			q := NewGPTQ()
			q.Candidates, q.Outputs = 4, 0.01
			e, err := q.Prepare(s, cols, in, 1)
			if err != nil {
				t.Fatal(err)
			}
			first := encodeWith(t, q, w, s, in)
			for i := range first.Codes { // some are far from where they will be, and some rows hardly move
				if i/cols%3 > 0 && r.IntN(20) == 0 {
					first.Codes[i] = uint8(r.IntN(1 << s.Bits))
				}
			}
			refined := func(threads int, run func(r *refinement)) *refinement {
				r, err := e.(*feedback).refinement(cloneBlocks(first), w, outputs, threads)
				if err != nil {
					t.Fatal(err)
				}
				r.mistake()
				run(r)
				return r
			}
			want := refined(1, plainSweeps)
			if sameBlocks(want.dst, first) {
				t.Errorf("%v, %d rows: nothing moves", s, rows)
			}
			for _, threads := range []int{1, 2, 5} {
				if got := refined(threads, (*refinement).run); !sameBlocks(got.dst, want.dst) || !slices.Equal(got.pulled, want.pulled) {
					t.Errorf("%v, %d rows, %d threads: other codes, grids or errors", s, rows, threads)
				}
			}
		}
	}
}
