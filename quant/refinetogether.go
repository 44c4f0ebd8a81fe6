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

// RefineTogether refines rows that do not depend on each other at the same time: those of an encoder all at once by the device of this
// process, if that does it, otherwise on threads that they share. It returns what Refine would return for each.
func RefineTogether(list []Coupled, threads int) []error {
	failed, runs := make([]error, len(list)), make([]*refinement, len(list))
	share := (max(1, threads) + len(list) - 1) / max(1, len(list))
	var wait sync.WaitGroup
	for i, c := range list {
		wait.Go(func() {
			if e, ok := c.Refiner.(*feedback); ok {
				runs[i], failed[i] = e.refinement(c.Dst, c.W, c.Outputs, share)
			} else {
				failed[i] = c.Refiner.Refine(c.Dst, c.W, c.Outputs, share)
			}
		})
	}
	wait.Wait()
	// groups are the runs of every encoder that go on and are in question.
	groups := func(in func(r *refinement) bool) map[*feedback][]*refinement {
		m := map[*feedback][]*refinement{}
		for i, r := range runs {
			if r != nil && failed[i] == nil && r.coupled && in(r) {
				m[r.feedback] = append(m[r.feedback], r)
			}
		}
		return m
	}
	for i, r := range runs {
		if r == nil || failed[i] != nil || !r.needsCodes() {
			continue
		}
		r.threads = threads // one after the other, because that takes memory
		failed[i] = r.encode()
		r.threads = share
	}
	chosen := map[*refinement]bool{}
	for e, group := range groups(func(r *refinement) bool { return r.definite }) {
		if d := e.choice(group); kernel.Offload(d) {
			for i, r := range group {
				chosen[r] = !d.Runs[i].Left
			}
		}
	}
	for i, r := range runs {
		if r != nil && failed[i] == nil && r.coupled {
			wait.Go(func() {
				if chosen[r] {
					r.mistake()
				} else {
					failed[i] = r.chooseAlone()
				}
			})
		}
	}
	wait.Wait()
	for e, group := range groups(func(*refinement) bool { return true }) {
		if kernel.Offload(e.work(group)) {
			continue
		}
		for _, r := range group {
			wait.Go(r.run)
		}
	}
	wait.Wait()
	return failed
}

// work is what a device does for some refinements.
func (e *feedback) work(list []*refinement) *kernel.Refinement {
	d := &kernel.Refinement{Cols: e.cols, Block: e.block, Sweeps: e.sweeps, Bits: e.spec.Bits, Half: e.spec.Scale == tensor.F16,
		Hessian: kernel.Factor{Data: e.hessian, Layout: kernel.ByPosition, Stride: e.cols, Version: e.versions.hessian}, Ridge: e.ridge,
		Sums: e.sums, Totals: e.total}
	for _, r := range list {
		d.Runs = append(d.Runs, kernel.Run{Rows: r.rows, Codes: r.dst.Codes, Scale: r.dst.Scale, Zero: r.dst.Zero, Errors: r.pulled, Outputs: r.outputs})
	}
	return d
}

// Refine does on threads of this CPU what a device does for a [kernel.Refinement].
func Refine(d *kernel.Refinement, threads int) {
	e := &feedback{spec: Spec{Bits: d.Bits, Scale: tensor.F32}, cols: d.Cols, block: d.Block, blocks: d.Cols / d.Block, sweeps: d.Sweeps,
		hessian: d.Hessian.Data, ridge: d.Ridge, sums: d.Sums, total: d.Totals}
	if d.Half {
		e.spec.Scale = tensor.F16
	}
	for _, run := range d.Runs {
		e.spec.Symmetric = run.Zero == nil
		r := &refinement{feedback: e, dst: Blocks{Codes: run.Codes, Scale: run.Scale, Zero: run.Zero}, rows: run.Rows, threads: threads,
			outputs: run.Outputs, pulled: slices.Clone(run.Errors)}
		r.run()
	}
}
