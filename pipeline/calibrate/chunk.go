package calibrate

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// chunkTokens is how many tokens are in memory at a time, in whole windows.
const chunkTokens = 2048

// deviceChunk is how many tokens may be in memory at a time if a device computes most of what happens to them: between two chunks it waits
// for this CPU, which matters in small models. Their activations take at most chunkBytes, as they have to have room there, too, and the memory
// limit divided by chunkShare.
const deviceChunk, chunkBytes, chunkShare = 1 << 13, 1 << 29, 32

// chunkOf is how many tokens of the model are in memory at a time.
func (o *Options) chunkOf() (tokens int) {
	tokens = chunkTokens
	if !kernel.HasDevice() {
		return tokens
	}
	var token int64
	for _, l := range o.Decoder.Layers {
		for _, b := range l {
			n := needsOf(b.Block)
			token = max(token, n.activations(int64(o.Decoder.Hidden)))
		}
	}
	for tokens < deviceChunk && 2*int64(tokens)*token <= min(chunkBytes, o.Memory/chunkShare) {
		tokens *= 2
	}
	return tokens
}

// windowsOf is how many windows are in memory at a time, for so many tokens.
func windowsOf(tokens, length int) int { return max(1, tokens/length) }

// item is what else than a window of text a walk takes through a model: what a tower makes of a picture, or a prompt with one.
type item struct {
	tokens, skip int
	// windows describes the states of the item in a layer.
	windows func(layer int) (forward.Windows, error)
	// states returns them before the first layer, in a stream.
	states func(ctx context.Context, stream int) ([]float32, error)
	// deep returns what is added to them after a layer; it may be nil.
	deep func(ctx context.Context, stream, layer int) ([]float32, error)
}

// chunk is a run of windows, or an item.
type chunk struct {
	row, n int // the first token, and how many
	// length is that of all windows, skip the first tokens of each that statistics leave out.
	length, skip int
	of           forward.Windows
}

// chunks calls f for runs of windows and for every item.
func (w *walk) chunks(ctx context.Context, f func(c chunk) error) error {
	row := 0
	visit := func(c chunk) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		c.row = row
		row += c.n
		return f(c)
	}
	for at := 0; at < len(w.windows); {
		length := len(w.windows[0])
		n := min(windowsOf(w.chunk, length), len(w.windows)-at)
		of := forward.Equal(n, length)
		of.Most = int64(w.chunk)
		if err := visit(chunk{n: n * length, length: length, skip: w.skip, of: of}); err != nil {
			return err
		}
		at += n
	}
	for i := range w.items {
		it := &w.items[i]
		of, err := it.windows(min(w.layer, len(w.decoder.Layers)-1))
		if err != nil {
			return err
		}
		if err := visit(chunk{n: it.tokens, length: it.tokens, skip: it.skip, of: of}); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for every chunk of every stream k, with its number of rows.
func (w *walk) each(ctx context.Context, f func(k, row, n int, of forward.Windows) error) error {
	return w.eachOf(ctx, 0, len(w.streams), f)
}

// eachOf is each for streams lo to hi-1.
func (w *walk) eachOf(ctx context.Context, lo, hi int, f func(k, row, n int, of forward.Windows) error) error {
	return w.chunks(ctx, func(c chunk) error {
		for k := lo; k < hi; k++ {
			if err := f(k, c.row, c.n, c.of); err != nil {
				return err
			}
		}
		return nil
	})
}

// text is the number of tokens of the windows.
func (w *walk) text() int {
	if len(w.windows) == 0 {
		return 0
	}
	return len(w.windows) * len(w.windows[0])
}

// tokens is the length of windows and items.
func (w *walk) tokens() int {
	n := w.text()
	for i := range w.items {
		n += w.items[i].tokens
	}
	return n
}

// counted reports for every token whether statistics take it.
func (w *walk) counted() []bool {
	all := make([]bool, 0, w.tokens())
	for _, x := range w.windows {
		for i := range x {
			all = append(all, i >= w.skip)
		}
	}
	for _, it := range w.items {
		for i := range it.tokens {
			all = append(all, i >= it.skip)
		}
	}
	return all
}
