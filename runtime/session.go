package runtime

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Options of a session.
type Options struct {
	Mode backend.Mode
	// Half computes in half precision; see backend.Options.
	Half bool
	// Arm, if not 0, emulates the engine on an arm64 CPU in int8 mode; see backend.Options.
	Arm kernel.ArmCPU
	// DynamicOption is the engine's key of that name, used in int8 mode.
	DynamicOption int
	// RepackLowBits emulates engines before 3.6.0 in int8 mode; see backend.Options.
	RepackLowBits bool
	// Threads that compute; 0 means all processors. Results do not depend on it.
	Threads int
	// CacheBytes bounds the expanded weights that the backend may keep.
	CacheBytes int64
	// CodeBytes, if not 0, bounds the codes of other layers that the backend lays out for int8.
	CodeBytes int64
	// ExpertBytes, if not 0, bounds the weights of experts, in any form, that the backend may keep.
	ExpertBytes int64
	// Replace replaces the packaged weights of an op; see backend.Options.
	Replace func(op *mnn.Op) (weights *backend.Replacement, bias []float32, err error)
	// Embed replaces the embedding lookup.
	Embed func(tokens []int32) ([]float32, error)
}

// Session is one conversation with a model. It is not safe for concurrent use.
type Session struct {
	pkg *Package
	exe backend.Executable
	// states hold the conversation, or one state for each window that Advance runs.
	states []backend.State
	embed  func(tokens []int32) ([]float32, error)
	fused  bool      // the embeddings are those of the engine on arm64
	x      []float32 // embeddings of a call
	token  [1]int32
	tokens []int32      // of the conversation; of another length if they are not known
	seen   []pictureKey // of the pictures whose rows tokens became, in order
	shown  []Picture    // whose rows the next tokens ImagePad or AudioPad become
	// Turns, if set, are what Prefill, Decode and Score take before they compute; sessions that share them are fair to each other.
	Turns *Turns
	// Observe, if set, receives intermediate values of every call; see backend.Call.
	Observe func(op *mnn.Op, output int, shape []int, values []float32)
	// Peaks, if set, receives the largest magnitudes of every call; see backend.Call.
	Peaks func(op *mnn.Op, peak float32)
}

// NewSession compiles the graph of the text model for a backend, such as that of backends/cpu.
func NewSession(p *Package, b backend.Backend, o Options) (*Session, error) {
	exe, err := compile(p, p.Text(), b, o)
	if err != nil {
		return nil, err
	}
	return &Session{pkg: p, exe: exe, states: []backend.State{exe.NewState()}, embed: o.Embed, fused: o.Half || o.Arm != 0}, nil
}

// compile compiles the graph of a part.
func compile(p *Package, part *Part, b backend.Backend, o Options) (backend.Executable, error) {
	threads := o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	return b.Compile(part.Graph, part.weights, backend.Options{
		Mode: o.Mode, Half: o.Half, Arm: o.Arm, DynamicOption: o.DynamicOption, RepackLowBits: o.RepackLowBits, Window: p.Config.window(),
		Threads: threads, CacheBytes: o.CacheBytes, CodeBytes: o.CodeBytes, ExpertBytes: o.ExpertBytes, Replace: o.Replace,
	})
}

// Show gives the session pictures and clips, whose rows the next tokens Config.ImagePad and Config.AudioPad become, in order.
func (s *Session) Show(pictures ...Picture) { s.shown = append(s.shown, pictures...) }

// Fork returns a session with an empty conversation that shares the compiled weights of s. It may be used at the same time
// as s.
func (s *Session) Fork() *Session {
	return &Session{pkg: s.pkg, exe: s.exe, states: []backend.State{s.exe.NewState()}, embed: s.embed, fused: s.fused, Turns: s.Turns}
}

// Bytes returns the memory of keys, values and recurrent states of the conversation.
func (s *Session) Bytes() (n int64) {
	for _, st := range s.states {
		cached, fixed := st.Bytes()
		n += cached + fixed
	}
	return n
}

// BytesFor returns the memory that a conversation of n tokens takes. It is known once the session has computed a token.
func (s *Session) BytesFor(n int) int64 {
	cached, fixed := s.states[0].Bytes()
	return fixed + cached/int64(max(1, blocks(s.Len())))*int64(blocks(n))
}

// blocks is how many blocks of a cache n positions occupy.
func blocks(n int) int { return (n + kernel.CacheBlock - 1) / kernel.CacheBlock }

