package mnn

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// verify checks a whole buffer before anything reads it: afterwards every table, vector and string that the generated
// code can reach is inside b. The runtime library trusts its offsets and has no such check.
//
// No limit on depth is needed, since no layout contains itself. The work is limited to workFactor bytes for every byte
// of the file, so that many offsets to one large vector do not become many copies of it.
func verify(b []byte) error {
	if len(b) > math.MaxInt32 {
		return fmt.Errorf("graph of %d bytes: offsets have 31 bits: %w", len(b), tensor.ErrUnsupported)
	}
	v := &verifier{b: b, budget: workFactor * int64(len(b))}
	root, err := v.follow(0)
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := v.table(root, netLayout); err != nil {
		return fmt.Errorf("%s: %w", netLayout.name, err)
	}
	return nil
}

// workFactor: a writer places every byte once. Vtables are the exception, shared by tables which may be
// smaller than they are, by a factor of 4 in this schema.
const workFactor = 16

type verifier struct {
	b      []byte
	budget int64 // bytes that may still be checked
}

// table checks a table and everything it refers to.
func (v *verifier) table(pos int64, l *layout) error {
	back, err := v.uint32(pos)
	if err != nil {
		return err
	}
	vt := pos - int64(int32(back)) // the offset to the vtable is signed and subtracted
	vtSize, err := v.uint16(vt)
	if err != nil {
		return err
	}
	size, err := v.uint16(vt + 2)
	if err != nil {
		return err
	}
	if vtSize < 4 || vtSize%2 != 0 || size < 4 {
		return fmt.Errorf("table at byte %d of size %d with a vtable of size %d: %w", pos, size, vtSize, tensor.ErrCorrupt)
	}
	if err := v.span(vt, vtSize); err != nil {
		return err
	}
	if err := v.span(pos, size); err != nil {
		return err
	}
	var member ParamType // of a union whose type has been read
	for slot := range (vtSize - 4) / 2 {
		off := int64(binary.LittleEndian.Uint16(v.b[vt+4+2*slot:]))
		if off == 0 {
			continue // the field has its default
		}
		if slot >= int64(len(l.fields)) {
			return fmt.Errorf("unknown field number %d: %w", slot, tensor.ErrUnsupported)
		}
		f := &l.fields[slot]
		width := int64(4)
		if f.kind == byteValue {
			width = 1
		}
		if off < 4 || off+width > size {
			return fmt.Errorf("%s: at byte %d of a table of %d: %w", f.name, off, size, tensor.ErrCorrupt)
		}
		if err := v.field(pos+off, f, member); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		member = ParamNone
		if f.kind == byteValue {
			member = ParamType(v.b[pos+off])
		}
	}
	return nil
}

// field checks the value of a field whose position in the table is known to be inside the file.
func (v *verifier) field(pos int64, f *field, member ParamType) error {
	switch f.kind {
	case byteValue:
		if f.refuse && v.b[pos] != 0 {
			return fmt.Errorf("value %d: %w", v.b[pos], tensor.ErrUnsupported)
		}
		return nil
	case wordValue:
		if word := binary.LittleEndian.Uint32(v.b[pos:]); f.refuse && word != 0 {
			return fmt.Errorf("value %#x: %w", word, tensor.ErrUnsupported)
		}
		return nil
	}
	at, err := v.follow(pos)
	if err != nil {
		return err
	}
	switch f.kind {
	case child:
		if f.refuse {
			return tensor.ErrUnsupported
		}
		return v.table(at, f.of)
	case param:
		if l := paramLayouts[member]; l != nil {
			if err := v.table(at, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil // members without a layout are never read
	}
	n, err := v.vector(at, f.kind)
	if err != nil {
		return err
	}
	if f.refuse && n > 0 {
		return fmt.Errorf("list of length %d: %w", n, tensor.ErrUnsupported)
	}
	if f.kind != texts && f.kind != children {
		return nil
	}
	for i := range n {
		elem, err := v.follow(at + 4 + 4*i)
		if err == nil && f.kind == texts {
			_, err = v.vector(elem, text)
		} else if err == nil {
			err = v.table(elem, f.of)
		}
		if err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

// vector checks the length and the elements of a vector or string and returns the length.
func (v *verifier) vector(at int64, k kind) (int64, error) {
	n, err := v.uint32(at)
	if err != nil {
		return 0, err
	}
	width := int64(4)
	switch k {
	case text, bytes1:
		width = 1
	case bytes2:
		width = 2
	case bytes8:
		width = 8
	}
	size := 4 + int64(n)*width
	if k == text {
		size++ // the terminating zero, which the engine requires
	}
	if err := v.span(at, size); err != nil {
		return 0, err
	}
	if k == text && v.b[at+size-1] != 0 {
		return 0, fmt.Errorf("string at byte %d is not terminated: %w", at, tensor.ErrCorrupt)
	}
	return int64(n), nil
}

// follow returns the target of the offset stored at pos.
func (v *verifier) follow(pos int64) (int64, error) {
	off, err := v.uint32(pos)
	if err != nil {
		return 0, err
	}
	if off == 0 {
		return 0, fmt.Errorf("offset at byte %d points to itself: %w", pos, tensor.ErrCorrupt)
	}
	return pos + int64(off), nil
}

// span requires that n bytes at pos are inside the file, and charges them to the budget.
func (v *verifier) span(pos, n int64) error {
	if err := v.inside(pos, n); err != nil {
		return err
	}
	if v.budget -= n; v.budget < 0 {
		return fmt.Errorf("at byte %d: too many offsets point to the same bytes: %w", pos, tensor.ErrCorrupt)
	}
	return nil
}

func (v *verifier) inside(pos, n int64) error {
	if size := int64(len(v.b)); pos < 0 || n > size || pos > size-n {
		return fmt.Errorf("%d bytes at %d are outside the %d bytes of the graph: %w", n, pos, size, tensor.ErrCorrupt)
	}
	return nil
}

func (v *verifier) uint16(pos int64) (int64, error) {
	if err := v.inside(pos, 2); err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint16(v.b[pos:])), nil
}

func (v *verifier) uint32(pos int64) (uint32, error) {
	if err := v.inside(pos, 4); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(v.b[pos:]), nil
}
