package serve

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime"
)

// Reasons why a text ends.
const (
	finishStop   = "stop"   // the model or a stop text ended it
	finishLength = "length" // max_tokens, or the end of the context
)

// usage counts the tokens of a request.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) add(prompt, cached, completion int) {
	u.Prompt += prompt
	u.Details.Cached += cached
	u.Completion += completion
	u.Total = u.Prompt + u.Completion
}

// piece is a part of a choice as it is generated.
type piece struct {
	choice int
	text   string
	// positions are tokens, with the characters of the text before the first of them.
	positions []position
	offset    int
	finish    string // of the last piece
}

// run generates the choices of all prompts, one after another, on one session for each prompt, and yields their pieces.
func (s *Server) run(ctx context.Context, c *completion, yield func(p piece) error) (u usage, err error) {
	for i := range c.prompts {
		if err = s.runPrompt(ctx, c, i, &u, yield); err != nil {
			break
		}
	}
	return u, err
}

func (s *Server) runPrompt(ctx context.Context, c *completion, i int, u *usage, yield func(p piece) error) error {
	p := &c.prompts[i]
	most := min(s.o.Context-len(p.Tokens), c.most)
	if c.most < 0 {
		most = s.o.Context - len(p.Tokens)
	}
	// With a seed the prompt is computed as a whole, so that equal requests have equal results, bit by bit.
	var like *runtime.Prompt
	scores := c.echo && c.top >= 0
	if !c.seeded && !scores {
		like = p.Prompt
	}
	l, err := s.pool.take(ctx, like, len(p.Tokens)+most)
	if err != nil {
		return err
	}
	defer s.pool.give(l)
	for n := range c.choices {
		g := &generation{server: s, c: c, prompt: p, index: i*c.choices + n, most: most, seed: c.seed + uint64(n), yield: yield}
		if err := g.run(ctx, l.Session, scores, n > 0); err != nil {
			return err
		}
		cached := g.cached
		if n > 0 {
			u.add(0, 0, g.generated) // OpenAI counts a prompt once
		} else {
			u.add(len(p.Tokens), cached, g.generated)
		}
		s.metrics.add(len(p.Tokens)-cached, cached, g.generated)
	}
	return nil
}

// generation makes one choice.
type generation struct {
	server *Server
	c      *completion
	prompt *prompt
	index  int
	most   int
	seed   uint64
	yield  func(p piece) error

	cached, generated int
	offset            int // characters given out, and held back
	failed            error
}

// run computes the prompt, scores it if that is wanted, and generates.
func (g *generation) run(ctx context.Context, session *runtime.Session, scores, again bool) error {
	if g.c.echo {
		first := piece{choice: g.index, text: g.prompt.text}
		if scores {
			list, err := g.scorePrompt(ctx, session)
			if err != nil {
				return err
			}
			first.positions = list
		}
		g.offset = utf8.RuneCountInString(g.prompt.text)
		if err := g.yield(first); err != nil {
			return err
		}
	}
	if g.most == 0 {
		return g.yield(piece{choice: g.index, finish: finishLength})
	}
	tokens := g.prompt.Tokens
	if scores || again || !g.c.seeded {
		g.cached = session.Resume(g.prompt.Prompt)
	} else {
		session.Start(g.prompt.Prompt)
	}
	rest := tokens[g.cached:]
	if scores {
		g.cached = 0 // this request has computed them
	}
	return g.generate(ctx, session, rest)
}

// scorePrompt returns the tokens of the prompt with their probabilities.
func (g *generation) scorePrompt(ctx context.Context, session *runtime.Session) ([]position, error) {
	tokens := g.prompt.Tokens
	list := make([]position, 1, len(tokens))
	list[0] = position{scored: scored{token: tokens[0]}, first: true}
	session.Reset()
	err := session.Score(ctx, tokens, func(i int, logits []float32) {
		if i+1 < len(tokens) {
			list = append(list, score(tokens[i+1], logits, g.c.top))
		}
	})
	return list, err
}

// generate yields the text after the prompt.
func (g *generation) generate(ctx context.Context, session *runtime.Session, rest []int32) error {
	var (
		text  = g.server.pkg.Tokenizer.Stream()
		stop  = stopper{strings: g.c.stops}
		fresh []position // not given out yet
		o     = runtime.GenerateOptions{MaxTokens: g.most, Sampler: g.c.sampler, Seed: g.seed}
	)
	if g.c.top >= 0 {
		stops := g.server.pkg.Tokenizer.Stop()
		o.Chosen = func(token int32, logits []float32) {
			// With echo a stop token is listed too: clients that score prompts leave out the last token of the list.
			if g.c.echo || !slices.Contains(stops, token) {
				fresh = append(fresh, score(token, logits, g.c.top))
			}
		}
	}
	emit := func(out, finish string) bool {
		if out == "" && len(fresh) == 0 && finish == "" {
			return true
		}
		g.failed = g.yield(piece{choice: g.index, text: valid(out), positions: fresh, offset: g.offset, finish: finish})
		for _, p := range fresh {
			g.offset += utf8.RuneCountInString(g.server.pkg.Tokenizer.Decode([]int32{p.token}))
		}
		fresh = nil
		return g.failed == nil
	}
	err := session.Generate(ctx, rest, o, func(token int32) bool {
		g.generated++
		return emit(stop.next(text.Next(token)), "") && !stop.stopped
	})
	if err == nil {
		err = g.failed
	}
	if err != nil {
		return err
	}
	out := stop.next(text.Close())
	finish := finishStop
	if !stop.stopped {
		out += stop.rest()
		if g.generated == g.most {
			finish = finishLength
		}
	}
	emit(out, finish)
	return g.failed
}
