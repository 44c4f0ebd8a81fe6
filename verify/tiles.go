package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime"
)

// tile holds the logits of some consecutive positions of one window of a batch, [Rows, Vocab] and valid during a
// visit.
type tile struct {
	window, Position, Rows, Vocab int
	Logits                        []float32
}

// sideBySide feeds the windows, all of one length, to the sessions, and visits the logits of all sessions for the same
// positions of a window, starting at position from, in order of windows and positions. The tiles are in the order of the
// sessions.
func sideBySide(ctx context.Context, sessions []*runtime.Session, windows [][]int32, from, rows int, visit func(tiles []tile) error) error {
	for _, s := range sessions {
		if err := s.Advance(ctx, windows); err != nil {
			return err
		}
	}
	length := len(windows[0])
	tiles := make([]tile, len(sessions))
	for w := range windows {
		for at := from; at < length; at += rows {
			n := min(rows, length-at)
			for i, s := range sessions {
				l, err := s.Logits(ctx, w*length+at, w*length+at+n)
				if err != nil {
					return err
				}
				tiles[i] = tile{w, at, n, len(l) / n, l}
			}
			if err := visit(tiles); err != nil {
				return err
			}
		}
	}
	return nil
}
