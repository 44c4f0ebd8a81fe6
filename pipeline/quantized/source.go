// Package quantized reads checkpoints that are already quantized: GPTQ (both generations of zero points), AWQ
// (the gemm form) and compressed-tensors (pack-quantized), fp8 (e4m3 with a scale for every block of both dimensions, as
// in DeepSeek-V3) and mxfp4 (stacked experts, as in gpt-oss).
//
// [Open] wraps the checkpoint. The [Source] that it returns presents every packed matrix as an ordinary F32 tensor
// "<module>.weight" of shape [rows, cols] that is computed when it is read, so code that reads float checkpoints reads these
// too. [Source.Spec] and [Source.Blocks] return the same matrix as it is stored, for packages that keep codes and scales
// without rounding them again.
//
// All three formats store w = scale*(u - zp), with a code u and a zero point zp from 0 to 2^bits-1 and one (scale, zp)
// for a group of consecutive columns of a row. They differ in the layout; N are rows, K columns, G groups:
//
//	gptq                qweight I32 [K*bits/32, N]   codes of a column of words are one stream along K, low bits first
//	                    qzeros  I32 [G, N*bits/32]   one stream along N; gptq stores zp-1, gptq_v2 stores zp
//	                    scales      [G, N]
//	                    g_idx   I32 [K]              the group of each column; optional
//	awq                 qweight I32 [K, N/8]         nibbles of a word are columns 0 2 4 6 1 3 5 7 of eight
//	                    qzeros  I32 [G, N/8]         the same
//	                    scales      [G, N]
//	compressed-tensors  weight_packed     I32 [N, ceil(K*bits/32)]  a stream along K; older files leave bits of a word
//	                                                                unused where bits do not divide 32
//	                    weight_zero_point I32 [ceil(N*bits/32), G]  the same along N; absent if symmetric
//	                    weight_scale          [N, G]
//	                    weight_shape      I64 [2]                   N, K
//	                    weight_g_idx      I32 [K]                   optional; ignored if all are -1
//
// The two of floats:
//
//	fp8    weight F8_E4M3 [N, K], weight_scale_inv [ceil(N/height), ceil(K/width)]; w = element * scale
//	mxfp4  *_blocks U8 [E, N, K/32, 16]  two elements (e2m1) in a byte, the earlier one in the low half
//	       *_scales U8 [E, N, K/32]      w = element * 2^(scale-127); shown as "*.transposed" [E, N, K]
//
// Scales are F16, BF16 or F32. Sizes come from the shapes; quantization_config must agree with them.
package quantized

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Source is a checkpoint with packed matrices. It is a [tensor.Source]; all methods are safe for concurrent use.
type Source struct {
	base    tensor.Source
	method  string
	set     *settings
	config  []byte
	infos   []tensor.Info
	linears map[string]*linear
	narrow  map[string]narrowParts
	names   []string
	hidden  map[string]bool // packed tensors
}

var _ tensor.Source = (*Source)(nil)

