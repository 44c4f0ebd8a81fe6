package arch

import (
	"github.com/llmexport/llmexport/runtime/kernel"
)

// turned returns a transposed view, which is computed once and cached.
func (s *views) turned(r *viewReader) ([]byte, error) {
	s.mu.Lock()
	var t *turned
	for _, k := range s.kept {
		if k.name == r.Name {
			t = k
		}
	}
	if t == nil {
		t = &turned{name: r.Name}
		if s.kept = append(s.kept, t); len(s.kept) > keptViews {
			s.kept = s.kept[1:]
		}
	}
	s.mu.Unlock()
	t.once.Do(func() { t.b, t.err = r.turn() })
	return t.b, t.err
}

// turn computes a whole transposed view, some rows of the tensor at a time.
func (r *viewReader) turn() ([]byte, error) {
	const atOnce = 4 << 20
	_, cols := matrix(r.of.Shape)
	size := r.of.DType.Size()
	_, n := r.turnedShape()
	out := make([]byte, int64(r.Rows)*int64(r.width())*size)
	step := int(max(1, atOnce/(cols*size)))
	raw := make([]byte, int64(min(step, n))*cols*size)
	for lo := 0; lo < n; lo += step {
		count := min(step, n-lo)
		raw := raw[:int64(count)*cols*size]
		if err := readFull(r.base, raw, int64(r.From+lo)*cols*size); err != nil {
			return nil, err
		}
		row := 0
		for _, run := range r.columns(int(cols)) {
			for k := range run.Count {
				at := int64(run.Start + k*max(run.Step, 1))
				to := (int64(row)*int64(n) + int64(lo)) * size
				for i := range int64(count) {
					copy(out[to+i*size:to+(i+1)*size], raw[(i*cols+at)*size:])
				}
				row++
			}
		}
	}
	if !r.computed() {
		return out, nil
	}
	x := make([]float32, int64(len(out))/size)
	if err := kernel.ToF32(x, out, r.of.DType); err != nil {
		return nil, err
	}
	row := 0
	for _, run := range r.columns(int(cols)) {
		r.apply(x[row*n:(row+run.Count)*n], run)
		row += run.Count
	}
	if r.Plus != "" {
		if err := r.add(x, 0); err != nil {
			return nil, err
		}
	}
	return floatBytes(x), nil
}

// columns are the runs of a transposed view.
func (v *View) columns(all int) []Run {
	if v.Runs == nil {
		return []Run{{Count: all}}
	}
	return v.Runs
}
