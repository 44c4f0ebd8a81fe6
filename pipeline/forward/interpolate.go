package forward

import "github.com/llmexport/llmexport/runtime/kernel"

// interpolate adds learned positions to the patches of a picture of height x width of them, whose rows and columns are given. The square
// of positions is stretched to the picture, corner to corner, and a patch takes the four nearest ones by their distance. The arithmetic is
// that of the library, in float32.
func (t *Tower) interpolate(x []float32, places [][]int, height, width int) error {
	d := t.tower
	if d.Positions.Tensor == "" {
		return nil
	}
	table, err := t.pass.values(d.Positions)
	if err != nil {
		return err
	}
	side := d.PositionSide()
	rows, columns := taps(height, side), taps(width, side)
	sum := make([]float32, d.Hidden)
	for i := range len(x) / d.Hidden {
		clear(sum)
		for _, a := range rows[places[0][i]] {
			for _, b := range columns[places[1][i]] {
				for k, v := range table[(a.at*side+b.at)*d.Hidden:][:d.Hidden] {
					sum[k] += float32(v * (a.weight * b.weight))
				}
			}
		}
		state := x[i*d.Hidden : (i+1)*d.Hidden]
		kernel.Add(state, state, sum)
	}
	return nil
}

// tap is a learned position and its weight.
type tap struct {
	at     int
	weight float32
}

// taps are the two learned positions of each of n places on an axis that has so many.
func taps(n, side int) [][2]tap {
	out := make([][2]tap, n)
	for i := range out {
		at := float32(i*(side-1)) / float32(max(n-1, 1))
		low := int(at)
		part := at - float32(low)
		out[i] = [2]tap{{low, 1 - part}, {min(low+1, side-1), part}}
	}
	return out
}
