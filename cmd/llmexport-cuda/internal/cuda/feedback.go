package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// feedbackRows is the number of rows that a block of threads takes.
	feedbackRows = 16
	// feedStreams is the most streams of launches that run at the same time: a few rows leave most of a card idle.
	feedStreams = 64
	// longestBlock is the longest block of the kernel, mostCandidates the most candidates of a search.
	longestBlock, mostCandidates = 128, 42
)

// feedback is the argument of the kernel.
type feedback struct {
	work, code, scale, zero, factor, importance, order, failed uint64
	rows, cols, pitch, block, candidates, bits, half           int32
}

// feed chooses grids and codes of one feedback.
func (e *Engine) feed(f *kernel.Feedback) bool {
	w := &kernel.Feedbacks{Of: []*kernel.Feedback{f}, Left: make([]bool, 1)}
	return e.feedEach(w) && !w.Left[0]
}

// feedEach chooses grids and codes of as many feedbacks at a time as the card has memory for, and leaves those that the kernel cannot do. What the
// caller has changes only when all of the results have come.
func (e *Engine) feedEach(w *kernel.Feedbacks) bool {
	var of []int // those that the kernel can do
	for i, f := range w.Of {
		if f.Block <= longestBlock && f.Candidates <= mostCandidates {
			of = append(of, i)
		}
	}
	results := make([]fed, 0, len(of))
	for len(results) < len(of) {
		some, ok := e.feedSome(w, of[len(results):])
		if !ok {
			return false
		}
		results = append(results, some...)
	}
	for i := range w.Left {
		w.Left[i] = true
	}
	for k, r := range results {
		f := w.Of[of[k]]
		if w.Left[of[k]] = r.failed[0] != 0; r.failed[0] != 0 {
			continue
		}
		kernel.Copy(e.threads, f.Codes, r.codes)
		copy(f.Scale, r.scale)
		copy(f.Zero, r.zero)
	}
	return true
}

// fed are results.
type fed struct{ codes, scale, zero, failed []float32 }

// layFeedback places what a feedback has on the card.
func (l *layout) layFeedback(f *kernel.Feedback) feedback {
	k := feedback{work: l.take(len(f.Work)), code: l.take(len(f.Codes)), scale: l.take(len(f.Scale)), importance: l.take(len(f.Importance)),
		order: l.take(len(f.Order)), failed: l.take(1), rows: int32(f.Rows), cols: int32(f.Cols), pitch: int32(factorOf(f.Factor, 0, f.Cols, f.Cols).step),
		block: int32(f.Block), candidates: int32(f.Candidates), bits: int32(f.Bits)}
	if f.Zero != nil {
		k.zero = l.take(len(f.Zero))
	}
	if f.Half {
		k.half = 1
	}
	return k
}

// feedSome does the first of some feedbacks: those whose factors stay on the card, as far as there is memory for them, or one alone with its
// factor.
func (e *Engine) feedSome(w *kernel.Feedbacks, of []int) ([]fed, bool) {
	var factors []uint64
	alone := false
	for _, i := range of {
		f := w.Of[i]
		m, ok := e.keep(f.Factor, f.Cols, f.Cols)
		if e.failed != nil {
			return nil, false
		}
		if !ok {
			if alone = len(factors) == 0; !alone {
				break
			}
		}
		if factors = append(factors, m.at); alone {
			break
		}
	}
	n := len(factors)
	for ; n > 0 && e.failed == nil; n-- {
		var l layout
		for _, i := range of[:n] {
			l.layFeedback(w.Of[i])
		}
		sizes := map[*buffer]uint64{&e.c: uint64(l)}
		if f := w.Of[of[0]]; alone {
			sizes[&e.raw] = bytesOf(f.Factor, f.Cols, f.Cols)
		}
		if e.room(sizes) {
			break
		}
	}
	if n == 0 || e.failed != nil || !e.openFeeds(n) {
		return nil, false
	}
	if f := w.Of[of[0]]; alone {
		if factors[0] = e.raw.at; !e.bring(e.raw.at, f.Factor, f.Cols, f.Cols) {
			return nil, false
		}
	}
	return e.feedTogether(w, of[:n], factors)
}

// openFeeds makes streams for n launches at the same time.
func (e *Engine) openFeeds(n int) bool {
	for len(e.feeds) < min(n, feedStreams) {
		var s uintptr
		if !e.do("cuStreamCreate", e.driver.newStream(&s, apart)) {
			return false
		}
		e.feeds = append(e.feeds, s)
	}
	return true
}

// feedTogether does some feedbacks with their factors at the same time.
func (e *Engine) feedTogether(w *kernel.Feedbacks, of []int, factors []uint64) ([]fed, bool) {
	s, l := e.streams[0], layout(e.c.at)
	all := make([]feedback, len(of))
	for k, i := range of {
		f := w.Of[i]
		all[k] = l.layFeedback(f)
		all[k].factor = factors[k]
		if !e.upload(s, all[k].work, values(f.Work)) || !e.upload(s, all[k].importance, values(f.Importance)) ||
			!e.upload(s, all[k].order, values(integers(f.Order))) || !e.upload(s, all[k].scale, values(f.Scale)) ||
			f.Zero != nil && !e.upload(s, all[k].zero, values(f.Zero)) || !e.upload(s, all[k].failed, values(make([]float32, 1))) {
			return nil, false
		}
	}
	if !e.do("cuEventRecord", e.driver.record(e.done, s)) {
		return nil, false
	}
	// Streams may share a queue of the card: launches come before anything waits for them.
	streams := e.feeds[:min(len(of), len(e.feeds))]
	for _, stream := range streams {
		if !e.do("cuStreamWaitEvent", e.driver.after(stream, e.done, 0)) {
			return nil, false
		}
	}
	for k := range all {
		if !e.launch(streams[k%len(streams)], feed, (int(all[k].rows)+feedbackRows-1)/feedbackRows, 1, unsafe.Pointer(&all[k])) {
			return nil, false
		}
	}
	for _, stream := range streams {
		if !e.do("cuEventRecord", e.driver.record(e.done, stream)) || !e.do("cuStreamWaitEvent", e.driver.after(s, e.done, 0)) {
			return nil, false
		}
	}
	results := make([]fed, len(of))
	for k, i := range of {
		f, r := w.Of[i], &results[k]
		*r = fed{make([]float32, len(f.Codes)), make([]float32, len(f.Scale)), make([]float32, len(f.Zero)), make([]float32, 1)}
		if !e.download(s, values(r.codes), all[k].code) || !e.download(s, values(r.scale), all[k].scale) ||
			f.Zero != nil && !e.download(s, values(r.zero), all[k].zero) || !e.download(s, values(r.failed), all[k].failed) {
			return nil, false
		}
	}
	return results, e.do("cuEventRecord", e.driver.record(e.done, s)) && e.finishAll()
}
