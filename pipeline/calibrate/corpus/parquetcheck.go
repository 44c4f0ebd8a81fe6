package corpus

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go/format"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Limits of what the library is let to allocate for one file, in bytes, and in values of one page. Writers make pages
// of about a mebibyte; one page never holds less than one text.
const (
	maxFooter     = 64 << 20
	maxPage       = 256 << 20
	maxPageValues = 16 << 20
	maxPageHeader = 64 << 10
)

// checkFooter makes sure that the library is able to read the metadata without allocating more than it is worth.
func checkFooter(f *file) error {
	const mark = "PAR1"
	tail := make([]byte, 8)
	if f.size < int64(len(mark)+len(tail)) {
		return corrupt("parquet: a file of %d bytes", f.size)
	}
	if _, err := f.ReadAt(tail, f.size-int64(len(tail))); err != nil {
		return err
	}
	if string(tail[4:]) != mark {
		return corrupt("parquet: the file ends with %q, not with %q; it may be cut off", tail[4:], mark)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > min(maxFooter, f.size-int64(len(mark)+len(tail))) {
		return corrupt("parquet: metadata of %d bytes in a file of %d", n, f.size)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, f.size-int64(len(tail))-n); err != nil {
		return err
	}
	w := walker{b: b}
	if w.structure(0, 0, func(int, int, int64) {}); w.bad {
		return corrupt("parquet: damaged metadata")
	}
	return nil
}

// pageHeader is what decides how much memory a page takes.
type pageHeader struct {
	inflated, stored int64 // bytes of the page with and without compression
	values           int64
	encoding         int64
	levels           int64 // bytes before the compressed part, in pages of version 2
	plain            bool  // a page of version 2 that is not compressed
}

// visit takes a field of PageHeader in parquet.thrift: 2 and 3 are sizes; 5, 7 and 8 are the headers of data pages,
// dictionaries and data pages of version 2.
func (h *pageHeader) visit(outer, id int, v int64) {
	switch [2]int{outer, id} {
	case [2]int{0, 2}:
		h.inflated = v
	case [2]int{0, 3}:
		h.stored = v
	case [2]int{5, 1}, [2]int{7, 1}, [2]int{8, 1}:
		if v < 0 || v > maxPageValues {
			v = maxPageValues + 1
		}
		h.values = max(h.values, v)
	case [2]int{5, 2}, [2]int{7, 2}, [2]int{8, 4}:
		h.encoding = v
	case [2]int{8, 5}, [2]int{8, 6}:
		if h.levels += v; v < 0 || v > maxPage {
			h.levels = maxPage + 1
		}
	case [2]int{8, 7}:
		h.plain = v == 0
	}
}

// encodings are those that the library reads in memory in proportion to a page. DELTA_BYTE_ARRAY is not among them.
var encodings = []int64{int64(format.Plain), int64(format.PlainDictionary), int64(format.RLEDictionary), int64(format.DeltaLengthByteArray)}

// checkPages goes over the pages of a column chunk and decompresses them within what their headers say, because the
// library does so without a limit.
func checkPages(f *file, meta *format.ColumnMetaData) error {
	offset, size := meta.DataPageOffset, meta.TotalCompressedSize
	if meta.DictionaryPageOffset != 0 {
		offset = meta.DictionaryPageOffset
	}
	if offset < 0 || size < 0 || offset > f.size || size > f.size-offset {
		return corrupt("parquet: a column at %d of %d bytes in a file of %d", offset, size, f.size)
	}
	inflate, err := newInflater(meta.Codec)
	if err != nil {
		return err
	}
	defer inflate.close()
	var head, page []byte
	for end := offset + size; offset < end; {
		head = slices.Grow(head[:0], maxPageHeader)[:min(maxPageHeader, end-offset)]
		if _, err := f.ReadAt(head, offset); err != nil && err != io.EOF {
			return err
		}
		var h pageHeader
		w := walker{b: head}
		w.structure(0, 0, h.visit)
		if w.bad || h.inflated < 0 || h.stored < 0 || h.stored > end-offset-int64(w.at) || h.levels > min(h.stored, h.inflated) {
			return corrupt("parquet: damaged page header at byte %d", offset)
		}
		if h.inflated > maxPage || h.stored > maxPage || h.values > maxPageValues {
			return corrupt("parquet: a page of %d bytes with %d values at byte %d; the limits are %d and %d", max(h.inflated, h.stored), h.values, offset, maxPage, maxPageValues)
		}
		if !slices.Contains(encodings, h.encoding) {
			return fmt.Errorf("parquet: encoding %v: %w", format.Encoding(h.encoding), tensor.ErrUnsupported)
		}
		if h.stored > h.levels && !h.plain {
			page = slices.Grow(page[:0], int(h.stored))[:h.stored]
			if _, err := f.ReadAt(page, offset+int64(w.at)); err != nil {
				return err
			}
			if !inflate.is(page[h.levels:], int(h.inflated-h.levels)) {
				return corrupt("parquet: the page at byte %d does not decompress to %d bytes", offset, h.inflated)
			}
		}
		offset += int64(w.at) + h.stored
	}
	return nil
}
