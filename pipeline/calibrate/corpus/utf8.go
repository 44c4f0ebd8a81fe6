package corpus

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, tensor.ErrCorrupt)...)
}

// utf8Reader passes a stream through and stops at the first byte that is not UTF-8.
type utf8Reader struct {
	r    io.Reader
	off  int64  // bytes that were passed on
	tail []byte // the last of them, when they may be the beginning of a character
}

// newUTF8 reads f from its beginning, without a byte-order mark.
func newUTF8(f *file) *utf8Reader {
	var mark [3]byte
	skip := int64(0)
	if n, _ := f.ReadAt(mark[:], 0); n == len(mark) && string(mark[:]) == "\ufeff" {
		skip = int64(n)
	}
	return &utf8Reader{r: io.NewSectionReader(f, skip, f.size-skip), off: skip}
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if bad := u.check(p[:n]); bad >= 0 {
		return 0, corrupt("not UTF-8 at byte %d", bad)
	}
	if err == io.EOF && len(u.tail) > 0 {
		return 0, corrupt("not UTF-8 at byte %d", u.off-int64(len(u.tail)))
	}
	return n, err
}

// check takes the next bytes and returns the offset of a byte that is not UTF-8, or -1.
func (u *utf8Reader) check(b []byte) int64 {
	at := u.off - int64(len(u.tail))
	u.off += int64(len(b))
	for len(u.tail) > 0 && len(b) > 0 {
		u.tail = append(u.tail, b[0])
		b = b[1:]
		if !utf8.FullRune(u.tail) {
			continue
		}
		if r, size := utf8.DecodeRune(u.tail); r == utf8.RuneError && size == 1 {
			return at
		}
		at += int64(len(u.tail))
		u.tail = u.tail[:0]
	}
	end := len(b)
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				end = len(b) - i
			}
			break
		}
	}
	if !utf8.Valid(b[:end]) {
		return at + int64(validPrefix(b[:end]))
	}
	u.tail = append(u.tail, b[end:]...)
	return -1
}

// validPrefix is the number of bytes before the first that is not UTF-8.
func validPrefix[T []byte | string](b T) int {
	s := string(b)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(s)
}
