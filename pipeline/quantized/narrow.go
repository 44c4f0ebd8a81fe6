package quantized

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// narrow is a matrix of floats of 8 or 4 bits with a scale for every block of them: element = value(code) * scale. No storage
// form of packages represents it exactly.
type narrow struct {
	info       tensor.Info // of the float view
	rows, cols int
	// A scale belongs to height rows and width columns.
	height, width int
	codes, scales io.ReaderAt
	scaleType     tensor.DType // U8 is the exponent of a power of two, biased by 127
	// nibbles: two elements in a byte, the earlier one in the low half.
	nibbles bool
}

// e2m1 are the values of 4 bits: sign, two bits of exponent, one of mantissa (OCP Microscaling formats, 5.3.3).
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// e4m3 are the values of a byte: sign, four bits of exponent biased by 7, three of mantissa, no infinities (OCP 8-bit
// floating point, 5.1).
var e4m3 = func() (t [256]float32) {
	for c := range t {
		exponent, mantissa := c>>3&15, float64(c&7)
		v := math.Ldexp(mantissa/8, -6)
		if exponent > 0 {
			v = math.Ldexp(1+float64(mantissa/8), exponent-7)
		}
		if c&127 == 127 {
			v = math.NaN()
		}
		t[c] = float32(math.Copysign(v, float64(1-c>>7*2)))
	}
	return t
}()

// floats writes rows lo to hi-1 as F32.
func (m *narrow) floats(dst []byte, lo, hi int) error {
	row := m.cols
	if m.nibbles {
		row = m.cols / 2
	}
	codes := make([]byte, (hi-lo)*row)
	if err := readFull(m.codes, codes, int64(lo)*int64(row)); err != nil {
		return err
	}
	perRow := (m.cols + m.width - 1) / m.width
	first, last := lo/m.height, (hi-1)/m.height+1
	scales, err := m.readScales(first*perRow, last*perRow)
	if err != nil {
		return err
	}
	for r := lo; r < hi; r++ {
		s := scales[(r/m.height-first)*perRow:]
		code := codes[(r-lo)*row : (r-lo+1)*row]
		out := dst[(r-lo)*m.cols*4 : (r-lo+1)*m.cols*4]
		for c := 0; c < m.cols; c += m.width {
			end := min(c+m.width, m.cols)
			if m.nibbles {
				nibbleFloats(out[4*c:4*end], code[c/2:end/2], s[c/m.width])
			} else if k := byteFloats(out[4*c:4*end], code[c:end], s[c/m.width]); k >= 0 {
				return fmt.Errorf("row %d: element %d is not a number: %w", r, c+k, tensor.ErrCorrupt)
			}
		}
	}
	return nil
}

// nibbleFloats writes e2m1 codes, two in a byte, times a scale.
func nibbleFloats(dst []byte, codes []byte, scale float32) {
	var values [16]uint32
	for i, v := range e2m1 {
		values[i] = math.Float32bits(v * scale)
	}
	for i, c := range codes {
		out := dst[8*i : 8*i+8]
		binary.LittleEndian.PutUint64(out, uint64(values[c&15])|uint64(values[c>>4])<<32)
	}
}

// byteFloats writes e4m3 codes times a scale. It returns the index of the first that is not a number, or -1.
func byteFloats(dst []byte, codes []byte, scale float32) int {
	for i, c := range codes {
		v := e4m3[c]
		if v != v {
			return i
		}
		binary.LittleEndian.PutUint32(dst[4*i:4*i+4], math.Float32bits(v*scale))
	}
	return -1
}

