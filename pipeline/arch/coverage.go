package arch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// coverage records which elements of the checkpoint's tensors views use: an unused element would be a mistake of the
// family.
type coverage struct {
	views map[string]*View
	infos map[string]*tensor.Info
	used  map[string]*usedPart
	bad   map[string]bool // tensors with a reported problem
}

// usedPart has the used rows of a tensor; for a transposed one, the used columns of every block of rows; for one that
// vectors are cut from, the used elements. Rows are not marked one by one: stacked experts have a million in a layer.
type usedPart struct {
	rows, elements []Run
	blocks         map[block][]Run
}

type block struct{ from, rows int }

func newCoverage(d *Decoder, infos map[string]*tensor.Info) *coverage {
	c := &coverage{views: make(map[string]*View, len(d.Views)), infos: infos, used: map[string]*usedPart{}, bad: map[string]bool{}}
	for i := range d.Views {
		c.views[d.Views[i].Name] = &d.Views[i]
	}
	return c
}

// take marks what a view uses for a slot, and returns problems.
func (c *coverage) take(v *View, w Weight) (missing, misshapen, mistyped []string) {
	if v.Rows != w.Rows || v.Cols != w.Cols {
		return nil, []string{fmt.Sprintf("%s has %d x %d of %d x %d", v.Name, v.Rows, v.Cols, w.Rows, w.Cols)}, nil
	}
	for _, name := range v.Parts() {
		if _, ok := c.infos[name]; ok || c.bad[name] {
			continue
		}
		c.bad[name] = true
		missing = append(missing, name)
	}
	if missing != nil {
		return missing, nil, nil
	}
	o := newOpenView(v, c.infos)
	for _, t := range o.batch {
		if t == nil { // reported before
			continue
		}
		if n, err := t.Shape.Elements(); err != nil || n != int64(v.Rows) {
			return nil, []string{fmt.Sprintf("%s is %v, want %d", t.Name, t.Shape, v.Rows)}, nil
		}
		if text := floating(t); text != "" {
			return nil, nil, []string{text}
		}
		c.mark(t.Name, &View{Rows: v.Rows})
	}
	if v.Tensor == "" || c.bad[v.Tensor] || c.bad[v.Plus] || c.bad[v.Side] {
		return nil, nil, nil
	}
	if text := floating(o.of); text != "" {
		c.bad[v.Tensor] = true
		return nil, nil, []string{text}
	}
	if err := o.check(nil); err != nil {
		c.bad[v.Tensor] = true
		rows, cols := matrix(o.of.Shape)
		text := fmt.Sprintf("%s is %v (%d x %d), too small for %d x %d of %s", v.Tensor, o.of.Shape, rows, cols, v.Rows, v.width(), v.Name)
		if v.Side != "" {
			text = err.Error()
		}
		return nil, []string{text}, nil
	}
	switch {
	case v.Flat: // whole
		n, cols := matrix(o.of.Shape)
		c.mark(v.Tensor, &View{Rows: int(n), Cols: int(cols)})
	case v.Then == nil:
		c.mark(v.Tensor, v)
	}
	for _, t := range o.whole() {
		n, _ := v.matrix(t.Shape)
		c.mark(t.Name, &View{Rows: int(n), Cols: v.Cols})
	}
	if v.Side != "" {
		c.mark(v.Side, &View{Rows: v.Rows, Cols: v.Zeros})
	}
	if v.Plus != "" {
		n, _ := o.plus.Shape.Elements()
		c.mark(v.Plus, &View{Rows: int(n)})
	}
	return nil, nil, nil
}

func (c *coverage) mark(name string, v *View) {
	u := c.used[name]
	_, cols := matrix(c.infos[name].Shape)
	if u == nil {
		u = &usedPart{}
		c.used[name] = u
	}
	switch {
	case v.Cols == 0 && !v.Transposed && cols > 1:
		u.elements = append(u.elements, v.runs()...)
	case v.Transposed:
		_, n := v.turnedShape()
		if u.blocks == nil {
			u.blocks = map[block][]Run{}
		}
		b := block{v.From, n}
		u.blocks[b] = append(u.blocks[b], v.columns(int(cols))...)
	default:
		for _, r := range v.runs() {
			r.Count += r.Spare
			u.rows = append(u.rows, r)
		}
	}
}

// tensors lists the tensors that views use, sorted.
func (c *coverage) tensors() []string { return slices.Sorted(maps.Keys(c.used)) }

// gaps describes the first part of a tensor that no view uses, or returns "".
func (c *coverage) gaps(name string) string {
	u := c.used[name]
	rows, cols := matrix(c.infos[name].Shape)
	runs := u.rows
	for _, b := range slices.SortedFunc(maps.Keys(u.blocks), func(a, b block) int { return cmp.Or(a.from-b.from, a.rows-b.rows) }) {
		if i := gap(u.blocks[b], int(cols)); i >= 0 {
			return fmt.Sprintf("column %d of rows %d to %d of %s", i, b.from, b.from+b.rows-1, printable(name))
		}
		runs = append(runs, Run{Start: b.from, Count: b.rows})
	}
	each := 1
	if u.elements != nil { // then every run is one of elements
		each = int(cols)
		whole := runs
		runs = u.elements
		for _, r := range whole {
			if r.Step <= 1 {
				runs = append(runs, Run{Start: r.Start * each, Count: r.Count * each})
				continue
			}
			for k := range r.Count {
				runs = append(runs, Run{Start: (r.Start + k*r.Step) * each, Count: each})
			}
		}
	}
	if i := gap(runs, int(rows)*each); i >= 0 {
		return fmt.Sprintf("row %d of %s", i/each, printable(name))
	}
	return ""
}

// gap returns the first of n elements that is in no run, or -1. It sorts the runs.
func gap(runs []Run, n int) int {
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Step > 1 }) {
		used := make([]bool, n)
		for _, r := range runs {
			for k := range r.Count {
				used[r.Start+k*max(r.Step, 1)] = true
			}
		}
		return slices.Index(used, false)
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Start - b.Start })
	end := 0
	for _, r := range runs {
		if r.Start > end {
			break
		}
		end = max(end, r.Start+r.Count)
	}
	if end >= n {
		return -1
	}
	return end
}
