package calibrate

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// tableRows is how many rows of a table are read with the others in the time of one by itself, or fewer.
const tableRows = 4

// embedding opens the lookup of a stream. The table is read whole, if it has room, unless the text is short in comparison.
func (w *walk) embedding(s *stream) (*forward.Embedding, error) {
	e, err := s.lookup.Embedding()
	if err != nil {
		return nil, err
	}
	vocab := int64(w.decoder.Vocab)
	if vocab > tableRows*int64(w.text()) || 4*int64(len(w.streams))*vocab*int64(w.decoder.Hidden) > w.weights {
		return e, nil
	}
	l, err := s.lookup.LoadTable()
	if err == nil {
		e.Table = l.W
	}
	return e, err
}

// embed computes the states before the first layer.
func (w *walk) embed(ctx context.Context) error {
	if len(w.windows) > 0 {
		length, items := len(w.windows[0]), w.items
		w.items = nil
		embeddings := make([]*forward.Embedding, len(w.streams))
		for k, s := range w.streams {
			if k > 0 && s.lookup == w.streams[0].lookup {
				embeddings[k] = embeddings[0]
				continue
			}
			var err error
			if embeddings[k], err = w.embedding(s); err != nil {
				return err
			}
		}
		err := w.each(ctx, func(k, row, n int, _ forward.Windows) error {
			x, err := embeddings[k].States(ctx, w.windows[row/length:(row+n)/length])
			if err != nil {
				return err
			}
			return w.streams[k].states.put(x, row)
		})
		if w.items = items; err != nil {
			return err
		}
	}
	row := w.text()
	for i := range w.items {
		for k, s := range w.streams {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			x, err := w.items[i].states(ctx, k)
			if err != nil {
				return err
			}
			if err := s.states.put(x, row); err != nil {
				return err
			}
		}
		row += w.items[i].tokens
	}
	return nil
}

// deepen adds what items add to their states after a layer.
func (w *walk) deepen(ctx context.Context, layer int) error {
	row := w.text()
	for i := range w.items {
		it := &w.items[i]
		for k, s := range w.streams {
			if it.deep == nil {
				continue
			}
			x, err := it.deep(ctx, k, layer)
			if err != nil || x == nil {
				return err
			}
			h, err := s.read(row, it.tokens)
			if err != nil {
				return err
			}
			kernel.Add(h, h, x)
			if err := s.states.put(h, row); err != nil {
				return err
			}
		}
		row += it.tokens
	}
	return nil
}
