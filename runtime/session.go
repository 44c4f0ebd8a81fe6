package runtime

import (
	"context"
	"fmt"
	goruntime "runtime"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/backends/all"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Options of a session.
type Options struct {
	// Backend executes the graph; nil means the default.
	Backend backends.Backend
	Mode    backends.Mode
	// DynamicOption is the engine's key of that name, used in int8 mode.
	DynamicOption int
	// RepackLowBits emulates engines before 3.6.0 in int8 mode; see backends.Options.
	RepackLowBits bool
	// Threads that compute; 0 means all processors. Results do not depend on it.
	Threads int
	// CacheBytes bounds what the backend may keep of expanded weights.
	CacheBytes int64
	// Replace gives an op other weights than the package's; see backends.Options.
	Replace func(op *mnn.Op) ([]float32, error)
	// Embed replaces the embedding lookup.
	Embed func(tokens []int32) ([]float32, error)
}

// Session is one conversation with a model. It is not safe for concurrent use.
type Session struct {
	pkg   *Package
	exe   backends.Executable
	state backends.State
	embed func(tokens []int32) ([]float32, error)
	vocab int
	// Observe, if set, sees intermediate values of every call; see backends.Call.
	Observe func(op *mnn.Op, output int, shape []int, values []float32)
}

// NewSession compiles the package's graph.
func NewSession(p *Package, o Options) (*Session, error) {
	b := o.Backend
	if b == nil {
		b = all.Default()
	}
	threads := o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	exe, err := b.Compile(p.Graph, p.weights, backends.Options{
		Mode: o.Mode, DynamicOption: o.DynamicOption, RepackLowBits: o.RepackLowBits, Threads: threads, CacheBytes: o.CacheBytes, Replace: o.Replace,
	})
	if err != nil {
		return nil, err
	}
	s := &Session{pkg: p, exe: exe, state: exe.NewState(), embed: p.Embed}
	if o.Embed != nil {
		s.embed = o.Embed
	}
	return s, nil
}

// Len is the number of tokens in the conversation so far.
func (s *Session) Len() int { return s.state.Len() }

// Reset starts a new conversation.
func (s *Session) Reset() { s.state.Reset() }

// Prefill appends tokens and returns the logits [vocabulary] behind the last one.
func (s *Session) Prefill(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.run(ctx, tokens, 0, false)
}

// Decode appends one token and returns the logits [vocabulary] behind it.
func (s *Session) Decode(ctx context.Context, token int32) ([]float32, error) {
	return s.run(ctx, []int32{token}, 0, false)
}

// Forward appends tokens and returns the logits of every position, [len(tokens), vocabulary].
func (s *Session) Forward(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.run(ctx, tokens, 0, true)
}

// ForwardAt is Forward in a fresh conversation whose first token stands at a position.
func (s *Session) ForwardAt(ctx context.Context, tokens []int32, position int) ([]float32, error) {
	s.Reset()
	return s.run(ctx, tokens, position, true)
}

func (s *Session) run(ctx context.Context, tokens []int32, offset int, all bool) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("no tokens")
	}
	x, err := s.embed(tokens)
	if err != nil {
		return nil, err
	}
	l, err := s.exe.Run(ctx, s.state, backends.Call{Embeddings: x, Tokens: len(tokens), Offset: offset, All: all, Observe: s.Observe})
	if err != nil {
		return nil, err
	}
	rows := 1
	if all {
		rows = len(tokens)
	}
	if len(l) == 0 || len(l)%rows != 0 {
		return nil, fmt.Errorf("%d logits for %d positions: %w", len(l), rows, tensor.ErrCorrupt)
	}
	s.vocab = len(l) / rows
	return l, nil
}

// Tile is the logits of some consecutive positions of a window.
type Tile struct {
	// Position of the first row within the window.
	Position, Rows int
	// Logits is [Rows, Vocab], valid during the visit.
	Logits []float32
	Vocab  int
}

// Score feeds a window to a fresh conversation and hands out the logits of every position in tiles of at most
// rows positions: a window of 512 over a vocabulary of 151,936 would be 311 MB at once. The prefill is cut in
// the same places, which changes nothing but summation orders. A last piece of one position joins the piece
// before it, because the engine treats single tokens as decoding.
func (s *Session) Score(ctx context.Context, window []int32, rows int, visit func(Tile) error) error {
	s.Reset()
	for at := 0; at < len(window); {
		n := min(rows, len(window)-at)
		if len(window)-at-n == 1 {
			n++
		}
		l, err := s.Forward(ctx, window[at:at+n])
		if err != nil {
			return err
		}
		if err := visit(Tile{Position: at, Rows: n, Logits: l, Vocab: s.vocab}); err != nil {
			return err
		}
		at += n
	}
	return nil
}
