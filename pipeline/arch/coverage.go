package arch

import (
	"fmt"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// coverage says which elements of the checkpoint's tensors views use: what nobody reads would be a mistake of the family.
type coverage struct {
	views map[string]*View
	infos map[string]*tensor.Info
	used  map[string]*usedPart
	bad   map[string]bool // tensors that were complained of
}

// usedPart holds the used rows of a tensor; of one that is transposed, the used columns of every block of rows; of one that
// vectors are cut from, the used elements.
type usedPart struct {
	rows, elements []bool
	blocks         map[block][]bool
}

type block struct{ from, rows int }

func newCoverage(d *Decoder, infos map[string]*tensor.Info) *coverage {
	c := &coverage{views: make(map[string]*View, len(d.Views)), infos: infos, used: map[string]*usedPart{}, bad: map[string]bool{}}
	for i := range d.Views {
		c.views[d.Views[i].Name] = &d.Views[i]
	}
	return c
}

// take marks what a view uses for a slot, and returns complaints.
func (c *coverage) take(v *View, w Weight) (missing, misshapen, mistyped []string) {
	if v.Rows != w.Rows || v.Cols != w.Cols {
		return nil, []string{fmt.Sprintf("%s has %d x %d of %d x %d", v.Name, v.Rows, v.Cols, w.Rows, w.Cols)}, nil
	}
	for _, name := range []string{v.Tensor, v.Plus} {
		if _, ok := c.infos[name]; name == "" || ok || c.bad[name] {
			continue
		}
		c.bad[name] = true
		missing = append(missing, name)
	}
	if missing != nil || v.Tensor == "" || c.bad[v.Tensor] || c.bad[v.Plus] {
		return missing, nil, nil
	}
	o := openView{View: v, of: c.infos[v.Tensor], plus: c.infos[v.Plus]}
	if text := floating(o.of); text != "" {
		c.bad[v.Tensor] = true
		return nil, nil, []string{text}
	}
	if err := o.check(nil); err != nil {
		c.bad[v.Tensor] = true
		rows, cols := matrix(o.of.Shape)
		text := fmt.Sprintf("%s is %v (%d x %d), which does not hold %d x %d of %s", v.Tensor, o.of.Shape, rows, cols, v.Rows, v.width(), v.Name)
		return nil, []string{text}, nil
	}
	c.mark(v.Tensor, v)
	if v.Plus != "" {
		n, _ := o.plus.Shape.Elements()
		c.mark(v.Plus, &View{Rows: int(n)})
	}
	return nil, nil, nil
}

func (c *coverage) mark(name string, v *View) {
	u := c.used[name]
	rows, cols := matrix(c.infos[name].Shape)
	if u == nil {
		u = &usedPart{rows: make([]bool, rows), blocks: map[block][]bool{}}
		c.used[name] = u
	}
	flags, runs := u.rows, v.runs()
	if v.Cols == 0 && !v.Transposed && cols > 1 {
		if u.elements == nil {
			u.elements = make([]bool, rows*cols)
		}
		flags = u.elements
	} else if v.Transposed {
		_, n := v.turnedShape()
		b := block{v.From, n}
		if u.blocks[b] == nil {
			u.blocks[b] = make([]bool, cols)
		}
		flags, runs = u.blocks[b], v.columns(int(cols))
	}
	for _, r := range runs {
		for k := range r.Count {
			flags[r.Start+k*max(r.Step, 1)] = true
		}
	}
}

// tensors lists what views use, sorted.
func (c *coverage) tensors() []string { return slices.Sorted(maps.Keys(c.used)) }

// gaps says what of a tensor no view uses, or nothing.
func (c *coverage) gaps(name string) string {
	u := c.used[name]
	for b, columns := range u.blocks {
		if i := slices.Index(columns, false); i >= 0 {
			return fmt.Sprintf("column %d of rows %d to %d of %s", i, b.from, b.from+b.rows-1, printable(name))
		}
		for i := range b.rows {
			u.rows[b.from+i] = true
		}
	}
	for i, used := range u.rows {
		if used {
			continue
		}
		cols := len(u.elements) / len(u.rows)
		if k := slices.Index(u.elements[i*cols:(i+1)*cols], false); k >= 0 || cols == 0 {
			return fmt.Sprintf("row %d of %s", i, printable(name))
		}
	}
	return ""
}