// Open reads quantization_config of a config.json, checks the packed tensors of base against it and wraps base. It
// returns nil without an error if there is no quantization_config. No codes, zero points or scales are read.
//
// A method, version or option that is not supported is tensor.ErrUnsupported and named; tensors that contradict each
// other or the config are tensor.ErrCorrupt. Closing base ends the use of the source.
func Open(config []byte, base tensor.Source) (*Source, error) {
	set, rest, err := readConfig(config)
	if err != nil || set == nil {
		return nil, err
	}
	s := &Source{base: base, method: set.method, set: set, config: rest, linears: map[string]*linear{}, hidden: map[string]bool{}}
	if _, ok := narrowForms[set.method]; ok {
		err = s.findNarrow()
	} else {
		err = s.find(set)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

// find turns packed tensors into linears.
func (s *Source) find(set *settings) error {
	form := forms[set.method]
	all := s.base.Tensors()
	tensors := tensor.ByName(all)
	for _, t := range all {
		module, part, ok := cutPart(t.Name, form.parts)
		if !ok {
			s.infos = append(s.infos, t)
			continue
		}
		if _, ok := tensors[module+"."+form.parts[0]]; !ok {
			return fmt.Errorf("%s: %s.%s, to which it belongs, is missing: %w", t.Name, module, form.parts[0], tensor.ErrCorrupt)
		}
		s.hidden[t.Name] = true
		if part != form.parts[0] {
			continue
		}
		name := module + ".weight"
		if _, twice := tensors[name]; twice {
			return fmt.Errorf("%s: stored both packed and as floats: %w", name, tensor.ErrCorrupt)
		}
		if rule := set.excludes(module); rule != "" {
			return fmt.Errorf("%s: packed, but quantization_config.%s names it: %w", t.Name, rule, tensor.ErrCorrupt)
		}
		l, err := form.open(&parts{source: s.base, tensors: tensors, module: module}, set)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.info.Name, l.info.File = name, t.File
		s.linears[name] = l
		s.names = append(s.names, name)
		s.infos = append(s.infos, l.info)
	}
	if len(s.linears) == 0 {
		return fmt.Errorf("config.json: quantization_config names %s, but no tensor is named .%s: %w", set.method, form.parts[0], tensor.ErrCorrupt)
	}
	slices.Sort(s.names)
	return nil
}

// cutPart splits the name of a packed tensor into its module and its part.
func cutPart(name string, parts []string) (module, part string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || !slices.Contains(parts, name[i+1:]) {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// Method returns the quant_method of the config: "gptq", "awq", "compressed-tensors", "fp8" or "mxfp4".
func (s *Source) Method() string { return s.method }

// Config returns config.json without its quantization_config, which describes the float view. It must not be changed.
func (s *Source) Config() []byte { return s.config }

// Names lists the matrices that are packed codes, sorted; matrices of fp8 and mxfp4, which only have a float view, are not
// included. The list must not be changed.
func (s *Source) Names() []string { return s.names }

// Tensors implements tensor.Source: packed matrices as F32 tensors, everything else as it is. The list must not be
// changed.
func (s *Source) Tensors() []tensor.Info { return slices.Clip(s.infos) }

// Open implements tensor.Source. A packed matrix is the float32 product scale*(u - zp) for every code, the same bits
// on every machine; an invalid scale or zero point is a tensor.ErrCorrupt when it is read. Packed tensors cannot be opened by
// their own names.
func (s *Source) Open(name string) (*io.SectionReader, error) {
	if l := s.linears[name]; l != nil {
		return io.NewSectionReader(&view{info: l.info, rows: l.rows, cols: l.cols, floats: l.floats}, 0, l.info.Size), nil
	}
	if p, ok := s.narrow[name]; ok {
		return s.openNarrow(name, p)
	}
	if s.hidden[name] || s.hides(name) {
		return nil, fmt.Errorf("tensor %s: only readable as part of a float matrix: %w", name, tensor.ErrUnsupported)
	}
	return s.base.Open(name)
}

// Spec returns the form in which a matrix can be stored without changing a weight; false if name is not packed. The first call
// reads the scales and zero points of the matrix.
//
// Codes stay as they are. A matrix whose zero points all are 2^(bits-1) is symmetric. Scales are F16 if F16 holds every
// scale and zero term exactly, else F32; a caller may always widen them to F32. Groups become blocks of 128, 64 or 32
// columns, the longest that divides them, or a whole row. Other matrices are a tensor.ErrUnsupported: columns in the order of
// their activations, short groups, zero terms that F32 does not represent.
func (s *Source) Spec(name string) (quant.Spec, bool, error) {
	l := s.linears[name]
	if l == nil {
		return quant.Spec{}, false, nil
	}
	sp, err := l.storage()
	if err != nil {
		return quant.Spec{}, true, fmt.Errorf("%s: %w", name, err)
	}
	return sp, true, nil
}

// Blocks writes rows lo to hi-1 of a packed matrix to dst, exactly as stored. dst has the layout of these rows in the
// spec that [Source.Spec] gives.
func (s *Source) Blocks(dst quant.Blocks, name string, lo, hi int) error {
	l := s.linears[name]
	if l == nil {
		return fmt.Errorf("internal error: %s is not packed", name)
	}
	sp, err := l.storage()
	if err == nil {
		err = l.blocks(dst, sp, lo, hi)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Parts lists the tensors of the checkpoint from which a tensor of this source is read or computed.
func (s *Source) Parts(name string) []string {
	if p, ok := s.narrow[name]; ok {
		return []string{p.codes.Name, p.scales.Name}
	}
	if s.linears[name] == nil {
		return []string{name}
	}
	var list []string
	for _, part := range forms[s.method].parts {
		if n := strings.TrimSuffix(name, "weight") + part; s.hidden[n] {
			list = append(list, n)
		}
	}
	return list
}
