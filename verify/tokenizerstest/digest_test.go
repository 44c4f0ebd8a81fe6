package tokenizerstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strconv"
)

// digests are SHA-256. Ids are written in decimal, joined by commas, and end with a line feed; texts are UTF-8 and end
// with the byte FF.
type digests struct {
	// IDs are without special tokens, Special with them.
	IDs     string `json:"ids"`
	Special string `json:"special"`
	// Kept is what the ids with special tokens decode to, Skipped is without the special tokens.
	Kept    string `json:"kept"`
	Skipped string `json:"skipped"`
}

// row is what the library makes of a string.
type row struct {
	ids, special  []int32
	kept, skipped string
}

func (r *row) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.ids, &r.special, &r.kept, &r.skipped})
}

// sum computes digests row by row.
type sum struct {
	ids, special, kept, skipped hash.Hash
	buf                         []byte
	// blocks has four bytes of a SHA-256 for every blockRows rows, so that what differs can be found.
	block  hash.Hash
	rows   int
	blocks []byte
}

const blockRows = 64

func newSum() *sum {
	return &sum{ids: sha256.New(), special: sha256.New(), kept: sha256.New(), skipped: sha256.New(), block: sha256.New()}
}

func (s *sum) add(r row) {
	number := func(h hash.Hash, ids []int32) {
		s.buf = s.buf[:0]
		for i, id := range ids {
			if i > 0 {
				s.buf = append(s.buf, ',')
			}
			s.buf = strconv.AppendInt(s.buf, int64(id), 10)
		}
		s.buf = append(s.buf, '\n')
		h.Write(s.buf)
		s.block.Write(s.buf)
	}
	if s.rows > 0 && s.rows%blockRows == 0 {
		s.endBlock()
	}
	s.rows++
	number(s.ids, r.ids)
	number(s.special, r.special)
	s.kept.Write(append([]byte(r.kept), 0xFF))
	s.skipped.Write(append([]byte(r.skipped), 0xFF))
}

func (s *sum) endBlock() {
	s.blocks = append(s.blocks, s.block.Sum(nil)[:4]...)
	s.block.Reset()
}

func (s *sum) digests() digests {
	text := func(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
	return digests{text(s.ids), text(s.special), text(s.kept), text(s.skipped)}
}
