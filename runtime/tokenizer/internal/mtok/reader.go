package mtok

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// reader reads from s and remembers the first error; from then on it returns zeros.
type reader struct {
	s   string
	pos int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %s: %w", r.pos, fmt.Sprintf(format, args...), tensor.ErrCorrupt)
	}
}

// refuse is fail for valid but unsupported input.
func (r *reader) refuse(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %s: %w", r.pos, fmt.Sprintf(format, args...), tensor.ErrUnsupported)
	}
}

func (r *reader) take(n int) string {
	if r.err == nil && n > len(r.s)-r.pos {
		r.fail("%d bytes wanted, %d left", n, len(r.s)-r.pos)
	}
	if r.err != nil {
		return ""
	}
	r.pos += n
	return r.s[r.pos-n : r.pos]
}

func (r *reader) u8() uint8 {
	if b := r.take(1); r.err == nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); r.err == nil {
		return binary.LittleEndian.Uint16([]byte(b))
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); r.err == nil {
		return binary.LittleEndian.Uint32([]byte(b))
	}
	return 0
}

func (r *reader) f64() float64 {
	if b := r.take(8); r.err == nil {
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(b)))
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.u8()
	if v > 1 {
		r.fail("%d is neither 0 nor 1", v)
	}
	return v == 1
}

func (r *reader) str() string { return r.take(int(r.u16())) }

// count reads the number of things that take at least size bytes each, so that the file bounds it.
func (r *reader) count(size int) int {
	n := r.u32()
	if int64(n)*int64(size) > int64(len(r.s)-r.pos) {
		r.fail("%d entries in %d bytes", n, len(r.s)-r.pos)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// id reads an id or a rank.
func (r *reader) id() int32 {
	v := r.u32()
	if v > math.MaxInt32 {
		r.fail("%d is too large", v)
	}
	return int32(v & math.MaxInt32)
}

func (r *reader) line() string {
	n := strings.IndexByte(r.s[r.pos:], '\n')
	if n < 0 {
		r.fail("no end of line")
		return ""
	}
	return strings.TrimSuffix(r.take(n+1), "\n")
}

// ids reads decimal ids between single spaces, as every writer writes them.
func (r *reader) ids(line string) []int32 {
	if line == "" {
		return nil
	}
	var ids []int32
	for f := range strings.SplitSeq(line, " ") {
		id, err := strconv.ParseUint(f, 10, 31)
		if err != nil || strconv.FormatUint(id, 10) != f {
			r.fail("%.20q is not an id", f)
			return nil
		}
		ids = append(ids, int32(id))
	}
	return ids
}
