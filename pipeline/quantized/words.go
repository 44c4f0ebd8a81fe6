package quantized

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// axis is the direction along which consecutive numbers share words.
type axis int

const (
	down axis = iota
	across
)

// order is the arrangement of numbers in words.
type order int

const (
	// dense is a stream of bits, low ones first; a number may lie in two words.
	dense order = iota
	// padded leaves the bits of a word unused that are too few for a number.
	padded
	// interleaved is the order of AWQ: eight nibbles of columns 0 2 4 6 1 3 5 7.
	interleaved
)

// nibble is the place in a word of each of eight columns of AWQ.
var nibble = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// words are numbers of a few bits, packed into a matrix of 32-bit words.
type words struct {
	data  io.ReaderAt
	cols  int // of words
	rows  int // of words
	bits  int
	axis  axis
	order order
}

// need is the number of words that n numbers take.
func (o order) need(n, bits int) int {
	if o == padded {
		per := 32 / bits
		return (n + per - 1) / per
	}
	return (n*bits + 31) / 32
}

// at is the word and the bit at which number i of a line begins.
func (w *words) at(i int) (word, shift int) {
	switch w.order {
	case padded:
		per := 32 / w.bits
		return i / per, i % per * w.bits
	case interleaved:
		return i / 8, 4 * nibble[i%8]
	}
	return i * w.bits / 32, i * w.bits % 32
}

// read unpacks the numbers of rows r0 to r1-1 and columns c0 to c1-1: that of row r, column c goes to
// dst[(r-r0)*rowStep+(c-c0)*colStep].
func (w *words) read(dst []uint8, r0, r1, c0, c1, rowStep, colStep int) error {
	top, bottom, left, right := r0, r1, c0, c1 // in words
	if w.axis == down {
		top, bottom = w.span(r0, r1)
	} else {
		left, right = w.span(c0, c1)
	}
	width := right - left
	raw := make([]byte, (bottom-top)*width*4)
	if err := readRect(w.data, raw, 4*w.cols, top, bottom, 4*left, 4*right); err != nil {
		return err
	}
	mask := uint32(1)<<w.bits - 1
	if w.axis == down {
		for r := r0; r < r1; r++ {
			word, shift := w.at(r)
			line := raw[(word-top)*width*4:][:width*4]
			var next []byte
			if shift+w.bits > 32 {
				next = raw[(word+1-top)*width*4:][:width*4]
			}
			at := (r - r0) * rowStep
			for c := range width {
				v := binary.LittleEndian.Uint32(line[4*c:]) >> shift
				if next != nil {
					v |= binary.LittleEndian.Uint32(next[4*c:]) << (32 - shift)
				}
				dst[at+c*colStep] = uint8(v & mask)
			}
		}
		return nil
	}
	for c := c0; c < c1; c++ {
		word, shift := w.at(c)
		word -= left
		split := shift+w.bits > 32
		for r := range r1 - r0 {
			line := raw[r*width*4:]
			v := binary.LittleEndian.Uint32(line[4*word:]) >> shift
			if split {
				v |= binary.LittleEndian.Uint32(line[4*word+4:]) << (32 - shift)
			}
			dst[r*rowStep+(c-c0)*colStep] = uint8(v & mask)
		}
	}
	return nil
}

// lines unpacks n numbers of each of the lines lo to hi-1, one line after the other. It is read for whole lines, in the
// order in which they lie: a column of a matrix of packed columns is spread over the file.
func (w *words) lines(dst []uint8, lo, hi, n int) error {
	switch {
	case w.order == padded:
		return w.read(dst, lo, hi, 0, n, n, 1)
	case w.order == interleaved:
		return w.octets(dst, lo, hi, n)
	case w.axis == across:
		raw := make([]byte, (hi-lo)*w.cols*4)
		if err := readRect(w.data, raw, 4*w.cols, lo, hi, 0, 4*w.cols); err != nil {
			return err
		}
		for i := range hi - lo {
			unpack(dst[i*n:(i+1)*n], raw[i*w.cols*4:(i+1)*w.cols*4], w.bits)
		}
		return nil
	}
	width := hi - lo
	raw := make([]byte, w.rows*width*4)
	if err := readRect(w.data, raw, 4*w.cols, 0, w.rows, 4*lo, 4*hi); err != nil {
		return err
	}
	var run [40]byte // up to 8 words of one column, which are 32 numbers, and the bytes that unpack may read after them
	for top := 0; top < w.rows; top += w.bits {
		high, from := min(w.bits, w.rows-top), top/w.bits*32
		to := min(from+32, n)
		for c := range width {
			for i := range high {
				copy(run[4*i:4*i+4], raw[((top+i)*width+c)*4:])
			}
			unpack(dst[c*n+from:c*n+to], run[:], w.bits)
		}
	}
	return nil
}

