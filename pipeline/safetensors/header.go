package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// MaxHeader is the longest JSON header that is read, in bytes; the format's own limit.
const MaxHeader = 100_000_000

// maxRank bounds the memory that one shape costs; no known model stores more than six dimensions.
const maxRank = 32

const metadataKey = "__metadata__"

// Header describes the tensors of one file.
type Header struct {
	// Entries are the tensors in the order of their bytes. Info.File is empty.
	Entries []Entry
	// Metadata is the optional string map of the header; nil when there is none.
	Metadata map[string]string
	// Size is the number of bytes before the first tensor: 8 and the JSON with its padding.
	Size int64
}

// Entry is one tensor of a file.
type Entry struct {
	tensor.Info
	// Offset is the position of the first byte, counted from the start of the file.
	Offset int64
}

// HeaderSize reads the length from the first 8 bytes of a file that is fileSize bytes long, and gives
// the number of bytes that [ParseHeader] needs. The result is at most 8 + [MaxHeader] and at most
// fileSize; any other length is tensor.ErrCorrupt.
func HeaderSize(first []byte, fileSize int64) (int64, error) {
	if len(first) < 8 || fileSize < 8 {
		return 0, corrupt("header: no room for its 8-byte length in a file of %d bytes", fileSize)
	}
	n := binary.LittleEndian.Uint64(first)
	if n > MaxHeader {
		return 0, corrupt("header: length %d exceeds %d", n, MaxHeader)
	}
	if int64(n) > fileSize-8 {
		return 0, corrupt("header: length %d does not fit a file of %d bytes", n, fileSize)
	}
	return 8 + int64(n), nil
}

// ReadHeader reads and checks the header of a file that is size bytes long. Errors of r are returned
// as they are; everything wrong with the bytes is tensor.ErrCorrupt or tensor.ErrUnsupported. No tensor
// byte is read, and no more memory is taken than a small multiple of the header's length.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	var first [8]byte
	if size >= int64(len(first)) {
		if err := readAt(r, first[:]); err != nil {
			return nil, err
		}
	}
	n, err := HeaderSize(first[:], size)
	if err != nil {
		return nil, err
	}
	var text strings.Builder // which gives its bytes away without a copy
	text.Grow(int(n))
	got, err := io.Copy(&text, io.NewSectionReader(r, int64(len(first)), n-int64(len(first))))
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if got < n-int64(len(first)) {
		return nil, shortHeader(int64(len(first))+got, n)
	}
	return parse(text.String(), n, size)
}

func shortHeader(got, want int64) error {
	return corrupt("header: the file ends after %d of %d bytes", got, want)
}

func readAt(r io.ReaderAt, b []byte) error {
	n, err := r.ReadAt(b, 0)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return shortHeader(int64(n), int64(len(b)))
	}
	return fmt.Errorf("header: %w", err)
}

// ParseHeader checks the header in b, the first bytes of a file that is fileSize bytes long; b holds at
// least the bytes that [HeaderSize] counts and may hold more. Errors are those of [ReadHeader].
func ParseHeader(b []byte, fileSize int64) (*Header, error) {
	size, err := HeaderSize(b, fileSize)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) < size {
		return nil, corrupt("header: %d of %d bytes", len(b), size)
	}
	return parse(string(b[8:size]), size, fileSize)
}

// parse is ParseHeader of the JSON; the header has size bytes.
func parse(text string, size, fileSize int64) (*Header, error) {
	if text == "" || text[0] != '{' {
		return nil, corrupt("header: does not begin with {")
	}
	if !utf8.ValidString(text) {
		return nil, corrupt("header: not valid UTF-8")
	}
	h := &Header{Size: size}
	if err := h.decode(text); err != nil {
		return nil, err
	}
	if err := h.place(fileSize); err != nil {
		return nil, err
	}
	return h, nil
}

