package corpus

import (
	"slices"
)

// ids are the tokens of a document, or of a piece of one.
type ids struct {
	start  bool // they do not continue those before them
	tokens []int32
}

// packing is how tokens become windows.
type packing struct {
	window    int     // ids of a window, prefix included
	prefix    []int32 // begins every window
	separator []int32 // stands between two documents
	whole     bool    // a document does not continue in another window
	all       bool    // every token is used and windows begin anywhere; whole is ignored
}

// pack fills windows; the rest at the end that does not fill one is dropped.
func (p packing) pack(pieces []ids) [][]int32 {
	var (
		windows  [][]int32
		window   []int32 // being filled
		atStart  bool    // it begins with a document
		skipping bool    // the document had its window
	)
	add := func(tokens []int32) {
		for len(tokens) > 0 && !skipping {
			if len(window) == 0 {
				window = append(make([]int32, 0, p.window), p.prefix...)
			}
			n := min(p.window-len(window), len(tokens))
			window = append(window, tokens[:n]...)
			tokens = tokens[n:]
			if len(window) == p.window {
				windows, window, atStart = append(windows, window), nil, false
				skipping = p.whole && !p.all
			}
		}
	}
	for _, d := range pieces {
		tokens := d.tokens
		if d.start {
			skipping = false
			if !atStart && !p.all {
				window = nil
			}
			if len(window) > 0 {
				add(p.separator)
			}
			skipping = false // a separator that ends a window ends no document
			if len(window) == 0 {
				atStart = true
				// The template may have written the prefix already.
				if n := len(p.prefix); n > 0 && len(tokens) > n && slices.Equal(tokens[:n], p.prefix) {
					tokens = tokens[n:]
				}
			}
		}
		add(tokens)
	}
	return windows
}
