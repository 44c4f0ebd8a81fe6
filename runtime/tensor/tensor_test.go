package tensor

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestDTypes(t *testing.T) {
	sizes := map[string]int64{
		"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8,
		"F8_E4M3": 1, "F8_E5M2": 1,
	}
	for name, size := range sizes {
		d, err := ParseDType(name)
		if err != nil || d.Size() != size || d.String() != name || d.Float() != (name[0] == 'F' || name == "BF16") {
			t.Errorf("%s: %v of %d bytes, float %v, %v", name, d, d.Size(), d.Float(), err)
		}
	}
	for _, name := range []string{"", "invalid", "f32", "F4", "F8_E8M0"} {
		if d, err := ParseDType(name); !errors.Is(err, ErrUnsupported) || d != Invalid {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
	if d := DType(200); d.Size() != 0 || d.String() != "DType(200)" {
		t.Errorf("%v of %d bytes", d, d.Size())
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		shape Shape
		want  int64
		ok    bool
	}{
		{nil, 1, true},
		{Shape{0, math.MaxInt64}, 0, true},
		{Shape{3, 4, 5}, 60, true},
		{Shape{math.MaxInt64}, math.MaxInt64, true},
		{Shape{math.MaxInt64, 2}, 0, false},
		{Shape{1 << 32, 1 << 31}, 0, false},
		{Shape{-1}, 0, false},
		{Shape{-1, -1}, 0, false},
	} {
		n, err := c.shape.Elements()
		if (err == nil) != c.ok || n != c.want || (err != nil && !errors.Is(err, ErrCorrupt)) {
			t.Errorf("%v: %d, %v", c.shape, n, err)
		}
	}
	if s := (Shape{2, 3}).String(); s != "[2 3]" {
		t.Error(s)
	}
}

// FuzzSizes: a sum or product that is returned is the exact one.
func FuzzSizes(f *testing.F) {
	for _, seed := range [][2]int64{{0, 0}, {3, 4}, {math.MaxInt64, 1}, {math.MaxInt64, 2}, {-1, 5}, {1 << 32, 1 << 31}, {math.MinInt64, -1}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b int64) {
		if n, err := Mul(a, b); err == nil {
			if a < 0 || b < 0 || n < 0 || (a != 0 && (n/a != b || n%a != 0)) {
				t.Errorf("%d x %d = %d", a, b, n)
			}
		} else if !errors.Is(err, ErrCorrupt) || n != 0 {
			t.Errorf("%d x %d: %d, %v", a, b, n, err)
		}
		if n, err := Add(a, b); err == nil {
			if a < 0 || b < 0 || n < a || n-a != b {
				t.Errorf("%d + %d = %d", a, b, n)
			}
		} else if !errors.Is(err, ErrCorrupt) || n != 0 {
			t.Errorf("%d + %d: %d, %v", a, b, n, err)
		}
	})
}

func TestMapFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("some bytes"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, unmap, err := MapFile(f, 10)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system has no memory maps")
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != "some bytes" {
		t.Errorf("%q", b)
	}
	unmap()
}