// readScales returns scales lo to hi-1.
func (m *narrow) readScales(lo, hi int) ([]float32, error) {
	size := int(m.scaleType.Size())
	raw, s := make([]byte, (hi-lo)*size), make([]float32, hi-lo)
	if err := readFull(m.scales, raw, int64(lo)*int64(size)); err != nil {
		return nil, err
	}
	if m.scaleType == tensor.U8 {
		for i, e := range raw {
			if e == 255 {
				return nil, fmt.Errorf("scale %d is not a number: %w", lo+i, tensor.ErrCorrupt)
			}
			s[i] = float32(math.Ldexp(1, int(e)-127))
		}
		return s, nil
	}
	if err := kernel.ToF32(s, raw, m.scaleType); err != nil {
		return nil, err
	}
	for i, v := range s {
		if !(v <= maxScale && v >= -maxScale) {
			return nil, fmt.Errorf("scale %d is %g: %w", lo+i, v, tensor.ErrCorrupt)
		}
	}
	return s, nil
}

// narrowForm finds the narrow matrices of a checkpoint: for a tensor of codes, view returns the name of the float view and
// scales that of its scales; of returns the view that a tensor of this name would be a part of, if it is one.
type narrowForm struct {
	view   func(codes *tensor.Info) (name string, ok bool)
	scales func(codes string) string
	of     func(name string) string
	open   func(codes, scales *tensor.Info, s *settings) (narrow, error)
}

var narrowForms = map[string]narrowForm{
	"fp8": {
		view:   func(t *tensor.Info) (string, bool) { return t.Name, t.DType == tensor.F8E4M3 },
		scales: func(codes string) string { return codes + scaleInv },
		of:     func(name string) string { return strings.TrimSuffix(name, scaleInv) },
		open:   openFP8,
	},
	"mxfp4": {
		// The view is the transpose of the module's parameter, hence its name.
		view: func(t *tensor.Info) (string, bool) {
			base, ok := strings.CutSuffix(t.Name, "_blocks")
			return base + Transposed, ok
		},
		scales: func(codes string) string { return strings.TrimSuffix(codes, "_blocks") + "_scales" },
		of: func(name string) string {
			return strings.TrimSuffix(strings.TrimSuffix(name, "_blocks"), "_scales") + Transposed
		},
		open: openMXFP4,
	},
}

// scaleInv ends the names of the scales of fp8.
const scaleInv = "_scale_inv"

// Transposed ends the names of the float views of stacked MXFP4 experts: [experts, outputs, inputs], where the parameter
// of that name without the suffix is [experts, inputs, outputs].
const Transposed = ".transposed"

func openFP8(codes, scales *tensor.Info, s *settings) (narrow, error) {
	if len(codes.Shape) != 2 || len(scales.Shape) != 2 {
		return narrow{}, fmt.Errorf("shape %v with scales %v, want two dimensions: %w", codes.Shape, scales.Shape, tensor.ErrUnsupported)
	}
	rows, cols := int(codes.Shape[0]), int(codes.Shape[1])
	h, w := s.tile[0], s.tile[1]
	if int(scales.Shape[0]) != (rows+h-1)/h || int(scales.Shape[1]) != (cols+w-1)/w {
		return narrow{}, fmt.Errorf("scales have shape %v, want one for %d x %d of %v: %w", scales.Shape, h, w, codes.Shape, tensor.ErrCorrupt)
	}
	return narrow{rows: rows, cols: cols, height: h, width: w, info: tensor.Info{Shape: codes.Shape}}, nil
}

func openMXFP4(codes, scales *tensor.Info, _ *settings) (narrow, error) {
	const block = 32
	c, s := codes.Shape, scales.Shape
	if codes.DType != tensor.U8 || scales.DType != tensor.U8 || len(c) != 4 || len(s) != 3 || c[3] != block/2 || c[0] != s[0] || c[1] != s[1] || c[2] != s[2] {
		return narrow{}, fmt.Errorf("blocks %v %v with scales %v %v: %w", codes.DType, c, scales.DType, s, tensor.ErrCorrupt)
	}
	return narrow{
		rows: int(c[0] * c[1]), cols: int(c[2]) * block, height: 1, width: block, nibbles: true,
		info: tensor.Info{Shape: tensor.Shape{c[0], c[1], c[2] * block}},
	}, nil
}