// decode reads the JSON; Offset is relative to the data until place has run.
func (h *Header) decode(text string) error {
	d := &decoder{text: text}
	n := strings.Count(text, `"data_offsets"`)
	h.Entries = make([]Entry, 0, n)
	seen := make(map[string]struct{}, n)
	// Shapes lie one after another, and none can grow into the next.
	dims := make([]int64, 0, 2*n)
	err := d.members("header", func(name string) error {
		if _, ok := seen[name]; ok {
			return twice("header", name)
		}
		if name == metadataKey {
			seen[name] = struct{}{}
			h.Metadata = map[string]string{}
			return d.members(metadataKey, func(key string) (err error) {
				if _, ok := h.Metadata[key]; ok {
					return twice(metadataKey, key)
				}
				h.Metadata[strings.Clone(key)], err = d.kept(metadataKey)
				return err
			})
		}
		name = strings.Clone(name)
		seen[name] = struct{}{}
		e, err := d.entry(name, &dims)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(name), err)
		}
		h.Entries = append(h.Entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	return d.end("header")
}

// entry reads the header's entry of a tensor. Its shape is appended to dims.
func (d *decoder) entry(name string, dims *[]int64) (Entry, error) {
	e := Entry{Info: tensor.Info{Name: name, Shape: tensor.Shape{}}}
	first := len(*dims)
	var keys, end int64
	err := d.object("entry", func(key string) (err error) {
		keys++
		switch key {
		case "dtype":
			var s string
			if s, err = d.string(key); err == nil {
				if len(s) > 32 {
					return corrupt("dtype %s", quote(s))
				}
				e.DType, err = tensor.ParseDType(s)
			}
		case "shape":
			err = d.array(key, func() error {
				if len(*dims)-first == maxRank {
					return corrupt("shape: more than %d dimensions", maxRank)
				}
				n, err := d.natural(key)
				*dims = append(*dims, n)
				return err
			})
			e.Shape = (*dims)[first:len(*dims):len(*dims)]
		case "data_offsets":
			i := 0
			err = d.array(key, func() (err error) {
				switch i++; i {
				case 1:
					e.Offset, err = d.natural(key)
				case 2:
					end, err = d.natural(key)
				default:
					err = corrupt("data_offsets: more than two")
				}
				return err
			})
			if err == nil && i != 2 {
				err = corrupt("data_offsets: %d and not two", i)
			}
		default:
			err = corrupt("unknown key %s", quote(key))
		}
		return err
	})
	if err != nil {
		return Entry{}, err
	}
	if keys != 3 { // the three are distinct, since object refuses duplicates
		return Entry{}, corrupt("not all of dtype, shape and data_offsets are given")
	}
	if end < e.Offset {
		return Entry{}, corrupt("data_offsets: end %d is before begin %d", end, e.Offset)
	}
	e.Size = end - e.Offset
	want, err := e.Shape.Elements()
	if err == nil {
		want, err = tensor.Mul(want, e.DType.Size())
	}
	if err != nil {
		return Entry{}, err
	}
	if e.Size != want {
		return Entry{}, corrupt("%s %v takes %d bytes, data_offsets give %d", e.DType, e.Shape, want, e.Size)
	}
	return e, nil
}

// place sorts the entries by position, checks that they tile the file and makes offsets absolute.
func (h *Header) place(fileSize int64) error {
	slices.SortFunc(h.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	next := int64(0)
	for i := range h.Entries {
		e := &h.Entries[i]
		switch {
		case e.Offset > next:
			return corrupt("tensor %s: begins at %d, a hole of %d bytes before it", quote(e.Name), e.Offset, e.Offset-next)
		case e.Offset < next:
			return corrupt("tensor %s: begins at %d, inside the one before it, which ends at %d", quote(e.Name), e.Offset, next)
		}
		next = e.Offset + e.Size // cannot overflow: it is the end that was read
		e.Offset += h.Size
		if next > fileSize-h.Size {
			return corrupt("tensor %s: ends at %d, %d bytes past the end of the file", quote(e.Name), next, next-(fileSize-h.Size))
		}
	}
	if end := h.Size + next; end != fileSize {
		return corrupt("the tensors end at byte %d of %d", end, fileSize)
	}
	return nil
}

// corrupt is a tensor.ErrCorrupt with words.
func corrupt(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, tensor.ErrCorrupt)...)
}

// quote makes a name from a file fit for a message: escaped, and short.
func quote(name string) string { return fmt.Sprintf("%.200q", name) }
