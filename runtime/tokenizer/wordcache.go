package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 14
	// Longer words are rare, and memory stays below a few megabytes without them.
	cachedWordBytes = 64
)

// wordCache remembers the ids of recent words. A word has one slot, and a newer word evicts an older one;
// readers and writers never wait for each other. Its zero value is ready.
type wordCache struct {
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

var cacheSeed = maphash.MakeSeed()

func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > cachedWordBytes {
		return nil, false
	}
	e := c.slots[maphash.String(cacheSeed, word)%cacheSlots].Load()
	if e == nil || e.word != word {
		return nil, false
	}
	return e.ids, true
}

func (c *wordCache) put(word string, ids []int32) {
	if len(word) > cachedWordBytes {
		return
	}
	// Copies: the word is a part of the caller's text, which must not be kept alive.
	e := &cachedWord{word: string([]byte(word)), ids: append([]int32(nil), ids...)}
	c.slots[maphash.String(cacheSeed, word)%cacheSlots].Store(e)
}
