package stage

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/invopop/jsonschema"
)

// Block is a number of columns, "row", or "auto".
type Block struct {
	// Cols is 0 for a whole row.
	Cols int
	Auto bool
}

// autoBlock is the first block that auto tries.
const autoBlock = 64

func (b Block) cols() int {
	if b.Auto {
		return autoBlock
	}
	return b.Cols
}

// UnmarshalJSON reads any of the three forms.
func (b *Block) UnmarshalJSON(text []byte) error {
	switch string(bytes.TrimSpace(text)) {
	case `"row"`:
		*b = Block{}
		return nil
	case `"auto"`:
		*b = Block{Auto: true}
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n <= 0 {
		return fmt.Errorf("must be 32, 64, 128, row or auto, not %s", text)
	}
	*b = Block{Cols: n}
	return nil
}

// MarshalJSON writes a form that UnmarshalJSON reads.
func (b Block) MarshalJSON() ([]byte, error) {
	switch {
	case b.Auto:
		return []byte(`"auto"`), nil
	case b.Cols == 0:
		return []byte(`"row"`), nil
	}
	return []byte(strconv.Itoa(b.Cols)), nil
}

// JSONSchema describes the three forms.
func (Block) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Enum: []any{32, 64, 128, "row", "auto"}}
}