// narrowParts are the tensors of a narrow matrix. There may be a hundred thousand: facts that follow from their shapes are computed
// again when one is opened.
type narrowParts struct{ codes, scales *tensor.Info }

// matrix is the narrow matrix of two tensors, called name, without readers.
func (p narrowParts) matrix(name string, set *settings) (narrow, error) {
	m, err := narrowForms[set.method].open(p.codes, p.scales, set)
	if err == nil {
		err = m.check(p.scales)
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", p.codes.Name, err)
	}
	m.info.Name, m.info.File, m.info.DType, m.info.Size = name, p.codes.File, tensor.F32, 4*int64(m.rows)*int64(m.cols)
	return m, nil
}

// findNarrow lists the float views of narrow matrices.
func (s *Source) findNarrow() error {
	form := narrowForms[s.method]
	all := s.base.Tensors()
	views := make([]tensor.Info, 0, len(all)/2+1)
	s.narrow = make(map[string]narrowParts, len(all)/2)
	for i := range all {
		t := &all[i]
		name, ok := form.view(t)
		if !ok {
			continue
		}
		j := i + 1 // usually they come next
		if j == len(all) || form.of(all[j].Name) != name {
			scale := form.scales(t.Name)
			j, ok = slices.BinarySearchFunc(all, scale, func(t tensor.Info, name string) int { return strings.Compare(t.Name, name) })
			if !ok {
				return fmt.Errorf("%s: there is no %s: %w", t.Name, scale, tensor.ErrCorrupt)
			}
		}
		p := narrowParts{t, &all[j]}
		if rule := s.set.excludes(strings.TrimSuffix(t.Name, ".weight")); rule != "" {
			return fmt.Errorf("%s: narrow, but quantization_config.%s names it: %w", t.Name, rule, tensor.ErrCorrupt)
		}
		m, err := p.matrix(name, s.set)
		if err != nil {
			return err
		}
		s.narrow[name] = p
		views = append(views, m.info)
	}
	if len(s.narrow) == 0 {
		return fmt.Errorf("config.json: quantization_config names %s, but there are no such tensors: %w", s.method, tensor.ErrCorrupt)
	}
	// If views have the names of their codes, the list stays sorted.
	s.infos = make([]tensor.Info, 0, len(all)-len(views))
	for i := range all {
		switch t := &all[i]; {
		case len(views) > 0 && s.narrow[views[0].Name].codes == t:
			s.infos, views = append(s.infos, views[0]), views[1:]
		case !s.hides(t.Name):
			s.infos = append(s.infos, *t)
		}
	}
	return nil
}

// hides reports whether a tensor of the checkpoint is a part of a narrow matrix of another name.
func (s *Source) hides(name string) bool {
	form, ok := narrowForms[s.method]
	if !ok {
		return false
	}
	p, ok := s.narrow[form.of(name)]
	return ok && (name == p.scales.Name || name == p.codes.Name)
}

// openNarrow opens the float view of a narrow matrix. Its parts are opened again for every reader: the base may count them.
func (s *Source) openNarrow(name string, p narrowParts) (*io.SectionReader, error) {
	m, err := p.matrix(name, s.set)
	if err != nil {
		return nil, err
	}
	if m.codes, err = s.base.Open(p.codes.Name); err != nil {
		return nil, err
	}
	if m.scales, err = s.base.Open(p.scales.Name); err != nil {
		return nil, err
	}
	return io.NewSectionReader(&view{info: m.info, rows: m.rows, cols: m.cols, floats: m.floats, single: true}, 0, m.info.Size), nil
}

func (m *narrow) check(scales *tensor.Info) error {
	if m.scaleType = scales.DType; m.scaleType == tensor.U8 {
		return nil
	}
	return kernel.ToF32(nil, nil, m.scaleType)
}
