package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
)

// connection fetches stretches until none are left. The leader sends the first request: before the others begin, it has shown
// that the server responds, whether it supports ranges, and where the content is stored.
func (d *download) connection(ctx context.Context, leader bool) error {
	if leader {
		defer d.started() // there may be nothing to request
	} else {
		select {
		case <-ctx.Done():
			return nil
		case <-d.first:
			d.join()
		}
	}
	failures, pace := 0, d.o.pace()
	for {
		s, ok := d.take()
		if !ok {
			return nil
		}
		got, err := d.fetch(ctx, s, pace)
		d.release(s)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fair(got, s.end-s.off) && !errors.Is(err, errSlow) {
			failures = 0
		}
		// A server may want fewer connections; the last one decides whether the download fails.
		if again := (*Retryable)(nil); failures > 0 && errors.As(err, &again) && !again.held && d.rest() {
			continue
		}
		if err := d.o.wait(ctx, "download", &failures, err); err != nil {
			return err
		}
	}
}

// fetch requests a stretch and returns how many missing bytes it delivered.
func (d *download) fetch(ctx context.Context, s stretch, pace *pace) (got int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := cmp.Or(d.o.Stall, time.Minute)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	defer func() {
		if err != nil && context.Cause(ctx) == errStalled {
			err = &Retryable{Err: fmt.Errorf("no byte for %v: %w", stall, errStalled)}
		}
	}()
	began := time.Now()
	body, err := d.open(ctx, s.off, s.end-s.off)
	timer.Stop()
	slow := pace.add(0, time.Since(began))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	d.started()
	if slow != nil {
		return 0, &Retryable{Err: slow}
	}
	r := &patient{Reader: body, timer: timer, stall: stall, pace: pace}
	for at := s.off; at < s.end; {
		c := chunk{buf: buffers.Get().(*[bufferSize]byte)}
		end := min(s.end, at-at%d.piece+d.piece, at-at%bufferSize+bufferSize) // so that reads after a cut are aligned again
		n, rerr := io.ReadFull(r, c.buf[:end-at])
		c.n = n
		kept, werr := d.write(at, c)
		got += kept
		at += int64(n)
		if werr != nil {
			return got, werr
		}
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			if got > 0 && r.last == io.EOF {
				if fair(at-s.off, s.end-s.off) {
					return got, nil // fewer bytes than requested, which a server may send
				}
				return got, &Retryable{Err: fmt.Errorf("%d bytes of %d that were asked for: %w", at-s.off, s.end-s.off, errSlow)}
			}
			rerr = io.ErrUnexpectedEOF
		}
		if rerr != nil {
			return got, &Retryable{Err: fmt.Errorf("after %d of %d bytes: %w", at, d.blob.Size, Redact(rerr))}
		}
	}
	if n, _ := r.Read(make([]byte, 1)); n > 0 {
		return got, &wrongContent{fmt.Errorf("more than the %d bytes that are listed arrive: %w", s.end, fault.ErrCorrupt)}
	}
	return got, nil
}

// started lets the other connections begin.
func (d *download) started() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.first:
	default:
		close(d.first)
	}
}

// write puts a chunk, which does not cross the end of a piece, in its place, and takes ownership of it. Bytes that the file
// already has are skipped.
func (d *download) write(at int64, c chunk) (kept int64, err error) {
	i := int(at / d.piece)
	if c.n == 0 {
		buffers.Put(c.buf)
		return 0, nil
	}
	p := &d.pieces[i]
	d.mu.Lock()
	have, sum := p.have, p.sum
	d.mu.Unlock()
	// After a gap nothing can be kept: a piece that was skipped has turned out to be damaged.
	skip := d.start(i) + have - at
	if skip >= int64(c.n) || skip < 0 {
		buffers.Put(c.buf)
		return 0, nil
	}
	b := c.buf[skip:c.n]
	if err := d.writeAt(b, at+skip); err != nil {
		buffers.Put(c.buf)
		return 0, err
	}
	kept = int64(len(b))
	sum = crc32.Update(sum, castagnoli, b)
	if have+kept == d.length(i) {
		disk.Begin(d.file, d.start(i), d.length(i))
		if d.journal != nil {
			if err := d.journal.add(i, sum); err != nil {
				buffers.Put(c.buf)
				return 0, err
			}
		}
	}
	d.mu.Lock()
	p.have, p.sum = have+kept, sum
	d.here += kept
	d.got += kept
	d.changed.Broadcast()
	if skip > 0 {
		buffers.Put(c.buf)
	} else {
		d.hand(at, c)
	}
	d.mu.Unlock()
	d.progress()
	return kept, nil
}

// patient is a reader that a timer watches while it reads.
type patient struct {
	io.Reader
	timer *time.Timer
	stall time.Duration
	pace  *pace
	last  error // io.ReadFull returns the same error for an end and for a cut
}

func (p *patient) Read(b []byte) (n int, err error) {
	p.timer.Reset(p.stall)
	defer p.timer.Stop()
	began := time.Now()
	n, p.last = p.Reader.Read(b)
	if slow := p.pace.add(int64(n), time.Since(began)); slow != nil && p.last == nil {
		p.last = slow
	}
	return n, p.last
}
