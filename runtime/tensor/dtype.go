package tensor

import "fmt"

// DType is the element type of a stored tensor.
type DType uint8

// The element types that safetensors files and MNN packages hold.
const (
	Invalid DType = iota
	BOOL
	U8
	I8
	U16
	I16
	U32
	I32
	U64
	I64
	F16
	BF16
	F32
	F64
	F8E4M3
	F8E5M2
)

var dtypes = [...]struct {
	name string
	size int64
}{
	Invalid: {"invalid", 0},
	BOOL:    {"BOOL", 1},
	U8:      {"U8", 1},
	I8:      {"I8", 1},
	U16:     {"U16", 2},
	I16:     {"I16", 2},
	U32:     {"U32", 4},
	I32:     {"I32", 4},
	U64:     {"U64", 8},
	I64:     {"I64", 8},
	F16:     {"F16", 2},
	BF16:    {"BF16", 2},
	F32:     {"F32", 4},
	F64:     {"F64", 8},
	F8E4M3:  {"F8_E4M3", 1},
	F8E5M2:  {"F8_E5M2", 1},
}

// ParseDType parses a type name of safetensors, for example "BF16" or "F8_E4M3".
func ParseDType(s string) (DType, error) {
	for d, t := range dtypes {
		if t.name == s && d != int(Invalid) {
			return DType(d), nil
		}
	}
	return Invalid, fmt.Errorf("element type %q: %w", s, ErrUnsupported)
}

// Size returns the number of bytes of one element.
func (d DType) Size() int64 {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Float reports whether weights may be stored in this type.
func (d DType) Float() bool { return d >= F16 }
