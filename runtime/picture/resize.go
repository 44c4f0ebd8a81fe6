package picture

import "math"

// tile is the number of pixels of a row that the engine computes at a time. The column in the source is a running sum that starts
// again with each tile, so its rounding errors depend on it.
const tile = 512

// Resize returns the picture scaled to s as the engine does for every tower (`MNN::CV::resize` with `INTER_LINEAR`, releases
// 3.5.0 to 3.6.1 on x86-64): each pixel is interpolated between the four nearest ones, without a filter against aliasing, and
// rounded to a byte.
func (im *Image) Resize(s Size) (*Image, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	columns := positions(im.Width, s.Width, tile)
	stepY, offsetY := transform(im.Height, s.Height)
	out := &Image{Width: s.Width, Height: s.Height, Pix: make([]byte, 3*s.Height*s.Width)}
	for y := range s.Height {
		row := place(float32(float32(y)*stepY)+offsetY, im.Height)
		upper, lower := im.row(row.low), im.row(row.high)
		interpolate(out.row(y), upper, lower, columns, row.part)
	}
	return out, nil
}

// row returns the bytes of row y.
func (im *Image) row(y int) []byte { return im.Pix[3*im.Width*y : 3*im.Width*(y+1)] }

// position lies between two neighbouring rows or columns, at part of the way from low to high.
type position struct {
	low, high int
	part      float32
}

// place clamps x to an edge of n pixels.
func place(x float32, n int) position {
	x = max(min(x, float32(n-1)), 0)
	low := int(x)
	return position{low, int(math.Ceil(float64(x))), x - float32(low)}
}

// transform returns the factor and the offset that map the centres of out pixels to those of in pixels.
func transform(in, out int) (step, offset float32) {
	step = float32(in) / float32(out)
	return step, float32(0.5 * (float64(step) - 1))
}

// positions returns the places of out pixels on an edge of in pixels, summed up within tiles.
func positions(in, out, tile int) []position {
	step, offset := transform(in, out)
	at := func(i int) float32 { return float32(float32(i)*step) + offset }
	list := make([]position, 0, out)
	for start := 0; start < out; start += tile {
		count := min(tile, out-start)
		x, dx := at(start), (at(start+count)-at(start))/float32(count)
		for range count {
			list = append(list, place(x, in))
			x += dx
		}
	}
	return list
}

// interpolate computes a row from the rows above and below it. The third product is a double in the engine, as is what is added
// to it.
func interpolate(dst, upper, lower []byte, columns []position, down float32) {
	up := 1 - down
	for i, c := range columns {
		left := 1 - c.part
		w00, w01, w11 := float32(left*up), float32(c.part*up), float32(c.part*down)
		w10 := float64(down) * (1 - float64(c.part))
		for b := range 3 {
			c00, c01 := float32(upper[3*c.low+b]), float32(upper[3*c.high+b])
			c10, c11 := float64(lower[3*c.low+b]), float32(lower[3*c.high+b])
			above := float32(w00*c00) + float32(w01*c01)
			v := float32(float64(above) + float64(w10*c10) + float64(float32(w11*c11)))
			dst[3*i+b] = byte(float64(max(min(v, 255), 0)) + 0.5)
		}
	}
}
