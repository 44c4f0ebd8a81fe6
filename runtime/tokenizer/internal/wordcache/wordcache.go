// Package wordcache remembers the ids of words.
package wordcache

import (
	"hash/maphash"
	"sync/atomic"
)

// MaxBytes bounds the words that are remembered. Longer ones are rare, and would take more than a few megabytes.
const MaxBytes = 64

const cacheSlots = 1 << 14

// Cache remembers the ids of recent words. A word has one slot, and a newer word evicts an older one;
// readers and writers never wait for each other. Its zero value is ready.
type Cache struct {
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

var cacheSeed = maphash.MakeSeed()

// Get returns the ids of a word, if they are remembered. They must not be changed.
func (c *Cache) Get(word string) ([]int32, bool) {
	if len(word) > MaxBytes {
		return nil, false
	}
	e := c.slots[maphash.String(cacheSeed, word)%cacheSlots].Load()
	if e == nil || e.word != word {
		return nil, false
	}
	return e.ids, true
}

// Put remembers the ids of a word.
func (c *Cache) Put(word string, ids []int32) {
	if len(word) > MaxBytes {
		return
	}
	// Copies: the word is a part of the caller's text, which must not be kept alive.
	e := &cachedWord{word: string([]byte(word)), ids: append([]int32(nil), ids...)}
	c.slots[maphash.String(cacheSeed, word)%cacheSlots].Store(e)
}