// sharedGroup is the number of tokens of which Resume keeps a multiple, unless it keeps all: the kernels take so many
// together, and the rest of a prompt then has the results that it has in the whole.
const sharedGroup = 8

// Shared returns how many of the first tokens of a prompt Resume would keep. Two at least are left to compute: in int8 mode
// a single token is computed as in an answer, which differs from a prompt by more than rounding. A picture is kept as a whole,
// where the prompt has the same one.
func (s *Session) Shared(p *Prompt) int {
	n, _ := s.shared(p)
	return n
}

// shared returns also how many pictures are among these tokens.
func (s *Session) shared(p *Prompt) (n, pictures int) {
	if len(s.states) != 1 || len(s.tokens) != s.Len() {
		return 0, 0
	}
	left := 0        // rows of the last picture that are still to come
	var spans []span // of the pictures so far
	for ; n < min(len(s.tokens), len(p.Tokens)-2) && s.tokens[n] == p.Tokens[n]; n++ {
		i := len(spans)
		if !s.pkg.Config.pads(p.Tokens[n]) || left == 0 && i >= len(s.seen) && i >= len(p.Pictures) {
			continue // a token of text
		}
		if left == 0 {
			if i >= len(s.seen) || i >= len(p.Pictures) || s.seen[i] != p.Pictures[i].key {
				break
			}
			spans, left = append(spans, span{from: n}), p.Pictures[i].tokens()
		}
		left--
		spans[len(spans)-1].to = n + 1
	}
	if n == len(s.tokens) && left == 0 {
		return n, len(spans)
	}
	n = n / sharedGroup * sharedGroup
	for i := len(spans) - 1; i >= 0; i-- {
		if whole := left == 0 || i < len(spans)-1; whole && spans[i].to <= n {
			return n, i + 1
		}
		n = min(n, spans[i].from/sharedGroup*sharedGroup)
	}
	return n, 0
}

// span is a range of tokens.
type span struct{ from, to int }

// Resume keeps the part of the conversation that a prompt begins with and returns its length, less than that of the prompt. The rest of the
// prompt can then be appended: the session has been shown its pictures. A model with recurrent layers keeps either the whole conversation or nothing.
func (s *Session) Resume(p *Prompt) int {
	n, pictures := s.shared(p)
	if n == 0 || !s.states[0].Keep(n) {
		s.Start(p)
		return 0
	}
	s.tokens, s.seen, s.shown = s.tokens[:n], s.seen[:pictures], slices.Clone(p.Pictures[pictures:])
	return n
}

// Start starts a new conversation, with the pictures of the prompt that is appended next.
func (s *Session) Start(p *Prompt) {
	s.Reset()
	s.Show(p.Pictures...)
}

// Len returns the number of tokens in the conversation so far.
func (s *Session) Len() int { return s.states[0].Len() }

// Reset starts a new conversation.
func (s *Session) Reset() {
	s.keep(1)
	s.states[0].Reset()
	s.tokens, s.seen, s.shown = s.tokens[:0], nil, nil
}

// keep sets the number of states to n.
func (s *Session) keep(n int) {
	for len(s.states) < n {
		s.states = append(s.states, s.exe.NewState())
	}
	clear(s.states[n:])
	s.states = s.states[:n]
}

