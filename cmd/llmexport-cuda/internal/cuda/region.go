package cuda

// Small buffers are cut from regions of regionBytes, the largest of a cutShare of them: while the card computes, asking the driver for each takes
// longer than most products. Regions take at most the limit divided by regionShare, and stay.
const regionBytes, cutShare, regionShare = 512 << 20, 16, 16

// regions is memory that buffers are cut from.
type regions struct {
	size uint64   // of each
	all  []uint64 // where they are
	left uint64   // bytes at the end of the last one
	idle uint64   // bytes of buffers that wait to be used again
}

// has reports whether a buffer was cut from a region.
func (r *regions) has(at uint64) bool {
	for _, from := range r.all {
		if from <= at && at < from+r.size {
			return true
		}
	}
	return false
}

// spare is the bytes that are in no buffer but those that wait, and are not given back.
func (r *regions) spare() uint64 { return r.left + r.idle }

// cut makes a buffer of its size from a region, and reports whether it did.
func (e *Engine) cut(b *buffer) bool {
	r, size := &e.cuts, (b.size+255)&^255
	if size > r.size/cutShare {
		return false
	}
	if r.left < size {
		var at uint64
		if uint64(len(r.all)+1)*r.size > e.limit/regionShare || e.given+r.size > e.limit {
			return false
		}
		if rc := e.driver.alloc(&at, r.size); rc == outOfMemory || !e.do("cuMemAlloc", rc) {
			return false
		}
		r.all, r.left = append(r.all, at), r.size
		e.given += r.size
	}
	b.at = r.all[len(r.all)-1] + r.size - r.left
	r.left -= size
	return true
}
