package transfer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/llmexport/llmexport/internal/disk"
)

const (
	// pieceSize is the most that a cut costs each connection, in bytes.
	pieceSize = 4 << 20
	// maxPieces bounds the memory for a blob of any size: one of more than a tebibyte has larger pieces.
	maxPieces = 1 << 18
)

// partial is an incomplete file with a list of its pieces.
type partial struct {
	dir     *os.Root
	name    string
	blob    Blob
	piece   int64 // bytes of each but the last
	file    *os.File
	direct  *os.File    // the same file, bypassing the page cache; nil where that is unsupported
	refused atomic.Bool // direct access has failed once
	journal *journal    // nil for a file of one piece, which grows from its start to its end
	pieces  []piece
}

// piece is a part of a file. It belongs to the connection that has taken it.
type piece struct {
	have     int64  // bytes from its start on that are in the file
	sum      uint32 // CRC-32C of them
	taken    bool
	doubtful bool // an earlier run finished it, and it has not been compared with sum since
}

// openPartial opens the file that an earlier run left under a name in dir, or creates it.
func openPartial(dir *os.Root, name string, b Blob) (p *partial, err error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	p = &partial{dir: dir, name: name, blob: b, piece: pieceSizeOf(b.Size)}
	p.pieces = make([]piece, p.head(0).pieces())
	defer func() {
		switch {
		case err == nil:
		case p.file == nil || p.have() > 0 || errors.As(err, new(*disk.KindError)):
			err = errors.Join(p.explain(err), p.close())
		default:
			err = errors.Join(p.explain(err), p.remove())
		}
	}()
	if p.file, err = disk.OpenIn(dir, name, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return p, err
	}
	var left []byte
	if len(p.pieces) > 1 {
		if p.journal, left, err = openJournal(dir, name, p.head(0)); err != nil {
			return p, err
		}
	}
	st, err := p.file.Stat()
	if err != nil {
		return p, err
	}
	prefix := st.Size()
	if len(left) > 0 {
		prefix, err = readJournal(left, p.head(0), func(i int, sum uint32) {
			p.pieces[i] = piece{have: p.length(i), sum: sum, doubtful: true}
		})
	}
	switch {
	case err != nil || prefix > b.Size || st.Size() > b.Size:
		return p, p.restart()
	case len(left) > 0:
		err = p.journal.resume(left)
	case p.journal != nil:
		err = p.journal.begin(p.head(prefix))
	}
	if err == nil {
		err = p.adopt(min(prefix, st.Size()))
	}
	if err == nil && p.journal != nil {
		err = disk.Reserve(p.file, b.Size)
		p.openDirect()
	}
	return p, err
}

// openDirect opens the file a second time, if it still has the name.
func (p *partial) openDirect() {
	f, err := disk.OpenDirect(p.dir, p.name)
	if err != nil {
		return
	}
	st, err := p.file.Stat()
	now, nowErr := f.Stat()
	if err != nil || nowErr != nil || !os.SameFile(st, now) {
		f.Close()
		return
	}
	p.direct = f
}

// writeAt writes directly where that is possible.
func (p *partial) writeAt(b []byte, off int64) error {
	if p.direct != nil && !p.refused.Load() && disk.Aligned(b, off) {
		_, err := p.direct.WriteAt(b, off)
		if err == nil || disk.Full(err) {
			return err
		}
		p.refused.Store(true)
	}
	_, err := p.file.WriteAt(b, off)
	return err
}

// readAt reads directly where that is possible. All of b is in the file.
func (p *partial) readAt(b []byte, off int64) error {
	if p.direct != nil && !p.refused.Load() && disk.Aligned(b, off) {
		if n, _ := p.direct.ReadAt(b, off); n == len(b) {
			return nil
		}
		p.refused.Store(true)
	}
	_, err := p.file.ReadAt(b, off)
	return err
}

// pieceSizeOf returns the size of the pieces of a file, in bytes.
func pieceSizeOf(size int64) int64 {
	n := int64(pieceSize)
	for size/n >= maxPieces {
		n *= 2
	}
	return n
}

func (p *partial) head(prefix int64) journalHead {
	return journalHead{size: p.blob.Size, piece: p.piece, prefix: prefix, digest: p.blob.Digest()}
}

// start returns the offset of a piece, in bytes.
func (p *partial) start(i int) int64 { return int64(i) * p.piece }

// length returns the size of a piece, in bytes.
func (p *partial) length(i int) int64 { return min(p.piece, p.blob.Size-p.start(i)) }

func (p *partial) whole(i int) bool { return p.pieces[i].have == p.length(i) }

// adopt accepts the first n bytes, which nothing is known about, as the blob's; the digest decides whether they are.
func (p *partial) adopt(n int64) error {
	for i := 0; i < len(p.pieces) && p.start(i) < n; i++ {
		if p.pieces[i].have > 0 {
			continue
		}
		have := min(p.length(i), n-p.start(i))
		h := crc32.New(castagnoli)
		if have < p.length(i) { // a connection will continue here
			if _, err := io.Copy(h, io.NewSectionReader(p.file, p.start(i), have)); err != nil {
				return err
			}
		}
		p.pieces[i] = piece{have: have, sum: h.Sum32()}
	}
	return nil
}

// restart discards the content. The file is emptied before the journal: in the other order its holes would count as content.
func (p *partial) restart() error {
	clear(p.pieces)
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	if p.journal == nil {
		return nil
	}
	if err := p.journal.begin(p.head(0)); err != nil {
		return err
	}
	return p.explain(disk.Reserve(p.file, p.blob.Size))
}

// have counts the bytes that the file has.
func (p *partial) have() (n int64) {
	for _, piece := range p.pieces {
		n += piece.have
	}
	return n
}

// finish makes the complete file durable. From then on it needs no journal.
func (p *partial) finish() error {
	if err := p.file.Sync(); err != nil {
		return p.explain(err)
	}
	return errors.Join(p.close(), p.removeJournal())
}

// remove removes the file and the journal.
func (p *partial) remove() error {
	return errors.Join(p.close(), p.dir.Remove(p.name), p.removeJournal())
}

func (p *partial) removeJournal() error {
	err := p.dir.Remove(p.name + journalName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// close may be called more than once.
func (p *partial) close() (err error) {
	if p.file != nil {
		err = p.file.Close()
	}
	if p.direct != nil {
		err = errors.Join(err, p.direct.Close())
	}
	if p.journal != nil {
		err = errors.Join(err, p.journal.file.Close())
	}
	p.file, p.direct, p.journal = nil, nil, nil
	return err
}

// explain adds to an error of a full disk how many bytes are missing.
func (p *partial) explain(err error) error {
	if disk.Full(err) {
		return fmt.Errorf("%s needs %d more bytes: %w", filepath.Join(p.dir.Name(), p.name), p.blob.Size-p.have(), err)
	}
	return err
}
