package corpus

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go/format"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// plainDictionary is the encoding of a dictionary's page, and of indices, in files of old writers.
//
//lint:ignore SA1019 old files name this encoding
const plainDictionary = format.PlainDictionary

// Limits of a page, in bytes and in values. Writers make pages of about a mebibyte, but one never holds less than a
// text, and repeated words take next to nothing.
const (
	maxPage       = 256 << 20
	maxPageValues = 16 << 20
	maxPageHeader = 64 << 10
	// largestPageHeader is that of writers that put the least and the largest value of a page into its header, however long these are.
	largestPageHeader = 64 << 20
)

// pageHeader is PageHeader of parquet.thrift, by the ids of its fields: 5, 7 and 8 are data pages, dictionaries and
// data pages of version 2.
type pageHeader struct {
	kind             int64
	inflated, stored int64 // bytes of the page without and with compression
	values, encoding int64
	defs, reps       int64 // bytes of the levels, in pages of version 2
	levels           [2]int64
	plain            bool // a page of version 2 that is not compressed
}

func (h *pageHeader) visit(outer, id int, v int64) {
	switch [2]int{outer, id} {
	case [2]int{0, 1}:
		h.kind = v
	case [2]int{0, 2}:
		h.inflated = v
	case [2]int{0, 3}:
		h.stored = v
	case [2]int{5, 1}, [2]int{7, 1}, [2]int{8, 1}:
		h.values = v
	case [2]int{5, 2}, [2]int{7, 2}, [2]int{8, 4}:
		h.encoding = v
	case [2]int{5, 3}, [2]int{5, 4}:
		h.levels[id-3] = v
	case [2]int{8, 5}:
		h.defs = v
	case [2]int{8, 6}:
		h.reps = v
	case [2]int{8, 7}:
		h.plain = v == 0
	}
}

// pages reads the pages of a column chunk of byte arrays one after the other.
type pages struct {
	f       *file
	leaf    *leaf
	at, end int64
	inflate *inflater
	head    []byte
	stored  []byte
	dict    *values

	// The current page: n values, of which those at the highest definition level are not null.
	n          int
	reps, defs []byte // a level for each, or nil where the level is always 0
	values     values
	index      []uint32 // in dict, instead of values
}

// values are byte arrays in PLAIN encoding: of each a length of 4 bytes, and the bytes.
type values struct {
	b      []byte
	starts []uint32
}

func (v *values) get(i int) []byte {
	b := v.b[v.starts[i]:]
	return b[4 : 4+binary.LittleEndian.Uint32(b)]
}

// newValues finds n byte arrays in b.
func newValues(b []byte, n int, starts []uint32) (values, bool) {
	starts = starts[:0]
	for at := 0; len(starts) < n; {
		if len(b)-at < 4 {
			return values{}, false
		}
		size := binary.LittleEndian.Uint32(b[at:])
		if uint64(size) > uint64(len(b)-at-4) {
			return values{}, false
		}
		starts = append(starts, uint32(at))
		at += 4 + int(size)
	}
	return values{b, starts}, true
}

func newPages(f *file, l *leaf, meta *format.ColumnMetaData) (*pages, error) {
	at, size := meta.DataPageOffset, meta.TotalCompressedSize
	// Some writers give 0 as the offset of a missing dictionary.
	if d := meta.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	if at < 0 || size < 0 || at > f.size || size > f.size-at {
		return nil, corrupt("parquet: a column at %d of %d bytes in a file of %d", at, size, f.size)
	}
	inflate, err := newInflater(meta.Codec)
	if err != nil {
		return nil, err
	}
	return &pages{f: f, leaf: l, at: at, end: at + size, inflate: inflate}, nil
}

func (p *pages) close() { p.inflate.close() }

