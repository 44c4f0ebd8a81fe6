package transfer

import (
	"sync"
)

const (
	// window is how far connections run ahead of the digest, in bytes: data to be read back should still be in the page cache.
	window = 512 << 20
	// maxStretch bounds one request, in bytes: long enough that the overhead of a request is negligible, short enough that the
	// connections end together.
	maxStretch = 64 << 20
	// comeback is how many bytes the others must receive before a connection that failed twice tries again.
	comeback = 64 << 20
)

// download is a partial file that connections fill.
type download struct {
	*partial
	open Range
	o    Options

	// sequential is for a server without range requests: one connection, which skips the bytes that are already here.
	sequential bool
	first      chan struct{} // closed at the first good response; until then only one connection sends requests
	n          int           // connections

	mu      sync.Mutex // guards the pieces and the fields below
	changed *sync.Cond // signals any change of them
	stopped bool
	free    int   // all pieces before it are taken
	here    int64 // bytes of all pieces
	got     int64 // bytes that have arrived in this run
	active  int   // connections that are not resting
	frontier

	report sync.Mutex // held during Options.Progress
}

// stretch is a run of bytes covered by one request.
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

// progress reports to the caller.
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

// ended reports whether there is nothing left to do. The lock is held.
func (d *download) ended() bool { return d.stopped || d.hashed == d.blob.Size }

// take returns the first missing stretch that no connection works on; false if nothing is left to do. While others are working
// it waits, because they may fail.
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

// share is how many bytes one request should cover: the remaining bytes are divided so that n connections end at about the same
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

// release returns the unfinished part of a connection's stretch.
func (d *download) release(s stretch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := int(s.off / d.piece); i < len(d.pieces) && d.start(i) < s.end; i++ {
		d.pieces[i].taken = false
	}
	d.free = min(d.free, int(s.off/d.piece))
	d.changed.Broadcast()
}

// rest makes a failing connection wait until the others have received more; false if there are none.
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
