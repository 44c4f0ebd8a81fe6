package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// logitRows is how many rows of logits are on the card at a time: enough tiles of their gradients, which have few columns, to keep it busy.
	logitRows = 1024
	// logitShare is the divisor of the limit of memory that bounds logits that are kept for other work.
	logitShare = 8
	// drawBlock is the number of elements whose exponentials are summed by themselves.
	drawBlock = 256
)

// tile is room for some rows of logits.
type tile struct {
	of      *kernel.Logits
	weights buffer
	rows    int // at a time
	sizes   map[*buffer]uint64
}

// tileOf finds the matrix of logits on the card or brings it, and says what room some rows need: the logits, and so many bytes for each of them
// besides.
func (e *Engine) tileOf(l *kernel.Logits, bytes int) (t tile, ok bool) {
	if len(l.X) == 0 || l.Weights.Layout == kernel.ByPosition {
		return t, false
	}
	t = tile{of: l, rows: min(l.Rows, logitRows, max(1, e.piece/4/l.Vocab))}
	t.weights, ok = e.keep(l.Weights, l.Vocab, l.Width)
	t.sizes = map[*buffer]uint64{&e.raw: 4 * uint64(t.rows*l.Width), &e.a: panelBytes(t.rows, l.Width), &e.b: uint64(t.rows * bytes),
		&e.c: 4 * uint64(t.rows*l.Vocab)}
	e.inA = 0
	return t, ok && e.failed == nil
}

// each calls f for tiles of n rows from row lo on.
func (t *tile) each(f func(lo, n int) bool) bool {
	for lo := 0; lo < t.of.Rows; lo += t.rows {
		if !f(lo, min(t.rows, t.of.Rows-lo)) {
			return false
		}
	}
	return true
}

// logits computes those of n rows from row lo on.
func (e *Engine) logits(s uintptr, dst uint64, t *tile, lo, n int) bool {
	k := t.of.Width
	return e.upload(s, e.raw.at, values(t.of.X[lo*k:(lo+n)*k])) && e.pack(s, e.a.at, e.raw.at, n, k) &&
		e.multiply(s, dst, panels(e.a.at, k), factorOf(t.of.Weights, t.weights.at, t.of.Vocab, k), n, t.of.Vocab, k, false, kernel.All)
}

// ended waits for what is in a stream.
func (e *Engine) ended(s uintptr) bool {
	return e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}

// divergences computes logits of both kinds, keeps those that have a name, and brings the divergences back.
func (e *Engine) divergences(w *kernel.Divergences) bool {
	want, ok := e.tileOf(&w.Want, 8)
	got, both := e.tileOf(&w.Got, 8)
	if !ok || !both {
		return false
	}
	vocab, size := int32(w.Want.Vocab), 4*uint64(w.Want.Rows*w.Want.Vocab)
	named, stays := e.kept.use(w.Want.Version, e.spent.Products), false
	if named == nil && size <= e.limit/logitShare {
		_, stays = e.stayFactor(w.Want.Version, size, got.sizes)
	}
	if named == nil && !stays {
		got.sizes[&e.part] = got.sizes[&e.c]
	}
	if e.failed != nil || !stays && !e.room(got.sizes) {
		return false
	}
	s := e.streams[0]
	done := got.each(func(lo, n int) bool {
		p := e.part.at
		if k := e.kept.of[w.Want.Version]; k != nil {
			p = k.at + 4*uint64(lo)*uint64(vocab)
		}
		return (named != nil || e.logits(s, p, &want, lo, n)) && e.logits(s, e.c.at, &got, lo, n) &&
			e.launch(s, divergences, n, 1, unsafe.Pointer(&e.b.at), unsafe.Pointer(&p), unsafe.Pointer(&e.c.at), unsafe.Pointer(&vocab)) &&
			e.download(s, values(floatsOf(w.KL[lo:lo+n])), e.b.at)
	})
	if done = e.ended(s) && done; stays && !done {
		e.forget(e.kept.of[w.Want.Version])
	}
	return done
}

// labels draws labels and brings the gradients of the rows of X back.
func (e *Engine) labels(w *kernel.Labels) bool {
	t, ok := e.tileOf(&w.Logits, 16)
	back, both := e.keep(w.Back, w.Width, w.Vocab)
	if !ok || !both || w.Back.Layout != kernel.ByPosition {
		return false
	}
	t.sizes[&e.a] = panelBytes(t.rows, max(w.Width, w.Vocab))
	t.sizes[&e.part] = 4 * uint64(t.rows*w.Width)
	if !e.room(t.sizes) {
		return false
	}
	s, vocab, places, squares := e.streams[0], int32(w.Vocab), e.b.at, e.b.at+8*uint64(t.rows)
	done := t.each(func(lo, n int) bool {
		return e.upload(s, places, values(floatsOf(w.At[lo:lo+n]))) && e.logits(s, e.c.at, &t, lo, n) &&
			e.launch(s, labels, n, 1, unsafe.Pointer(&squares), unsafe.Pointer(&e.c.at), unsafe.Pointer(&places), unsafe.Pointer(&vocab)) &&
			e.pack(s, e.a.at, e.c.at, n, w.Vocab) &&
			e.multiply(s, e.part.at, panels(e.a.at, w.Vocab), factorOf(w.Back, back.at, w.Width, w.Vocab), n, w.Width, w.Vocab, false, kernel.All) &&
			e.download(s, values(w.Gradient[lo*w.Width:(lo+n)*w.Width]), e.part.at) && e.download(s, values(floatsOf(w.Squares[lo:lo+n])), squares)
	})
	if !e.ended(s) || !done {
		return false
	}
	for _, v := range w.Squares {
		if v != v {
			return false
		}
	}
	return true
}

// draws draws tokens.
func (e *Engine) draws(w *kernel.Draws) bool {
	blocks := (w.Vocab + drawBlock - 1) / drawBlock
	t, ok := e.tileOf(&w.Logits, 8+4+8*blocks)
	if !ok || !e.room(t.sizes) {
		return false
	}
	s, vocab := e.streams[0], int32(w.Vocab)
	places, sums := e.b.at, e.b.at+8*uint64(t.rows)
	tokens := sums + 8*uint64(t.rows*blocks)
	done := t.each(func(lo, n int) bool {
		return e.upload(s, places, values(floatsOf(w.At[lo:lo+n]))) && e.logits(s, e.c.at, &t, lo, n) &&
			e.launch(s, draws, n, 1, unsafe.Pointer(&tokens), unsafe.Pointer(&e.c.at), unsafe.Pointer(&places), unsafe.Pointer(&sums), unsafe.Pointer(&vocab)) &&
			e.download(s, values(floatsOf(w.Tokens[lo:lo+n])), tokens)
	})
	if !e.ended(s) || !done {
		return false
	}
	for _, token := range w.Tokens {
		if token < 0 {
			return false
		}
	}
	return true
}

// floatsOf is memory as it travels.
func floatsOf[T any](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T)))/4)
}