// next reads a page of values; io.EOF is the end of the column chunk.
func (p *pages) next() error {
	for p.at < p.end {
		offset := p.at
		h, err := p.header()
		if err != nil {
			return err
		}
		if h.kind == int64(format.IndexPage) {
			p.at += h.stored
			continue
		}
		p.stored = slices.Grow(p.stored[:0], int(h.stored))[:h.stored]
		if _, err := p.f.ReadAt(p.stored, p.at); err != nil {
			return err
		}
		p.at += h.stored
		if err := p.decode(h); err != nil {
			return fmt.Errorf("parquet: page at byte %d: %w", offset, err)
		}
		if h.kind != int64(format.DictionaryPage) {
			return nil
		}
	}
	return io.EOF
}

func (p *pages) header() (*pageHeader, error) {
	var h *pageHeader
	var w walker
	for most := int64(maxPageHeader); most <= largestPageHeader; most *= 32 {
		n := int(min(most, p.end-p.at))
		p.head = slices.Grow(p.head[:0], n)[:n]
		if _, err := p.f.ReadAt(p.head, p.at); err != nil && err != io.EOF {
			return nil, err
		}
		h, w = new(pageHeader), walker{b: p.head}
		if w.structure(0, 0, h.visit); !w.bad || int64(n) == p.end-p.at {
			break
		}
	}
	left := p.end - p.at - int64(w.at)
	if w.bad || h.inflated < 0 || h.stored < 0 || h.stored > left || h.values < 0 || h.defs < 0 || h.reps < 0 ||
		h.defs+h.reps > min(h.stored, h.inflated) {
		return nil, corrupt("parquet: damaged page header at byte %d", p.at)
	}
	if h.inflated > maxPage || h.stored > maxPage || h.values > maxPageValues {
		return nil, corrupt("parquet: a page of %d bytes with %d values at byte %d; the limits are %d and %d",
			max(h.inflated, h.stored), h.values, p.at, maxPage, maxPageValues)
	}
	p.at += int64(w.at)
	return h, nil
}

func (p *pages) decode(h *pageHeader) error {
	levels := int(h.defs + h.reps)
	body := p.stored[levels:]
	if h.kind == int64(format.DataPageV2) && (h.plain || len(body) == 0) {
		if len(p.stored) != int(h.inflated) {
			return corrupt("%d bytes, not %d", len(p.stored), h.inflated)
		}
	} else {
		var ok bool
		if body, ok = p.inflate.bytes(body, int(h.inflated)-levels); !ok {
			return corrupt("it does not decompress to %d bytes", h.inflated)
		}
	}
	if h.kind == int64(format.DictionaryPage) {
		if e := format.Encoding(h.encoding); e != format.Plain && e != plainDictionary {
			return fmt.Errorf("dictionary in encoding %v: %w", e, tensor.ErrUnsupported)
		}
		// The next page reuses the memory of this one.
		d, ok := newValues(slices.Clone(body), int(h.values), nil)
		if !ok {
			return corrupt("damaged dictionary")
		}
		p.dict = &d
		return nil
	}

	p.n = int(h.values)
	reps, defs := p.stored[:h.reps], p.stored[h.reps:levels]
	var ok bool
	switch h.kind {
	case int64(format.DataPageV2):
	case int64(format.DataPage):
		if (p.leaf.defs > 0 && h.levels[0] != int64(format.RLE)) || (p.leaf.reps > 0 && h.levels[1] != int64(format.RLE)) {
			return fmt.Errorf("levels that are not in encoding RLE: %w", tensor.ErrUnsupported)
		}
		if reps, body, ok = cutLevels(body, p.leaf.reps); !ok {
			return corrupt("damaged levels")
		}
		if defs, body, ok = cutLevels(body, p.leaf.defs); !ok {
			return corrupt("damaged levels")
		}
	default:
		return fmt.Errorf("page of type %d: %w", h.kind, tensor.ErrUnsupported)
	}
	if p.reps, ok = readLevels(p.reps, reps, p.leaf.reps, p.n); !ok {
		return corrupt("damaged repetition levels")
	}
	if p.defs, ok = readLevels(p.defs, defs, p.leaf.defs, p.n); !ok {
		return corrupt("damaged definition levels")
	}
	there := p.n
	for _, l := range p.defs {
		if int(l) < p.leaf.defs {
			there--
		}
	}
	return p.decodeValues(format.Encoding(h.encoding), body, there)
}

