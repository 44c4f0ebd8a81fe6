package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/llmexport/llmexport/runtime"
)

// tile is the logits of some consecutive positions of one window of a batch.
type tile struct {
	runtime.Tile
	window int
}

// scoreBatch hands out the logits of every position of all windows, in order of windows and positions. Stand-in for
// Session.ScoreBatch, which decodes weights once a batch.
func scoreBatch(ctx context.Context, s *runtime.Session, windows [][]int32, rows int, visit func(tile) error) error {
	for i, w := range windows {
		if err := s.Score(ctx, w, rows, func(t runtime.Tile) error { return visit(tile{t, i}) }); err != nil {
			return err
		}
	}
	return nil
}

var errStopped = errors.New("stopped")

// tilesOf is scoreBatch as a sequence; a tile is valid until the next one is asked for, and an error is the last
// element.
func tilesOf(ctx context.Context, s *runtime.Session, windows [][]int32, rows int) iter.Seq2[tile, error] {
	return func(yield func(tile, error) bool) {
		err := scoreBatch(ctx, s, windows, rows, func(t tile) error {
			if !yield(t, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && err != errStopped {
			yield(tile{}, err)
		}
	}
}

// sideBySide scores the windows with two sessions, which advance together, and hands out tiles of the same
// positions.
func sideBySide(ctx context.Context, a, b *runtime.Session, windows [][]int32, rows int, visit func(a, b tile) error) error {
	next, stop := iter.Pull2(tilesOf(ctx, b, windows, rows))
	defer stop()
	return scoreBatch(ctx, a, windows, rows, func(x tile) error {
		y, err, ok := next()
		switch {
		case err != nil:
			return err
		case !ok || y.window != x.window || y.Position != x.Position || y.Rows != x.Rows:
			return fmt.Errorf("internal error: two sessions cut the same windows differently")
		}
		return visit(x, y)
	})
}
