package forward

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// interpolate adds learned positions to the patches of a picture of height x width of them, whose rows and columns are given. The square
// of positions is stretched to the picture, corner to corner, and a patch takes the four nearest ones by their distance; or as a filter
// stretches a picture, see smoothTaps, or takes one of bucketTaps. The arithmetic is that of the library, in float32.
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
	along := taps
	switch {
	case d.Smooth:
		along = smoothTaps
	case d.Slices != nil:
		along = bucketTaps
	}
	rows, columns := along(height, side), along(width, side)
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

// placed adds learned positions to patches by row and by column.
func (t *Tower) placed(x []float32, places [][]int) error {
	d := t.tower
	if d.Places[0].Tensor == "" {
		return nil
	}
	for axis, w := range d.Places {
		table, err := t.pass.values(w)
		if err != nil {
			return err
		}
		for i, at := range places[axis] {
			if at >= w.Rows {
				return fmt.Errorf("internal error: patch %d of %d positions", at, w.Rows)
			}
			state := x[i*d.Hidden : (i+1)*d.Hidden]
			kernel.Add(state, state, table[at*d.Hidden:(at+1)*d.Hidden])
		}
	}
	return nil
}

// tap is a learned position and its weight.
type tap struct {
	at     int
	weight float32
}

// taps are the two learned positions of each of n places on an axis that has so many.
func taps(n, side int) [][]tap {
	out := make([][]tap, n)
	for i := range out {
		at := float32(i*(side-1)) / float32(max(n-1, 1))
		low := int(at)
		part := at - float32(low)
		out[i] = []tap{{low, 1 - part}, {min(low+1, side-1), part}}
	}
	return out
}

// smoothTaps are the learned positions that an antialiased bilinear filter takes for each of n places on an axis that has side of them: a
// place is the middle of its part of the axis, and where places are further apart than positions, the filter is as much wider.
func smoothTaps(n, side int) [][]tap {
	out := make([][]tap, n)
	step := float32(side) / float32(n)
	wide := max(step, 1)
	for i := range out {
		middle, sum := float32(step*(float32(i)+.5)), float32(0)
		for at := range side {
			far := (float32(at) + .5 - middle) / wide
			if weight := 1 - max(far, -far); weight > 0 {
				out[i], sum = append(out[i], tap{at, weight}), sum+weight
			}
		}
		for k := range out[i] {
			out[i][k].weight /= sum
		}
	}
	return out
}
