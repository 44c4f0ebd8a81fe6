package recipes

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// Size is a number of bytes, never negative when parsed. It is written as a string with a unit, such as
// "2GiB", "1.5GiB" or "1500MB", or as a plain number of bytes.
type Size int64

const gib Size = 1 << 30

// sizeUnits are in the order in which String prefers them.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a size such as "512MiB", "1.5 GiB" or "4096". Case does not matter.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimLeft(s, "0123456789.")
	number, unit := s[:len(s)-len(digits)], strings.TrimSpace(digits)
	scale := int64(1)
	found := unit == ""
	for _, u := range sizeUnits {
		if strings.EqualFold(unit, u.name) {
			scale, found = u.bytes, true
		}
	}
	// Bounding the digits bounds the work of the exact arithmetic.
	value, ok := new(big.Rat), false
	if found && len(number) <= 32 {
		value, ok = value.SetString(number)
	}
	if !ok {
		return 0, fmt.Errorf("must be a size such as 2GiB, 512MiB, 1500MB or a number of bytes, not %s", shorten(s))
	}
	value.Mul(value, new(big.Rat).SetInt64(scale))
	if !value.IsInt() {
		return 0, fmt.Errorf("must be a whole number of bytes, not %s", shorten(s))
	}
	if !value.Num().IsInt64() {
		return 0, fmt.Errorf("is too large: %s", shorten(s))
	}
	return Size(value.Num().Int64()), nil
}

// String prints the size exactly, in the largest unit that allows it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && u.bytes > 1 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalJSON writes the string form.
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads a string as ParseSize does, or a number of bytes.
func (s *Size) UnmarshalJSON(data []byte) error {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	v, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// JSONSchema describes both forms.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: "0"},
		{Type: "string", Pattern: `^[0-9.]+ *([KkMmGgTt]?[Ii]?[Bb])?$`},
	}}
}
