package corpus

import (
	"encoding/binary"
	"io"
	"slices"

	parquetformat "github.com/parquet-go/parquet-go/format"
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
	const ends = "PAR1"
	tail := make([]byte, 8)
	if f.size < int64(len(ends)+len(tail)) {
		return corrupt("parquet: a file of %d bytes", f.size)
	}
	if _, err := f.ReadAt(tail, f.size-int64(len(tail))); err != nil {
		return err
	}
	if string(tail[4:]) != ends {
		return corrupt("parquet: the file ends with %q, not with %q; it may be cut off", tail[4:], ends)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > min(maxFooter, f.size-int64(len(ends)+len(tail))) {
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

// checkPages does the same for the pages of a column chunk, of which it reads only the headers.
func checkPages(f *file, meta *parquetformat.ColumnMetaData) error {
	offset, size := meta.DataPageOffset, meta.TotalCompressedSize
	if meta.DictionaryPageOffset != 0 {
		offset = meta.DictionaryPageOffset
	}
	if offset < 0 || size < 0 || offset > f.size || size > f.size-offset {
		return corrupt("parquet: a column at %d of %d bytes in a file of %d", offset, size, f.size)
	}
	buf := make([]byte, maxPageHeader)
	for end := offset + size; offset < end; {
		b := buf[:min(maxPageHeader, end-offset)]
		if _, err := f.ReadAt(b, offset); err != nil && err != io.EOF {
			return err
		}
		var inflated, stored int64
		var values []int64
		w := walker{b: b}
		w.structure(0, 0, func(outer, id int, v int64) {
			// PageHeader of parquet.thrift: 2 and 3 are sizes; 5, 7 and 8 are the headers of the kinds of pages,
			// which begin with the number of values.
			switch {
			case outer == 0 && id == 2:
				inflated = v
			case outer == 0 && id == 3:
				stored = v
			case id == 1 && slices.Contains([]int{5, 7, 8}, outer):
				values = append(values, v)
			}
		})
		if w.bad || inflated < 0 || inflated > maxPage || stored < 0 || stored > min(maxPage, end-offset-int64(w.at)) ||
			slices.ContainsFunc(values, func(v int64) bool { return v < 0 || v > maxPageValues }) {
			return corrupt("parquet: damaged page header at byte %d, or a page of more than %d bytes", offset, maxPage)
		}
		offset += int64(w.at) + stored
	}
	return nil
}
