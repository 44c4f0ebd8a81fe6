// Package sealed adds a checksum to records. Reading a sealed record detects flipped bits, and records that were written about
// something else.
//
//	{"sha256":"<64 hex digits>","record":<JSON>}
//
// The checksum is the SHA-256 of the name of the thing that the record is about, a zero byte, and the bytes of the JSON. A sealed
// record is one line, so a file of them is a journal.
package sealed

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
)

// Marshal returns v as a sealed record about the named thing, without a line end.
func Marshal(about string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"sha256":"%s","record":%s}`, sum(about, b), b), nil
}

// Sum returns the checksum that Marshal computes for v, for records that store it in a field of their own.
func Sum(about string, v any) (string, error) {
	b, err := json.Marshal(v)
	return sum(about, b), err
}

// Unmarshal decodes the result of Marshal for the same name into v. Anything else is fault.ErrCorrupt.
func Unmarshal(about string, b []byte, v any) error {
	var s struct {
		SHA256 string          `json:"sha256"`
		Record json.RawMessage `json:"record"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%w: %w", err, fault.ErrCorrupt)
	}
	if s.SHA256 != sum(about, s.Record) {
		return fmt.Errorf("the checksum of the record differs: %w", fault.ErrCorrupt)
	}
	if err := json.Unmarshal(s.Record, v); err != nil {
		return fmt.Errorf("%w: %w", err, fault.ErrCorrupt)
	}
	return nil
}

func sum(about string, record []byte) string {
	h := digest.New()
	h.Write(append([]byte(about), 0))
	h.Write(record)
	return h.Hex()
}
