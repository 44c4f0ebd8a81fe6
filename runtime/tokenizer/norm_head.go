package tokenizer

import "unicode/utf8"

// headCount finds aligned.head after a change, as the library `tokenizers` finds the places of characters. It takes the
// characters of the new text in order and gives each the place of an old one: one that is put in place of old ones takes
// the place of the first of these, one that is added the place of the character before. Some changes do not tell of all
// that they drop, so that places fall behind; so do they here.
type headCount struct {
	old    aligned
	offset int // the bytes of the old text that are used up
	head   int
	// The last character waits, as more may be dropped after it.
	waits bool
	size  int
	drops int
	over  bool
}

// put takes a character of size bytes that stands for 1+drops old ones.
func (h *headCount) put(size, drops int) {
	h.flush()
	h.waits, h.size, h.drops = true, size, drops
}

// add takes a character that stands for no old one.
func (h *headCount) add(size int) {
	h.flush()
	h.count(size, h.offset <= h.old.head)
}

func (h *headCount) flush() {
	if !h.waits {
		return
	}
	h.waits = false
	h.count(h.size, h.offset < h.old.head)
	for range 1 + h.drops {
		if h.over {
			return
		}
		_, w := utf8.DecodeRuneInString(h.old.text[h.offset:])
		h.offset += w
	}
}

func (h *headCount) count(size int, inside bool) {
	if h.over = h.over || !inside; !h.over {
		h.head += size
	}
}

// keep takes characters that stay as they are.
func (h *headCount) keep(s string) {
	for i := 0; i < len(s) && !h.over; {
		_, w := utf8.DecodeRuneInString(s[i:])
		h.put(w, 0)
		i += w
	}
}

// replace takes text in place of a number of old characters.
func (h *headCount) replace(old int, text string) {
	for _, r := range text {
		if h.over {
			return
		}
		if old > 0 {
			h.put(utf8.RuneLen(r), 0)
			old--
		} else {
			h.add(utf8.RuneLen(r))
		}
	}
	if h.waits {
		h.drops += old
	}
}

// finish gives the bytes of the new text that belong to the head.
func (h *headCount) finish() int {
	h.flush()
	return h.head
}
