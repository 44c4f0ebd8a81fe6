package transfer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

// FuzzJournal demands that what is read of any bytes is about pieces that there are, and that what it was made of comes
// back.
func FuzzJournal(f *testing.F) {
	want := journalHead{size: 10*pieceSize + 1, piece: pieceSize, digest: blobOf(nil).SHA256}
	for _, prefix := range []int64{0, 5 * pieceSize / 2, want.size, want.size + 1, -1} {
		h := want
		h.prefix = prefix
		b := h.marshal()
		f.Add(b)
		sum := binary.LittleEndian.Uint32(b[headSize-4:])
		for i := range 12 {
			b = append(b, sealRecord(sum, i, uint32(i*i))...)
		}
		f.Add(b)
		f.Add(b[:len(b)-5])
		b[headSize+recordSize] ^= 1
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		records := 0
		prefix, err := readJournal(b, want, func(i int, sum uint32) {
			if i < 0 || i >= 11 {
				t.Errorf("piece %d", i)
			}
			records++
			again = append(again, sealRecord(binary.LittleEndian.Uint32(b[headSize-4:]), i, sum)...)
		})
		if err != nil {
			if records > 0 || prefix != 0 {
				t.Errorf("%d records, prefix %d, %v", records, prefix, err)
			}
			return
		}
		if prefix < 0 || prefix > want.size {
			t.Errorf("prefix %d", prefix)
		}
		h := want
		h.prefix = prefix
		if !bytes.Equal(h.marshal(), b[:headSize]) || records == (len(b)-headSize)/recordSize && !bytes.HasPrefix(b[headSize:], again) {
			t.Error("another journal comes back")
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"", "bytes 0-0/1", "bytes 5-9/*", "bytes 9-5/10", "bytes 0-10/10", "bytes */10", "items 0-1/2",
		"bytes 0-99999999999999999999/*", "bytes -1-2/3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, last, total, err := ContentRange(s)
		if err != nil {
			if first != 0 || last != 0 || total != 0 {
				t.Errorf("%q gives %d, %d, %d with %v", s, first, last, total, err)
			}
			return
		}
		if first < 0 || last < first || total >= 0 && total <= last {
			t.Errorf("%q gives %d, %d, %d", s, first, last, total)
		}
		size := "*"
		if total >= 0 {
			size = fmt.Sprint(total)
		}
		if f2, l2, t2, err := ContentRange(fmt.Sprintf("bytes %d-%d/%s", first, last, size)); f2 != first || l2 != last || t2 != total || err != nil {
			t.Errorf("%q does not come back", s)
		}
	})
}

// TestHugeBlob is about sizes that only a lie has: memory stays bounded.
func TestHugeBlob(t *testing.T) {
	b := blobOf(nil)
	for _, size := range []int64{1 << 40, 1<<62 + 5, 1<<63 - 1} {
		b.Size = size
		p := &partial{blob: b, piece: pieceSizeOf(size)}
		if n := p.head(0).pieces(); n < 1 || n > maxPieces+1 || n*p.piece-p.piece > size {
			t.Errorf("%d bytes in %d pieces of %d", size, n, p.piece)
		}
	}
	for _, bad := range []Blob{{Size: -1, SHA256: b.SHA256}, {Size: 1}, {Size: 1, SHA256: "xyz"}, {Size: 1, GitSHA1: b.SHA256}} {
		if err := Fetch(t.Context(), t.TempDir()+"/file", bad, nil, quick); err == nil {
			t.Errorf("%v is fetched", bad)
		}
	}
}
