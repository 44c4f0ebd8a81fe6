package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// room is the memory still available, in bytes.
type room struct {
	mu    sync.Mutex
	left  int64
	spare [][]float32         // of matrices that were closed: new memory would have to be cleared first
	pins  map[*float32]func() // what ends that a device knows of memory
}

// take reserves n bytes, and reports whether there was room for them.
func (r *room) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.left {
		return false
	}
	r.left -= n
	return true
}

// has reports whether there is room for n bytes.
func (r *room) has(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n <= r.left
}

// memory returns n values, which the caller has reserved. They are arbitrary.
func (r *room) memory(n int) []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var unused int64
	for i, s := range r.spare {
		if len(s) == n {
			r.spare = slices.Delete(r.spare, i, i+1)
			return s
		}
		unused += 4 * int64(len(s))
	}
	if unused > r.left {
		r.drop()
	}
	return kernel.Scratch(n)
}

// pin tells a device of the memory of a matrix, for as long as it is not given up.
func (r *room) pin(m *rows) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(m.mem) > 0 && r.pins[&m.mem[0]] == nil {
		r.pins[&m.mem[0]] = kernel.Pin(m.mem)
	}
}

// drop gives up the memory of matrices that were closed.
func (r *room) drop() {
	for _, s := range r.spare {
		if len(s) == 0 {
			continue
		}
		if unpin := r.pins[&s[0]]; unpin != nil {
			unpin()
			delete(r.pins, &s[0])
		}
	}
	r.spare = nil
}

// close does so when all matrices have been closed.
func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

// rows is a matrix of activations, [n, width] float32: in memory if there is room, else in an unnamed file.
type rows struct {
	n     int64
	width int
	mem   []float32
	file  *os.File
}

// newRows allocates n rows. Their values are undefined until put.
func newRows(r *room, dir string, n, width int) (*rows, error) {
	m := &rows{n: int64(n), width: width}
	if r.take(4 * int64(n) * int64(width)) {
		m.mem = r.memory(n * width)
		return m, nil
	}
	f, err := os.CreateTemp(dir, "activations-*.tmp")
	if err != nil {
		return nil, err
	}
	m.file = f
	// Nothing else needs the name; on systems that cannot remove an open file, close removes it.
	_ = os.Remove(f.Name())
	return m, nil
}

// get returns rows lo to lo+n-1, in buf or in place. Callers that change them must put them back.
func (m *rows) get(buf []float32, lo, n int) ([]float32, error) {
	if m.mem != nil {
		return m.mem[lo*m.width : (lo+n)*m.width], nil
	}
	buf = buf[:n*m.width]
	if k, err := m.file.ReadAt(bytesOf(buf), 4*int64(lo)*int64(m.width)); k < 4*len(buf) {
		return nil, fmt.Errorf("activations on disk: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return buf, nil
}

// place returns where n rows from lo on can be computed before they are put: buf, or in place. Their values are arbitrary.
func (m *rows) place(buf []float32, lo, n int) []float32 {
	if m.mem != nil {
		return m.mem[lo*m.width : (lo+n)*m.width]
	}
	return buf[:n*m.width]
}

// put stores rows from lo on.
func (m *rows) put(x []float32, lo int) error {
	if m.mem != nil {
		if at := m.mem[lo*m.width:][:len(x)]; &at[0] != &x[0] {
			copy(at, x)
		}
		return nil
	}
	_, err := m.file.WriteAt(bytesOf(x), 4*int64(lo)*int64(m.width))
	return err
}

// clearRows sets all rows to 0.
func clearRows(all []*rows) error {
	for _, m := range all {
		if m.file == nil {
			clear(m.mem)
		} else if err := cmp.Or(m.file.Truncate(0), m.file.Truncate(4*m.n*int64(m.width))); err != nil {
			return err
		}
	}
	return nil
}

// pick copies the rows at some places to dst.
func (m *rows) pick(dst []float32, at []int32) error {
	for i, row := range at {
		to := dst[i*m.width : (i+1)*m.width]
		x, err := m.get(to, int(row), 1)
		if err != nil {
			return err
		}
		copy(to, x)
	}
	return nil
}

// close returns the memory or removes the file.
func (m *rows) close(r *room) {
	if m == nil {
		return
	}
	if m.mem != nil {
		r.mu.Lock()
		r.left += 4 * int64(len(m.mem))
		r.spare, m.mem = append(r.spare, m.mem), nil
		r.mu.Unlock()
	}
	if m.file != nil {
		m.file.Close()
		_ = os.Remove(m.file.Name())
	}
}

// bytesOf are the bytes of x in memory.
func bytesOf(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}