func (p *pages) decodeValues(e format.Encoding, body []byte, n int) (err error) {
	var ok bool
	switch e {
	case format.Plain:
		p.index = p.index[:0]
		p.values, ok = newValues(body, n, p.values.starts)
	case format.DeltaLengthByteArray:
		p.index = p.index[:0]
		if body, ok = plainOf(body, n); ok {
			p.values, ok = newValues(body, n, p.values.starts)
		}
	case plainDictionary, format.RLEDictionary:
		p.values = values{starts: p.values.starts[:0]}
		if n == 0 {
			p.index = p.index[:0]
			return nil
		}
		if p.dict == nil || len(body) == 0 || body[0] > 31 {
			break
		}
		p.index, ok = readRuns(p.index[:0], body[1:], int(body[0]), n)
		ok = ok && !slices.ContainsFunc(p.index, func(i uint32) bool { return int64(i) >= int64(len(p.dict.starts)) })
	default:
		return fmt.Errorf("encoding %v, known are PLAIN, RLE_DICTIONARY and DELTA_LENGTH_BYTE_ARRAY: %w", e, tensor.ErrUnsupported)
	}
	if !ok {
		return corrupt("damaged values")
	}
	return nil
}

// value is the i-th value that is not null.
func (p *pages) value(i int) []byte {
	if len(p.index) > 0 {
		return p.dict.get(int(p.index[i]))
	}
	return p.values.get(i)
}

// cutLevels takes the levels off a page of version 1: a length of 4 bytes, and runs. highest is the highest level;
// if that is 0 there are none.
func cutLevels(b []byte, highest int) (runs, rest []byte, ok bool) {
	if highest == 0 {
		return nil, b, true
	}
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, false
	}
	end := 4 + int(binary.LittleEndian.Uint32(b))
	return b[4:end], b[end:], true
}

func readLevels(dst, runs []byte, highest, n int) ([]byte, bool) {
	if highest == 0 {
		return nil, true
	}
	all, ok := readRuns(dst[:0], runs, bits.Len(uint(highest)), n)
	return all, ok && !slices.ContainsFunc(all, func(l byte) bool { return int(l) > highest })
}

// readRuns appends n integers of width bits in the encoding RLE, which mixes runs of one value with packed ones.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#run-length-encoding--bit-packing-hybrid-rle--3
func readRuns[T byte | uint32](dst []T, b []byte, width, n int) ([]T, bool) {
	size := (width + 7) / 8
	for len(dst) < n {
		head, k := binary.Uvarint(b)
		if k <= 0 {
			return dst, false
		}
		b = b[k:]
		if head&1 == 0 {
			if len(b) < size || head == 0 {
				return dst, false
			}
			var v uint32
			for i, c := range b[:size] {
				v |= uint32(c) << (8 * i)
			}
			b = b[size:]
			for range min(head>>1, uint64(n-len(dst))) {
				dst = append(dst, T(v))
			}
			continue
		}
		// Groups of 8 values. The last group may exceed the number of values, and some writers truncate it.
		groups := head >> 1
		if groups == 0 || groups > maxPageValues {
			return dst, false
		}
		packed := b[:min(len(b), int(groups)*width)]
		b = b[len(packed):]
		r := bitReader{b: packed}
		for range min(int(groups)*8, n-len(dst)) {
			if r.at+width > 8*len(packed) {
				return dst, false
			}
			dst = append(dst, T(r.read(width)))
		}
	}
	return dst, true
}
