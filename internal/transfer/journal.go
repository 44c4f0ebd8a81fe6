package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
)

// A journal lies next to a file that arrives in several places at once and lists its complete pieces. All numbers are
// little-endian.
//
//	offset  bytes
//	     0     16  "llmexport part 1"
//	    16      8  size of the blob
//	    24      8  size of a piece; the last one may be shorter
//	    32      8  bytes at the start that were here before the journal
//	    40     64  digest of the blob in hex, padded with zeros
//	   104      4  CRC-32C of the above
//	   108         records, in the order in which the pieces were completed:
//	     0      4    number of the piece
//	     4      4    CRC-32C of the piece
//	     8      4    CRC-32C of the two, continuing that of the head
//
// An invalid record is skipped, because records may follow one torn by a power failure. Of two records of one piece the later
// one counts.
const (
	journalMagic = "llmexport part 1"
	headSize     = 108
	recordSize   = 12
	journalName  = ".journal" // appended to the name of the file
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journalHead identifies the blob of a journal.
type journalHead struct {
	size, piece, prefix int64
	digest              string
}

func (h journalHead) marshal() []byte {
	b := make([]byte, 0, headSize)
	b = append(b, journalMagic...)
	for _, n := range []int64{h.size, h.piece, h.prefix} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = append(b, h.digest...)
	b = append(b, make([]byte, headSize-4-len(b))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (h journalHead) pieces() int64 {
	n := h.size / h.piece // rounding up by addition could overflow
	if h.size%h.piece > 0 {
		n++
	}
	return n
}

// sealRecord appends the checksum to a record after the head with the checksum head.
func sealRecord(head uint32, piece int, sum uint32) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, recordSize), uint32(piece))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return binary.LittleEndian.AppendUint32(b, crc32.Update(head, castagnoli, b))
}

// readJournal returns the prefix and calls whole with each piece in a journal of the blob want.
func readJournal(b []byte, want journalHead, whole func(piece int, sum uint32)) (prefix int64, err error) {
	if len(b) < headSize {
		return 0, fmt.Errorf("a journal of %d bytes: %w", len(b), fault.ErrCorrupt)
	}
	want.prefix = int64(binary.LittleEndian.Uint64(b[32:]))
	if want.prefix < 0 || want.prefix > want.size || string(want.marshal()) != string(b[:headSize]) {
		return 0, fmt.Errorf("the journal is about something else: %w", fault.ErrCorrupt)
	}
	head := binary.LittleEndian.Uint32(b[headSize-4:])
	for b = b[headSize:]; len(b) >= recordSize; b = b[recordSize:] {
		piece, sum := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if int64(piece) < want.pieces() && string(sealRecord(head, int(piece), sum)) == string(b[:recordSize]) {
			whole(int(piece), sum)
		}
	}
	return want.prefix, nil
}

// journal is a journal that is open for more records.
type journal struct {
	file *os.File
	head uint32
}

// openJournal opens the journal of a file in dir and returns its content.
func openJournal(dir *os.Root, name string, h journalHead) (*journal, []byte, error) {
	f, err := disk.OpenIn(dir, name+journalName, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, nil, err
	}
	// A piece is rarely recorded more than once; a longer file is not one of ours and is not read into memory.
	b, err := io.ReadAll(io.LimitReader(f, headSize+4*recordSize*(h.pieces()+256)))
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &journal{file: f}, b, nil
}

// resume continues after the journal b, which has been read.
func (j *journal) resume(b []byte) error {
	j.head = binary.LittleEndian.Uint32(b[headSize-4:])
	end := int64(len(b) - (len(b)-headSize)%recordSize)
	if err := j.file.Truncate(end); err != nil {
		return err
	}
	_, err := j.file.Seek(end, io.SeekStart)
	return err
}

// begin resets the journal to a prefix only. It is on disk before the file gets its first hole: without it the file would count
// as a prefix.
func (j *journal) begin(h journalHead) error {
	b := h.marshal()
	j.head = binary.LittleEndian.Uint32(b[headSize-4:])
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(b, 0); err != nil {
		return err
	}
	if _, err := j.file.Seek(headSize, io.SeekStart); err != nil {
		return err
	}
	return j.file.Sync()
}

// add records a complete piece.
func (j *journal) add(piece int, sum uint32) error {
	_, err := j.file.Write(sealRecord(j.head, piece, sum))
	return err
}
