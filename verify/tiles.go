package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime"
)

// tile is the logits of some consecutive positions of one window of a batch, [Rows, Vocab] and valid during a visit.
type tile struct {
	window, Position, Rows, Vocab int
	Logits                        []float32
}

// sideBySide feeds the windows, all of one length, to two sessions, and hands out the logits of both for the same
// positions, in order of windows and positions.
func sideBySide(ctx context.Context, a, b *runtime.Session, windows [][]int32, rows int, visit func(a, b tile) error) error {
	sessions := [2]*runtime.Session{a, b}
	for _, s := range sessions {
		if err := s.Advance(ctx, windows); err != nil {
			return err
		}
	}
	length := len(windows[0])
	for w := range windows {
		for at := 0; at < length; at += rows {
			n := min(rows, length-at)
			var pair [2]tile
			for i, s := range sessions {
				l, err := s.Logits(ctx, w*length+at, w*length+at+n)
				if err != nil {
					return err
				}
				pair[i] = tile{w, at, n, len(l) / n, l}
			}
			if err := visit(pair[0], pair[1]); err != nil {
				return err
			}
		}
	}
	return nil
}
