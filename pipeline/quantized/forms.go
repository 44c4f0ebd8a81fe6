package quantized

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// form is a way to store packed matrices.
type form struct {
	// parts are the last words of the names of the tensors of a matrix; the first is that of the codes.
	parts []string
	open  func(p *parts, set *settings) (*linear, error)
}

// forms are those of each quant_method.
var forms = map[string]form{
	"gptq":               {[]string{"qweight", "qzeros", "scales", "g_idx"}, openGPTQ},
	"awq":                {[]string{"qweight", "qzeros", "scales"}, openAWQ},
	"compressed-tensors": {[]string{"weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"}, openCompressed},
}

// parts are the tensors of one matrix.
type parts struct {
	source  tensor.Source
	tensors map[string]*tensor.Info
	module  string
}

func (p *parts) has(part string) bool { return p.tensors[p.module+"."+part] != nil }

// matrix returns a tensor of a type and of two dimensions.
func (p *parts) matrix(part string, types ...tensor.DType) (data io.ReaderAt, t tensor.DType, rows, cols int, err error) {
	data, info, err := p.open(part, 2, types...)
	if err != nil {
		return nil, 0, 0, 0, err
	}
	return data, info.DType, int(info.Shape[0]), int(info.Shape[1]), nil
}

// maxSide bounds rows and columns so that products with a few bits fit an int of 32 bits.
const maxSide = math.MaxInt32 / 64

// open opens a tensor of one of some types and of a number of dimensions, none of which is empty.
func (p *parts) open(part string, rank int, types ...tensor.DType) (*io.SectionReader, tensor.Info, error) {
	found := p.tensors[p.module+"."+part]
	if found == nil {
		return nil, tensor.Info{}, fmt.Errorf("%s is missing: %w", part, tensor.ErrCorrupt)
	}
	info := *found
	if !slices.Contains(types, info.DType) {
		return nil, info, fmt.Errorf("%s is of type %v, not %v: %w", part, info.DType, types, tensor.ErrUnsupported)
	}
	outside := func(d int64) bool { return d < 1 || d > maxSide }
	if len(info.Shape) != rank || slices.ContainsFunc(info.Shape, outside) {
		return nil, info, fmt.Errorf("%s has shape %v: %w", part, info.Shape, tensor.ErrCorrupt)
	}
	size, err := info.Shape.Elements()
	if err == nil {
		size, err = tensor.Mul(size, info.DType.Size())
	}
	if err != nil {
		return nil, info, fmt.Errorf("%s: %w", part, err)
	}
	r, err := p.source.Open(info.Name)
	if err != nil {
		return nil, info, err
	}
	if r.Size() != size {
		return nil, info, fmt.Errorf("%s: %v %v takes %d bytes, not %d: %w", part, info.DType, info.Shape, size, r.Size(), tensor.ErrCorrupt)
	}
	return r, info, nil
}

// scaleTypes are those that scales may have.
var scaleTypes = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32}

// openColumns reads the tensors that GPTQ and AWQ have in common: codes as [cols, rows], terms as [groups, rows]. l has the bits
// and the number of columns.
func openColumns(p *parts, l *linear, set *settings, o order) error {
	l.transposed, l.zeroAdd = true, set.zeroAdd
	var err error
	if l.scales, l.scaleType, l.groups, l.rows, err = p.matrix("scales", scaleTypes...); err != nil {
		return err
	}
	zeros, _, zr, zc, err := p.matrix("qzeros", tensor.I32)
	if err != nil {
		return err
	}
	if l.rows%8 != 0 || zr != l.groups || zc != o.need(l.rows, l.bits) {
		return fmt.Errorf("qzeros [%d %d] do not match %d rows of %d groups and %d bits: %w", zr, zc, l.rows, l.groups, l.bits, tensor.ErrCorrupt)
	}
	l.zeros = &words{data: zeros, rows: zr, cols: zc, bits: l.bits, axis: across, order: o}
	return l.finish(set)
}

// gptqBits are the widths of GPTQ's codes.
var gptqBits = []int{2, 3, 4, 8}

func openGPTQ(p *parts, set *settings) (*linear, error) {
	l := &linear{bits: set.schemes[0].bits}
	data, _, wr, wc, err := p.matrix("qweight", tensor.I32)
	if err != nil {
		return nil, err
	}
	if set.anyScheme {
		// A rule may give this module other bits. The zero points of a group have as many as there are rows.
		_, _, _, zc, err := p.matrix("qzeros", tensor.I32)
		if err != nil {
			return nil, err
		}
		if l.bits = zc * 32 / wc; !slices.Contains(gptqBits, l.bits) {
			return nil, fmt.Errorf("qzeros has %d words for %d rows, which implies codes of %d bits, not of %v: %w", zc, wc, l.bits, gptqBits, tensor.ErrCorrupt)
		}
	}
	if wr*32%l.bits != 0 {
		return nil, fmt.Errorf("qweight has %d words a column, which codes of %d bits do not fill: %w", wr, l.bits, tensor.ErrCorrupt)
	}
	l.cols = wr * 32 / l.bits
	l.codes = words{data: data, rows: wr, cols: wc, bits: l.bits, axis: down, order: dense}
	if err := openColumns(p, l, set, dense); err != nil {
		return nil, err
	}
	if wc != l.rows {
		return nil, fmt.Errorf("qweight has %d rows of weights, scales %d: %w", wc, l.rows, tensor.ErrCorrupt)
	}
	return l, l.index(p, "g_idx")
}

