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

// A journal lies beside a file that arrives in several places at once and says which pieces of it are whole. All
// numbers are little-endian.
//
//	offset  bytes
//	     0     16  "llmexport part 1"
//	    16      8  size of the blob
//	    24      8  size of a piece; the last one may be shorter
//	    32      8  bytes at the start that were here before the journal
//	    40     64  digest of the blob in hex, zeros behind
//	   104      4  CRC-32C of the above
//	   108         records, in the order in which the pieces became whole:
//	     0      4    number of the piece
//	     4      4    CRC-32C of the piece
//	     8      4    CRC-32C of the two, begun with that of the head
//
// A record that is not right is passed over: the write that a power failure tore is not the last one for ever. Of
// two records of one piece the later one counts.
const (
	journalMagic = "llmexport part 1"
	headSize     = 108
	recordSize   = 12
	journalName  = ".journal" // behind the name of the file
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journalHead says what a journal is about.
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
	n := h.size / h.piece // rounding up by an addition would overflow
	if h.size%h.piece > 0 {
		n++
	}
	return n
}

// sealRecord is a record behind the head with the checksum head.
func sealRecord(head uint32, piece int, sum uint32) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, recordSize), uint32(piece))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return binary.LittleEndian.AppendUint32(b, crc32.Update(head, castagnoli, b))
}

// readJournal gives the prefix and tells each of the pieces of a journal about the blob of want.
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

// journal is one that is open for more records.
type journal struct {
	file *os.File
	head uint32
}

// openJournal opens the journal of a file in dir, and gives what is in it.
func openJournal(dir *os.Root, name string, h journalHead) (*journal, []byte, error) {
	f, err := disk.OpenIn(dir, name+journalName, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, nil, err
	}
	// Several lives of one piece are rare; what is longer than that is none of ours and not kept in memory.
	b, err := io.ReadAll(io.LimitReader(f, headSize+4*recordSize*(h.pieces()+256)))
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &journal{file: f}, b, nil
}

// resume goes on behind the journal b, which has been read.
func (j *journal) resume(b []byte) error {
	j.head = binary.LittleEndian.Uint32(b[headSize-4:])
	end := int64(len(b) - (len(b)-headSize)%recordSize)
	if err := j.file.Truncate(end); err != nil {
		return err
	}
	_, err := j.file.Seek(end, io.SeekStart)
	return err
}

// begin makes the journal one of nothing but a prefix. It is on disk before the file gets its first hole: without it
// the file would pass for a prefix.
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

// add notes a whole piece.
func (j *journal) add(piece int, sum uint32) error {
	_, err := j.file.Write(sealRecord(j.head, piece, sum))
	return err
}
