package transfer

import (
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/llmexport/llmexport/internal/fault"
)

const (
	bufferSize = 1 << 20 // bytes of one read and write; pieces are multiples of it
	maxQueue   = 4       // buffers that wait for the digest before the connection has to
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// chunk is a part of the file in memory.
type chunk struct {
	buf *[bufferSize]byte
	n   int
}

// frontier is the position of the digest. Data that arrives at the position comes through a queue; data that arrives further on
// is read back from the file later.
type frontier struct {
	hash   hash.Hash
	hashed int64 // bytes that the digest covers
	handed int64 // bytes that it covers, is processing, or has in the queue
	queue  []chunk
}

// hand gives the digest a part of the file that is being written to disk, or drops the part if it is not next. The lock is held.
func (d *download) hand(off int64, c chunk) {
	for off == d.handed && len(d.queue) == maxQueue && !d.stopped {
		d.changed.Wait()
	}
	if off != d.handed || d.stopped {
		buffers.Put(c.buf)
		return
	}
	d.queue = append(d.queue, c)
	d.handed += int64(c.n)
}

// digest hashes the pieces from the first to the last.
func (d *download) digest() error {
	spare := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(spare)
	for i := 0; i < len(d.pieces); {
		d.mu.Lock()
		doubtful := d.pieces[i].doubtful
		d.mu.Unlock()
		follow := d.follow
		if doubtful {
			follow = d.recheck
		}
		if err := follow(i, spare[:]); err != nil {
			return err
		}
		d.mu.Lock()
		stopped := d.stopped
		if d.hashed == d.start(i)+d.length(i) {
			i++
		}
		d.mu.Unlock()
		if stopped {
			return nil
		}
	}
	return nil
}

// follow hashes a piece while it arrives.
func (d *download) follow(i int, spare []byte) error {
	for {
		d.mu.Lock()
		for !d.stopped && len(d.queue) == 0 && d.start(i)+d.pieces[i].have == d.hashed && !d.whole(i) {
			d.changed.Wait()
		}
		if d.stopped || d.hashed == d.start(i)+d.length(i) {
			d.mu.Unlock()
			return nil
		}
		if len(d.queue) > 0 {
			c := d.queue[0]
			d.queue = append(d.queue[:0], d.queue[1:]...)
			d.mu.Unlock()
			d.hash.Write(c.buf[:c.n])
			buffers.Put(c.buf)
			d.advance(int64(c.n))
			continue
		}
		n := min(bufferSize, d.start(i)+d.pieces[i].have-d.hashed)
		d.handed = d.hashed + n
		d.mu.Unlock()
		if err := d.readAt(spare[:n], d.hashed); err != nil { // only this goroutine changes d.hashed
			return err
		}
		d.hash.Write(spare[:n])
		d.advance(n)
	}
}

func (d *download) advance(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hashed += n
	d.changed.Broadcast()
}

// recheck hashes a piece that an earlier run has finished. A damaged one is downloaded again.
func (d *download) recheck(i int, spare []byte) error {
	before, err := d.hash.(hash.Cloner).Clone()
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.handed = d.start(i) + d.length(i)
	d.mu.Unlock()
	sum, r := crc32.New(castagnoli), io.NewSectionReader(d.file, d.start(i), d.length(i))
	n, err := io.CopyBuffer(io.MultiWriter(d.hash, sum), struct{ io.Reader }{r}, spare)
	if err != nil {
		return err
	}
	d.mu.Lock()
	p := &d.pieces[i]
	if n == p.have && sum.Sum32() == p.sum {
		p.doubtful = false
		d.mu.Unlock()
		d.advance(n)
		return nil
	}
	for _, c := range d.queue {
		buffers.Put(c.buf)
	}
	d.hash, d.handed, d.queue = before, d.hashed, d.queue[:0]
	d.here -= p.have
	*p = piece{}
	d.free = min(d.free, i)
	d.changed.Broadcast()
	d.mu.Unlock()
	d.progress()
	return nil
}

// compare compares the digest of the whole file.
func (d *download) compare() error {
	if sum := hex.EncodeToString(d.hash.Sum(nil)); sum != d.blob.Digest() {
		return &wrongContent{fmt.Errorf("digest is %s, not %s: %w", sum, d.blob.Digest(), fault.ErrCorrupt)}
	}
	return nil
}