func openAWQ(p *parts, set *settings) (*linear, error) {
	l := &linear{bits: 4}
	data, _, wr, wc, err := p.matrix("qweight", tensor.I32)
	if err != nil {
		return nil, err
	}
	l.cols = wr
	l.codes = words{data: data, rows: wr, cols: wc, bits: 4, axis: across, order: interleaved}
	if err := openColumns(p, l, set, interleaved); err != nil {
		return nil, err
	}
	if wc*8 != l.rows {
		return nil, fmt.Errorf("qweight has %d rows of weights, scales %d: %w", wc*8, l.rows, tensor.ErrCorrupt)
	}
	return l, nil
}

func openCompressed(p *parts, set *settings) (*linear, error) {
	data, _, wr, wc, err := p.matrix("weight_packed", tensor.I32)
	if err != nil {
		return nil, err
	}
	shape, err := p.integers("weight_shape", 2)
	if err != nil {
		return nil, err
	}
	if shape[0] != int64(wr) || shape[1] < 1 || shape[1] > maxSide {
		return nil, fmt.Errorf("weight_shape is %v, weight_packed has %d rows: %w", shape, wr, tensor.ErrCorrupt)
	}
	l := &linear{rows: wr, cols: int(shape[1])}
	var sr int
	if l.scales, l.scaleType, sr, l.groups, err = p.matrix("weight_scale", scaleTypes...); err != nil {
		return nil, err
	}
	if sr != l.rows {
		return nil, fmt.Errorf("weight_scale has %d rows, not %d: %w", sr, l.rows, tensor.ErrCorrupt)
	}
	// The schemes of the config select modules by patterns; the shapes determine the same without them.
	for _, c := range set.schemes {
		for _, o := range []order{dense, padded} {
			if o.need(l.cols, c.bits) != wc || c.groups(l.cols) != l.groups || c.symmetric == p.has("weight_zero_point") {
				continue
			}
			l.bits, l.symmetric, l.group = c.bits, c.symmetric, c.size(l.cols)
			l.codes = words{data: data, rows: wr, cols: wc, bits: c.bits, axis: across, order: o}
			if !c.symmetric {
				zeros, _, zr, zc, err := p.matrix("weight_zero_point", tensor.I32)
				if err != nil {
					return nil, err
				}
				if zr != o.need(l.rows, c.bits) || zc != l.groups {
					return nil, fmt.Errorf("weight_zero_point [%d %d] does not match %d rows of %d groups and %d bits: %w", zr, zc, l.rows, l.groups,
						c.bits, tensor.ErrCorrupt)
				}
				l.zeros = &words{data: zeros, rows: zr, cols: zc, bits: c.bits, axis: down, order: o}
			}
			if err := l.describe(); err != nil {
				return nil, err
			}
			return l, l.index(p, "weight_g_idx")
		}
	}
	return nil, fmt.Errorf("[%d %d] weights in %d words a row with %d groups, zero points: %t: no group of config_groups matches: %w",
		l.rows, l.cols, wc, l.groups, p.has("weight_zero_point"), tensor.ErrCorrupt)
}

// finish takes the group size of the only scheme or, if modules may differ, the one that the shapes imply.
func (l *linear) finish(set *settings) error {
	c := set.schemes[0]
	l.group, l.symmetric = c.size(l.cols), c.symmetric && !set.anyScheme
	if set.anyScheme && c.groups(l.cols) != l.groups {
		l.group = (l.cols + l.groups - 1) / l.groups
		c.group = l.group
	}
	if c.groups(l.cols) != l.groups {
		return fmt.Errorf("scales have %d groups of %d columns, group_size of the config is %d: %w", l.groups, l.cols, c.group, tensor.ErrCorrupt)
	}
	return l.describe()
}

// describe sets the facts of the float view.
func (l *linear) describe() error {
	n, err := tensor.Mul(int64(l.rows), int64(l.cols))
	if err == nil {
		n, err = tensor.Mul(n, 4)
	}
	l.info = tensor.Info{DType: tensor.F32, Shape: tensor.Shape{int64(l.rows), int64(l.cols)}, Size: n}
	return err
}

// index reads the group of every column if there is a tensor of them, and keeps it if it differs from column/group.
func (l *linear) index(p *parts, part string) error {
	if !p.has(part) {
		return nil
	}
	of, err := p.integers(part, l.cols)
	if err != nil {
		return err
	}
	trivial, none := true, true
	for c, g := range of {
		trivial = trivial && g == int64(c/l.group)
		none = none && g == -1
	}
	if trivial || none && part == "weight_g_idx" {
		return nil
	}
	l.of = make([]int32, l.cols)
	for c, g := range of {
		if g < 0 || g >= int64(l.groups) {
			return fmt.Errorf("%s: group %d of column %d, there are %d: %w", part, g, c, l.groups, tensor.ErrCorrupt)
		}
		l.of[c] = int32(g)
	}
	return nil
}

// integers reads a vector of n integers.
func (p *parts) integers(part string, n int) ([]int64, error) {
	r, info, err := p.open(part, 1, tensor.I32, tensor.I64)
	if err != nil {
		return nil, err
	}
	if info.Shape[0] != int64(n) {
		return nil, fmt.Errorf("%s has %d numbers, not %d: %w", part, info.Shape[0], n, tensor.ErrCorrupt)
	}
	raw := make([]byte, info.Size)
	if err := readFull(r, raw, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	v := make([]int64, n)
	for i := range v {
		if info.DType == tensor.I64 {
			v[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		} else {
			v[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	}
	return v, nil
}