// octets unpacks lines of interleaved words, each of which holds one number of eight lines.
func (w *words) octets(dst []uint8, lo, hi, n int) error {
	left, right := w.span(lo, hi)
	width := right - left
	raw := make([]byte, n*width*4)
	if err := readRect(w.data, raw, 4*w.cols, 0, n, 4*left, 4*right); err != nil {
		return err
	}
	for j := range width {
		for k, place := range nibble {
			line := (left+j)*8 + k - lo
			if line < 0 || line >= hi-lo {
				continue
			}
			at, shift := 4*j+place/2, place%2*4
			out := dst[line*n:][:n]
			for i := range out {
				out[i] = raw[i*width*4+at] >> shift & 15
			}
		}
	}
	return nil
}

// unpack spreads a stream of numbers, low bits first, over bytes.
func unpack(dst []uint8, src []byte, bits int) {
	// Eight numbers are as many bytes as one has bits. They are spread by halves: 4 and 4, 2 and 2, 1 and 1.
	b := uint(bits)
	all := uint64(1)<<(8*b) - 1 // 2^64-1 for 8 bits, since the shift gives 0
	four := uint64(1)<<(4*b) - 1
	two := (uint64(1)<<(2*b) - 1) * 0x0000000100000001
	one := (uint64(1)<<b - 1) * 0x0001000100010001
	i := 0
	for ; i+8 <= len(dst) && i/8*bits+8 <= len(src); i += 8 {
		x := binary.LittleEndian.Uint64(src[i/8*bits:]) & all
		x = x&four | x&^four<<(32-4*b)
		x = x&two | x&^two<<(16-2*b)
		x = x&one | x&^one<<(8-b)
		binary.LittleEndian.PutUint64(dst[i:], x)
	}
	for ; i < len(dst); i++ {
		at, shift := i*bits/8, i*bits%8
		v := uint(src[at]) >> shift
		if shift+bits > 8 {
			v |= uint(src[at+1]) << (8 - shift)
		}
		dst[i] = uint8(v & (1<<b - 1))
	}
}

// span is the words that numbers lo to hi-1 of a line touch. Interleaved words count as a whole.
func (w *words) span(lo, hi int) (from, to int) {
	if w.order == interleaved {
		return lo / 8, (hi + 7) / 8
	}
	from, _ = w.at(lo)
	to, shift := w.at(hi - 1)
	if shift+w.bits > 32 {
		to++
	}
	return from, to + 1
}

// readRect reads bytes left to right-1 of rows top to bottom-1 of a matrix with rows of rowBytes bytes.
func readRect(data io.ReaderAt, dst []byte, rowBytes, top, bottom, left, right int) error {
	width := right - left
	if width == rowBytes {
		return readFull(data, dst, int64(top)*int64(rowBytes))
	}
	if rowBytes-width >= worthSkipping {
		for r := top; r < bottom; r++ {
			if err := readFull(data, dst[(r-top)*width:][:width], int64(r)*int64(rowBytes)+int64(left)); err != nil {
				return err
			}
		}
		return nil
	}
	const piece = 1 << 18
	step := max(1, min(piece/rowBytes, bottom-top))
	buf := make([]byte, step*rowBytes)
	for r := top; r < bottom; r += step {
		b := buf[:min(step, bottom-r)*rowBytes]
		if err := readFull(data, b, int64(r)*int64(rowBytes)); err != nil {
			return err
		}
		for i := 0; i*rowBytes < len(b); i++ {
			copy(dst[(r-top+i)*width:][:width], b[i*rowBytes+left:])
		}
	}
	return nil
}

// worthSkipping is the number of bytes that take longer to read than another call of the system.
const worthSkipping = 4 << 10

// readFull reads all of dst; a full read may return io.EOF.
func readFull(data io.ReaderAt, dst []byte, off int64) error {
	n, err := data.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("file ends early: %w", tensor.ErrCorrupt)
	}
	return err
}
