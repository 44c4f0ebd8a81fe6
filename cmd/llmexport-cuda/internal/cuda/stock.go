package cuda

import "container/list"

// kept is a factor that is on the card for other products.
type kept struct {
	buffer
	version uint64
	bytes   uint64 // of the factor
	used    int64  // the product that used it last, see Spent
	uses    int    // how much work goes on with it
	place   *list.Element
}

// stock is the factors that are on the card for other products. A mixture has hundreds in a layer, so none of what is asked for every
// product goes through all of them.
type stock struct {
	of    map[uint64]*kept // by version
	order *list.List       // of *kept, those used last at the end
	size  uint64           // of all buffers
}

func newStock() stock { return stock{of: map[uint64]*kept{}, order: list.New()} }

// add adds a factor that product now uses.
func (s *stock) add(version uint64, b buffer, bytes uint64, now int64) {
	k := &kept{buffer: b, version: version, bytes: bytes, used: now}
	k.place = s.order.PushBack(k)
	s.of[version] = k
	s.size += b.size
}

// use finds a factor, and notes that product now uses it. It is nil if the factor is not there.
func (s *stock) use(version uint64, now int64) *kept {
	k := s.of[version]
	if k != nil {
		k.used = now
		s.order.MoveToBack(k.place)
	}
	return k
}

// stay makes product now use what the product before it used.
func (s *stock) stay(now int64) {
	for at := s.order.Back(); at != nil && at.Value.(*kept).used >= now-1; at = at.Prev() {
		at.Value.(*kept).used = now
	}
}

// oldest is the factor that was used least recently, before a product, of those with buffers that fit and that no work goes on with. It is nil if
// there is none.
func (s *stock) oldest(before int64, fits func(b buffer) bool) *kept {
	for at := s.order.Front(); at != nil; at = at.Next() {
		k := at.Value.(*kept)
		if k.used >= before {
			break
		}
		if k.uses == 0 && fits(k.buffer) {
			return k
		}
	}
	return nil
}

// remove returns the memory of a factor that is not there any more.
func (s *stock) remove(k *kept) buffer {
	delete(s.of, k.version)
	s.order.Remove(k.place)
	s.size -= k.size
	return k.buffer
}
