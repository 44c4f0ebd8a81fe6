// Package tensor defines the types that all other packages share: element types, shapes, facts about stored tensors,
// and sources of their bytes.
package tensor

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/llmexport/llmexport/internal/fault"
)

var (
	// ErrCorrupt: bytes are wrong: truncated, inconsistent, or not what they claim to be.
	ErrCorrupt = fault.ErrCorrupt
	// ErrUnsupported: the bytes are fine, and this program cannot use them.
	ErrUnsupported = fault.ErrUnsupported
)

// Shape lists the lengths of the dimensions, outermost first. An empty shape is a scalar.
type Shape []int64

// Elements returns the product of the dimensions, or ErrCorrupt if one is negative or the product does not fit an
// int64.
func (s Shape) Elements() (int64, error) {
	n := int64(1)
	for _, d := range s {
		var err error
		if n, err = Mul(n, d); err != nil {
			return 0, fmt.Errorf("shape %v: %w", s, err)
		}
	}
	return n, nil
}

func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d", d)
	}
	b.WriteByte(']')
	return b.String()
}

// Mul multiplies two sizes. A negative factor or an overflow is ErrCorrupt.
func Mul(a, b int64) (int64, error) {
	if a < 0 || b < 0 || (a != 0 && b > math.MaxInt64/a) {
		return 0, fmt.Errorf("size %d x %d: %w", a, b, ErrCorrupt)
	}
	return a * b, nil
}

// Add adds two sizes. A negative summand or an overflow is ErrCorrupt.
func Add(a, b int64) (int64, error) {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return 0, fmt.Errorf("size %d + %d: %w", a, b, ErrCorrupt)
	}
	return a + b, nil
}

// Info describes a tensor before its bytes are read.
type Info struct {
	Name  string
	DType DType
	Shape Shape
	// File names the shard that contains the tensor; empty if the source has no shards.
	File string
	// Size is the length in bytes.
	Size int64
}

// ByName returns the tensors of a list by name; for duplicates, the last.
func ByName(infos []Info) map[string]*Info {
	m := make(map[string]*Info, len(infos))
	for i := range infos {
		m[infos[i].Name] = &infos[i]
	}
	return m
}

// Source provides named tensors: facts immediately, bytes on request. Implementations are safe for concurrent use;
// Tensors returns the same order every time, sorted by name. Its list must not be changed.
type Source interface {
	Tensors() []Info
	// Open returns the tensor's bytes, row-major, little endian.
	Open(name string) (*io.SectionReader, error)
}
