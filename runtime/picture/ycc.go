package picture

import "image"

// ycc reads the planes of a lossy file, whose chroma may have fewer rows and columns than its luma. Missing samples are
// interpolated with weights of 3/4 and 1/4, as libjpeg and libwebp (Pillow) and stb_image (the engine) do. Go's own conversion
// repeats samples, which moves the colours of edges by up to 74 steps of 255 in the drawing of the tests.
func ycc(m *image.YCbCr, webp bool) func(int, []byte) {
	b := m.Bounds()
	cb, cr, rgb := newChroma(m, m.Cb, webp), newChroma(m, m.Cr, webp), fullRange
	if webp {
		rgb = videoRange
	}
	return func(y int, dst []byte) { rgb(dst, m.Y[m.YOffset(b.Min.X, b.Min.Y+y):], cb.row(y), cr.row(y)) }
}

// fullRange converts a row of JPEG's YCbCr to RGB: BT.601, all values from 0 to 255, 16 bits after the point.
func fullRange(dst, luma []byte, blue, red []int32) {
	const half = 1 << 15
	for i := range len(dst) / 3 {
		l, u, v := int32(luma[i]), blue[i]-128, red[i]-128
		dst[3*i] = limit(l + (91881*v+half)>>16)
		dst[3*i+1] = limit(l + (-22554*u-46802*v+half)>>16)
		dst[3*i+2] = limit(l + (116130*u+half)>>16)
	}
}

// videoRange converts a row of WebP's YCbCr to RGB: BT.601, luma from 16 to 235, chroma from 16 to 240, with the 14 bits and the
// truncations of libwebp.
func videoRange(dst, luma []byte, blue, red []int32) {
	for i := range len(dst) / 3 {
		l, u, v := int32(luma[i])*19077>>8, blue[i], red[i]
		dst[3*i] = limit((l + v*26149>>8 - 14234) >> 6)
		dst[3*i+1] = limit((l - u*6419>>8 - v*13320>>8 + 8708) >> 6)
		dst[3*i+2] = limit((l + u*33050>>8 - 17685) >> 6)
	}
}

func limit(v int32) byte { return byte(max(min(v, 255), 0)) }

// chroma is a plane that is scaled up to the size of the picture, row by row.
type chroma struct {
	pix             []byte
	stride          int
	width, height   int // of the plane
	across, down    int // pixels of the picture for each sample
	column          []int32
	out             []int32
	smoothX, linear bool
	left, right     int32 // what is added before the shift
}

func newChroma(m *image.YCbCr, pix []byte, webp bool) *chroma {
	b := m.Bounds()
	c := &chroma{pix: pix[m.COffset(b.Min.X, b.Min.Y):], stride: m.CStride, across: 1, down: 1}
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.across = 2
	case image.YCbCrSubsampleRatio420:
		c.across, c.down = 2, 2
	case image.YCbCrSubsampleRatio440:
		c.down = 2
	case image.YCbCrSubsampleRatio411:
		c.across = 4
	case image.YCbCrSubsampleRatio410:
		c.across, c.down = 4, 2
	}
	c.width, c.height = (b.Dx()+c.across-1)/c.across, (b.Dy()+c.down-1)/c.down
	// libjpeg repeats the samples of planes up to 2 columns wide, and of the rare ratios. Its rounding alternates, so that the mean
	// stays; libwebp rounds halves up.
	c.smoothX = c.across == 2 && (c.width > 2 || webp)
	c.linear = c.down == 2 && (c.smoothX || c.across == 1)
	switch {
	case webp:
		c.left, c.right = 8, 8
	case c.linear:
		c.left, c.right = 8, 7
	default:
		c.left, c.right = 1, 2
	}
	c.column, c.out = make([]int32, c.width), make([]int32, c.width*c.across)
	return c
}

// row returns the samples of row y of the picture. They are valid until the next call.
func (c *chroma) row(y int) []int32 {
	shift := c.blend(y)
	if !c.smoothX {
		for i := range c.out {
			c.out[i] = c.column[i/c.across]
		}
		if c.linear {
			bias := int32(1 + y%2)
			for i, v := range c.out {
				c.out[i] = (v + bias) >> 2
			}
		}
		return c.out
	}
	last := len(c.column) - 1
	for i, v := range c.column {
		before, after := c.column[max(i-1, 0)], c.column[min(i+1, last)]
		c.out[2*i], c.out[2*i+1] = (3*v+before+c.left)>>shift, (3*v+after+c.right)>>shift
	}
	return c.out
}

// blend fills column with a row of the plane. Where two rows are blended, values are 4 times as large. It returns by how many bits
// a blend of two columns is to be shifted.
func (c *chroma) blend(y int) (shift int) {
	near := c.pix[y/c.down*c.stride:]
	if !c.linear {
		for i := range c.column {
			c.column[i] = int32(near[i])
		}
		return 2
	}
	other := y/2 - 1 + y%2*2
	far := c.pix[max(min(other, c.height-1), 0)*c.stride:]
	for i := range c.column {
		c.column[i] = 3*int32(near[i]) + int32(far[i])
	}
	return 4
}
