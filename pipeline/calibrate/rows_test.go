package calibrate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRows(t *testing.T) {
	const n, width = 9, 5
	values := factors(1, n*width)
	for _, c := range []struct {
		name   string
		memory int64
		left   int64 // while the rows are there
	}{{"memory", 4 * n * width, 0}, {"file", 4*n*width - 1, 4*n*width - 1}} {
		t.Run(c.name, func(t *testing.T) {
			dir, r := t.TempDir(), &room{left: c.memory}
			m, err := newRows(r, dir, n, width)
			check(t, err)
			if r.left != c.left {
				t.Errorf("%d bytes of room left, want %d", r.left, c.left)
			}
			for _, part := range [][2]int{{4, 9}, {0, 3}, {3, 4}} {
				check(t, m.put(values[part[0]*width:part[1]*width], part[0]))
			}
			buf := make([]float32, n*width)
			for lo := range n {
				for k := 1; lo+k <= n; k++ {
					x, err := m.get(buf, lo, k)
					check(t, err)
					if !slices.Equal(x, values[lo*width:(lo+k)*width]) {
						t.Fatalf("rows %d to %d are others", lo, lo+k-1)
					}
				}
			}
			// What was got is changed and put back.
			x, err := m.get(buf, 2, 3)
			check(t, err)
			for i := range x {
				x[i] = float32(i)
			}
			check(t, m.put(x, 2))
			again, err := m.get(make([]float32, n*width), 0, n)
			check(t, err)
			if !slices.Equal(again[2*width:5*width], x) || !slices.Equal(again[:2*width], values[:2*width]) || !slices.Equal(again[5*width:], values[5*width:]) {
				t.Error("rows that were put back are others")
			}
			m.close(r)
			if r.left != c.memory {
				t.Errorf("%d bytes of room after closing, had %d", r.left, c.memory)
			}
			noActivations(t, dir)
		})
	}
}

func TestRowsFail(t *testing.T) {
	if _, err := newRows(&room{}, filepath.Join(t.TempDir(), "absent"), 1, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	r := &room{}
	m, err := newRows(r, t.TempDir(), 4, 2)
	check(t, err)
	defer m.close(r)
	check(t, m.put(make([]float32, 4), 0))
	if _, err := m.get(make([]float32, 8), 1, 3); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("rows that were never put: %v", err)
	}
	var none *rows
	none.close(r)
}
