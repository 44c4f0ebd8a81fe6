package transfer

import (
	"sync"
)

const (
	// window is how far connections run ahead of the digest, in bytes: what is read back should still be in the
	// system's memory.
	window = 512 << 20
	// maxStretch bounds one request, in bytes: long enough that asking costs nothing, short enough that the
	// connections end together.
	maxStretch = 64 << 20
	// comeback is what the others have to bring before a connection that failed twice tries again, in bytes.
	comeback = 64 << 20
)

// download is a partial file that connections fill.
type download struct {
	*partial
	open Range
	o    Options

	// sequential is for a server that gives everything or nothing: one connection, which passes over what is here.
	sequential bool
	first      chan struct{} // closed at the first good answer; until then one connection asks
	n          int           // connections

	mu      sync.Mutex // guards the pieces, and what follows
	changed *sync.Cond // of anything here
	stopped bool
	free    int   // no piece before it is free
	here    int64 // bytes of all pieces
	got     int64 // bytes that have arrived in this run
	active  int   // connections that are not resting
	frontier

	report sync.Mutex // held during Options.Progress
}

// stretch is a run of bytes that one request asks for.
type stretch struct{ off, end int64 }

func newDownload(p *partial, open Range, o Options) *download {
	for i := range p.pieces {
		p.pieces[i].taken = false
	}
	d := &download{partial: p, open: open, o: o, here: p.have(), first: make(chan struct{})}
	d.changed = sync.NewCond(&d.mu)
	d.frontier.hash = p.blob.Hash()
	d.progress()
	return d
}

// progress tells the caller.
func (d *download) progress() {
	if d.o.Progress == nil {
		return
	}
	d.report.Lock()
	defer d.report.Unlock()
	d.mu.Lock()
	here := d.here
	d.mu.Unlock()
	d.o.Progress(here)
}

// ended reports whether there is nothing more to do. The lock is held.
func (d *download) ended() bool { return d.stopped || d.hashed == d.blob.Size }

// take gives the first stretch that is missing and that nobody works at; false if there is nothing more to do. As
// long as others are at work it waits: they may fail.
func (d *download) take() (stretch, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.ended() {
		for d.free < len(d.pieces) && (d.pieces[d.free].taken || d.whole(d.free)) {
			d.free++
		}
		if i := d.free; i < len(d.pieces) && d.start(i) < d.hashed+window {
			if d.sequential {
				for i := range d.pieces {
					d.pieces[i].taken = true
				}
				return stretch{0, d.blob.Size}, true
			}
			s := stretch{d.start(i) + d.pieces[i].have, d.start(i) + d.length(i)}
			d.pieces[i].taken = true
			for most := d.share(); s.end < s.off+most; s.end += d.length(i) {
				if i++; i == len(d.pieces) || d.pieces[i].taken || d.pieces[i].have > 0 {
					break
				}
				d.pieces[i].taken = true
			}
			return s, true
		}
		d.changed.Wait()
	}
	return stretch{}, false
}

// share is how many bytes one request should ask for: what is left is divided so that n connections end at about the same
// time. The lock is held.
func (d *download) share() int64 {
	if d.n == 1 {
		return d.blob.Size
	}
	return min(maxStretch, (d.blob.Size-d.here)/int64(2*d.n))
}

// join counts one more connection.
func (d *download) join() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active++
}

// release gives back what a connection has taken and not finished.
func (d *download) release(s stretch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := int(s.off / d.piece); i < len(d.pieces) && d.start(i) < s.end; i++ {
		d.pieces[i].taken = false
	}
	d.free = min(d.free, int(s.off/d.piece))
	d.changed.Broadcast()
}

// rest lets a connection that fails wait until the others have brought some more; false if there are none.
func (d *download) rest() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active == 1 {
		return false
	}
	d.active--
	for until := d.got + comeback; !d.ended() && d.got < until; {
		d.changed.Wait()
	}
	d.active++
	return true
}
