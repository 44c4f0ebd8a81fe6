package sound

// radix2 is the engine's transform of a power of 2 points (`OpType_Stft`, CPUStft.cpp), in float32.
type radix2 struct {
	reversed []int     // bits of the index in reverse
	roots    complexes // exp(-2 pi i k / points)
}

func newRadix2(bits int) radix2 {
	r := radix2{make([]int, 1<<bits), newComplexes(1 << bits)}
	const pi = float32(3.14159265358979323846)
	step := float32(-2*pi) / float32(int(1)<<bits)
	for k := range r.reversed {
		for bit := range bits {
			r.reversed[k] |= k >> bit & 1 << (bits - 1 - bit)
		}
		r.roots.im[k], r.roots.re[k] = sincosf(float32(k) * step)
	}
	return r
}

// The engine's short-time Fourier transform of 400 samples: Bluestein's convolution by transforms of 1024 points, all in float32.
const (
	frameLength = 400
	points      = 1024
	bins        = frameLength/2 + 1
)

// complexes are complex numbers, in two arrays so that no product is fused.
type complexes struct {
	re, im []float32
}

func newComplexes(n int) complexes { return complexes{make([]float32, n), make([]float32, n)} }

// product sets element i to the product of a and b.
func (c complexes) product(i int, ar, ai, br, bi float32) {
	c.re[i] = float32(ar*br) - float32(ai*bi)
	c.im[i] = float32(ar*bi) + float32(ai*br)
}

// fourier holds the constants of the transform.
type fourier struct {
	radix2
	chirp  complexes // exp(-pi i k^2 / 400)
	filter complexes // the transform of the conjugate chirp
}

func newFourier() *fourier {
	f := &fourier{radix2: newRadix2(10), chirp: newComplexes(frameLength), filter: newComplexes(points)}
	const pi = float32(3.14159265358979323846)
	conjugate := newComplexes(points)
	for k := range frameLength {
		f.chirp.im[k], f.chirp.re[k] = sincosf(float32(float32(-pi*float32(k))*float32(k)) / frameLength)
		conjugate.re[k], conjugate.im[k] = f.chirp.re[k], -f.chirp.im[k]
	}
	for k := points - frameLength + 1; k < points; k++ {
		conjugate.re[k], conjugate.im[k] = conjugate.re[points-k], conjugate.im[points-k]
	}
	f.transform(f.filter, conjugate)
	return f
}

// transform writes the discrete Fourier transform of src to dst.
func (f *radix2) transform(dst, src complexes) {
	points := len(f.reversed)
	for i, from := range f.reversed {
		dst.re[i], dst.im[i] = src.re[from], src.im[from]
	}
	for half := 1; half < points; half *= 2 {
		stride := points / (2 * half)
		for k := range half {
			ur, ui := f.roots.re[k*stride], f.roots.im[k*stride]
			vr, vi := f.roots.re[(half+k)*stride], f.roots.im[(half+k)*stride]
			for even := k; even < points; even += 2 * half {
				odd := even + half
				er, ei, or, oi := dst.re[even], dst.im[even], dst.re[odd], dst.im[odd]
				dst.re[even] = er + (float32(ur*or) - float32(ui*oi))
				dst.im[even] = ei + (float32(ur*oi) + float32(ui*or))
				dst.re[odd] = er + (float32(vr*or) - float32(vi*oi))
				dst.im[odd] = ei + (float32(vr*oi) + float32(vi*or))
			}
		}
	}
}

// spectrum is memory for one frame.
type spectrum struct {
	a, b complexes
}

// power writes the squared magnitudes of the bins of a windowed frame to dst.
func (f *fourier) power(dst, frame []float32, s *spectrum) {
	clear(s.a.re)
	clear(s.a.im)
	for k, x := range frame {
		s.a.re[k], s.a.im[k] = x*f.chirp.re[k], x*f.chirp.im[k]
	}
	f.transform(s.b, s.a)
	for k := range points {
		s.a.product(k, s.b.re[k], s.b.im[k], f.filter.re[k], f.filter.im[k])
	}
	// The inverse transform is the transform in reverse order, divided by its length.
	f.transform(s.b, s.a)
	for k := range bins {
		at := (points - k) % points
		re, im := s.b.re[at]/points, s.b.im[at]/points
		cr, ci := f.chirp.re[k], f.chirp.im[k]
		re, im = float32(re*cr)-float32(im*ci), float32(re*ci)+float32(im*cr)
		dst[k] = float32(re*re) + float32(im*im)
	}
}