// Prefill appends tokens and returns the logits [vocabulary] after the last one. The slices returned by all methods are valid
// until the next call.
func (s *Session) Prefill(ctx context.Context, tokens []int32) ([]float32, error) {
	if s.Turns == nil {
		return s.run(ctx, tokens, backend.Call{})
	}
	for n := s.piece(tokens); len(tokens) > n; n = s.piece(tokens) {
		if _, err := s.turn(ctx, tokens[:n], backend.Call{}); err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	return s.turn(ctx, tokens, backend.Call{})
}

// turn is run when it is the session's turn.
func (s *Session) turn(ctx context.Context, tokens []int32, c backend.Call) ([]float32, error) {
	if s.Turns != nil {
		if err := s.Turns.take(ctx); err != nil {
			return nil, err
		}
		defer s.Turns.give()
	}
	return s.run(ctx, tokens, c)
}

// Vector returns the vector that the graph computes of a whole text, in place of a conversation; see [Package.Task].
func (s *Session) Vector(ctx context.Context, tokens []int32) ([]float32, error) {
	s.Reset()
	return s.turn(ctx, tokens, backend.Call{})
}

// scoreTokens is how many positions Score computes at a time: their logits are [scoreTokens, vocabulary].
const scoreTokens = 24

// Score appends tokens and calls visit with the logits [vocabulary] after each of them, which are valid during the call.
func (s *Session) Score(ctx context.Context, tokens []int32, visit func(i int, logits []float32)) error {
	for from := 0; from < len(tokens); from += scoreTokens {
		piece := tokens[from:min(from+scoreTokens, len(tokens))]
		l, err := s.turn(ctx, piece, backend.Call{All: true})
		if err != nil {
			return err
		}
		width := len(l) / len(piece)
		for i := range piece {
			visit(from+i, l[i*width:(i+1)*width])
		}
	}
	return nil
}

// Decode appends one token and returns the logits [vocabulary] after it. It allocates only when the KV cache has to grow.
func (s *Session) Decode(ctx context.Context, token int32) ([]float32, error) {
	s.token[0] = token
	return s.turn(ctx, s.token[:], backend.Call{})
}

// Forward appends tokens and returns the logits of every position, [len(tokens), vocabulary].
func (s *Session) Forward(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.run(ctx, tokens, backend.Call{All: true})
}

// Feed appends tokens; Logits then returns the logits of any of them.
func (s *Session) Feed(ctx context.Context, tokens []int32) error {
	_, err := s.run(ctx, tokens, backend.Call{Defer: true})
	return err
}

// FeedAt is Feed in a new conversation whose first token has the given position.
func (s *Session) FeedAt(ctx context.Context, tokens []int32, position int) error {
	s.Reset()
	_, err := s.run(ctx, tokens, backend.Call{Defer: true, Offset: position})
	return err
}

// Advance feeds windows of equal length to new conversations, one each; Logits then returns the logits of any position.
// They are those of Forward on each window, unless the head computes a single token differently from several.
func (s *Session) Advance(ctx context.Context, windows [][]int32) error {
	if len(windows) == 0 {
		return fmt.Errorf("no windows")
	}
	s.keep(len(windows))
	s.tokens, s.seen, s.shown = s.tokens[:0], nil, nil
	var all []int32
	for i, w := range windows {
		s.states[i].Reset()
		if all = append(all, w...); len(w) != len(windows[0]) {
			return fmt.Errorf("windows of %d and %d tokens", len(windows[0]), len(w))
		}
	}
	_, err := s.run(ctx, all, backend.Call{Defer: true})
	return err
}

// Logits returns the logits [to-from, vocabulary] of positions from to to-1 of the last Advance, counted over all windows, or Feed.
func (s *Session) Logits(ctx context.Context, from, to int) ([]float32, error) {
	if from < 0 || from >= to {
		return nil, fmt.Errorf("logits of rows %d to %d", from, to)
	}
	l, err := s.exe.Logits(ctx, s.states, from, to)
	if err == nil && (len(l) == 0 || len(l)%(to-from) != 0) {
		err = fmt.Errorf("%d logits for %d positions: %w", len(l), to-from, tensor.ErrCorrupt)
	}
	return l, err
}

// TokenBytes returns roughly the memory that Advance takes for each token, in addition to keys and values.
func (s *Session) TokenBytes() int64 { return s.exe.TokenBytes() }

func (s *Session) run(ctx context.Context, tokens []int32, c backend.Call) (l []float32, err error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("no tokens")
	}
	if s.embed != nil {
		c.Embeddings, err = s.embed(tokens)
	} else {
		s.x, err = s.pkg.embedding.rows(s.x, tokens, s.fused)
		c.Embeddings = s.x
	}
	if err != nil {
		return nil, err
	}
	c.Positions, c.Deep = s.show(tokens, c.Embeddings)
	c.Tokens, c.Observe, c.Peaks = len(tokens)/len(s.states), s.Observe, s.Peaks
	if l, err = s.exe.Run(ctx, s.states, c); err != nil {
		return nil, err
	}
	if len(s.states) == 1 && c.Offset == 0 {
		s.tokens = append(s.tokens, tokens...)
	}
	if c.Defer {
		return nil, nil
	}
	rows := 1
	if c.All {
		rows = len(tokens)
	}
	if len(l) == 0 || len(l)%rows != 0 {
		return nil, fmt.Errorf("%d logits for %d positions: %w", len(l), rows, tensor.ErrCorrupt)
	}
	return l, nil
}
