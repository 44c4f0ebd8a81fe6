package quant

import (
	"slices"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Coupled are rows for [Refiner.Refine], whose arguments these are.
type Coupled struct {
	Refiner Refiner
	Dst     Blocks
	W       Matrix
	Outputs *Stats
}

// RefineTogether refines rows that do not depend on each other at the same time: by the device of this process, if that does it, those of
// an encoder all at once, otherwise on threads that they share. It returns what Refine would return for each.
func RefineTogether(list []Coupled, threads int) []error {
	failed, runs := make([]error, len(list)), make([]*refinement, len(list))
	all := 0
	for _, c := range list {
		all += c.W.Rows
	}
	shares := make([]int, len(list)) // of threads: long runs have more
	for i, c := range list {
		shares[i] = max(1, (threads*c.W.Rows+all-1)/max(1, all))
	}
	var wait sync.WaitGroup
	for i, c := range list {
		wait.Go(func() {
			if e, ok := c.Refiner.(*feedback); ok {
				runs[i], failed[i] = e.refinement(c.Dst, c.W, c.Outputs, shares[i])
			} else {
				failed[i] = c.Refiner.Refine(c.Dst, c.W, c.Outputs, shares[i])
			}
		})
	}
	wait.Wait()
	for i, r := range runs {
		if r == nil || failed[i] != nil || !r.needsCodes() {
			continue
		}
		r.threads = threads // one after the other, because that takes memory
		failed[i] = r.encode()
		r.threads = shares[i]
	}
	groups := map[*feedback][]int{} // the runs of every encoder
	for i, r := range runs {
		if r != nil && failed[i] == nil && r.coupled {
			groups[r.feedback] = append(groups[r.feedback], i)
		}
	}
	for e, group := range groups {
		wait.Go(func() { e.refineAll(runs, group, failed, threads) })
	}
	wait.Wait()
	return failed
}

// refineAll refines some runs with at most so many threads, and sets the errors of those that fail.
func (e *feedback) refineAll(runs []*refinement, group []int, failed []error, threads int) {
	each := func(f func(i int)) {
		var wait sync.WaitGroup
		for _, i := range group {
			wait.Go(func() { f(i) })
		}
		wait.Wait()
	}
	list := func(in func(i int) bool) (some []*refinement) {
		for _, i := range group {
			if in(i) {
				some = append(some, runs[i])
			}
		}
		return some
	}
	chosen := map[*refinement]bool{}
	if definite := list(func(i int) bool { return runs[i].definite }); len(definite) > 0 {
		if d := e.choice(definite); kernel.Offload(d) {
			for i, r := range definite {
				chosen[r] = !d.Runs[i].Left
			}
		}
	}
	each(func(i int) {
		if r := runs[i]; chosen[r] {
			r.mistake()
		} else {
			failed[i] = r.chooseAlone()
		}
	})
	some := list(func(i int) bool { return failed[i] == nil })
	if len(some) == 0 || kernel.Offload(e.work(some, threads)) {
		return
	}
	each(func(i int) {
		if failed[i] == nil {
			runs[i].run()
		}
	})
}

// work is what a device does for some refinements, with at most so many threads of this CPU.
func (e *feedback) work(list []*refinement, threads int) *kernel.Refinement {
	d := &kernel.Refinement{Cols: e.cols, Block: e.block, Sweeps: e.sweeps, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Hessian: kernel.Factor{Data: e.hessian, Layout: kernel.ByPosition, Stride: e.cols, Version: e.versions.hessian}, Ridge: e.ridge,
		Sums: e.sums, Totals: e.total}
	for _, r := range list {
		d.Threads = min(threads, d.Threads+r.threads)
		d.Runs = append(d.Runs, kernel.Run{Rows: r.rows, Codes: r.dst.Codes, Scale: r.dst.Scale, Zero: r.dst.Zero, Errors: r.pulled, Outputs: r.outputs,
			Moves: &moves{refinement: r}})
	}
	return d
}

// moves implements [kernel.Moves].
type moves struct {
	*refinement
	ready bool // whether columns are prepared
}

// Begin implements [kernel.Moves].
func (m *moves) Begin(lo int, changes []float32) {
	if m.ready {
		return
	}
	if m.columns == nil {
		m.width, m.remote = m.block, true
		m.reserve()
		if m.threads > 2 && m.cols > m.width {
			m.next, m.aheads = newColumns(m.rows, m.width), make([]lane, (m.rows+m.unit-1)/m.unit)
		}
	}
	m.change = changes
	m.begin(m.columns, lo)
	m.each(func(from, to int) { m.prepareMoves(m.columns, from, to) })
}

// Move implements [kernel.Moves].
func (m *moves) Move(gradients []float32, next int, changes []float32) bool {
	m.grad = gradients
	if m.ready = m.next != nil && next >= 0; m.ready {
		m.next.change = changes
	}
	return m.moveAll(next, m.ready)
}

// Refine does on threads of this CPU what a device does for a [kernel.Refinement].
func Refine(d *kernel.Refinement, threads int) {
	for _, r := range refinementsOf(d, threads) {
		r.pulled = slices.Clone(r.pulled)
		r.run()
	}
}

// MoveHere sets the Moves of a [kernel.Refinement].
func MoveHere(d *kernel.Refinement, threads int) {
	d.Threads = threads
	for i, r := range refinementsOf(d, max(1, threads/len(d.Runs))) {
		d.Runs[i].Moves = &moves{refinement: r}
	}
}

func refinementsOf(d *kernel.Refinement, threads int) (list []*refinement) {
	e := &feedback{spec: Spec{Bits: d.Bits, Scale: tensor.F32}, cols: d.Cols, block: d.Block, blocks: d.Cols / d.Block, sweeps: d.Sweeps,
		hessian: d.Hessian.Data, ridge: d.Ridge, sums: d.Sums, total: d.Totals}
	if d.Half {
		e.spec.Scale = tensor.F16
	}
	for _, run := range d.Runs {
		e.spec.Symmetric = run.Zero == nil // that of all
		list = append(list, &refinement{feedback: e, dst: Blocks{Codes: run.Codes, Scale: run.Scale, Zero: run.Zero}, rows: run.Rows, threads: threads,
			outputs: run.Outputs, pulled: run.Errors})
	}
	return list
}
