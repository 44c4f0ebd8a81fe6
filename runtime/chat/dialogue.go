package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
)

// Turn is a message of a dialogue.
type Turn struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	parts   *[]part // of Content, if it may have pictures or clips
}

// Dialogue is a conversation with a model. Between answers its session keeps keys and values, so that only what a new
// message adds is computed.
type Dialogue struct {
	// System is the system message; empty for none.
	System string
	// Turns are those of the user and the assistant, oldest first.
	Turns []Turn
	// Variables of the template, such as enable_thinking.
	Variables map[string]any
	// Reader, if set, reads the pictures and clips that messages of the user name: <img>FILE</img> and <audio>FILE</audio>. It runs once for
	// each.
	Reader *runtime.Reader

	template *Template
	pkg      *runtime.Package
	session  *runtime.Session
	context  int
}

// New returns a dialogue of at most context tokens. The session must not be used by others.
func New(p *runtime.Package, t *Template, s *runtime.Session, context int) *Dialogue {
	return &Dialogue{template: t, pkg: p, session: s, context: context}
}

// Stats are the costs of an answer.
type Stats struct {
	// Prompt is the number of tokens of the prompt, Cached how many of them were computed before, Generated those of the answer.
	Prompt, Cached, Generated int
	// Dropped is the number of old turns that the prompt left out.
	Dropped int
	// First is the time to the first token of the answer, Rest that of the others.
	First, Rest time.Duration
}

// Rate is the speed of the answer in tokens per second, 0 if it has fewer than two.
func (s *Stats) Rate() float64 {
	if s.Generated < 2 || s.Rest <= 0 {
		return 0
	}
	return float64(s.Generated-1) / s.Rest.Seconds()
}

// ErrFull is the error of a message that does not fit into the context, even without older turns.
var ErrFull = errors.New("the message is too long for the context")

// Ask appends a message of the user, writes the answer piece by piece, and appends it too. An answer that ctx ends, or
// write returns an error for, is kept as far as it came. If nothing was generated because of an error, the dialogue is as
// before. MaxTokens of o bounds the answer; 0 means what the context has room for.
func (d *Dialogue) Ask(ctx context.Context, message string, o runtime.GenerateOptions, write func(text string) error) (Stats, error) {
	parts, err := d.look(ctx, message)
	if err != nil {
		return Stats{}, err
	}
	before := d.Turns
	d.Turns = append(slices.Clone(before), Turn{"user", message, parts})
	stats, answer, err := d.answer(ctx, o, write)
	if err != nil && stats.Generated == 0 {
		d.Turns = before
		return stats, err
	}
	d.Turns = append(d.Turns, Turn{Role: "assistant", Content: strings.ToValidUTF8(answer, "\uFFFD")})
	return stats, err
}

// answer generates the next turn.
func (d *Dialogue) answer(ctx context.Context, o runtime.GenerateOptions, write func(text string) error) (s Stats, answer string, err error) {
	prompt, dropped, err := d.prompt(ctx, o.MaxTokens)
	if err != nil {
		return s, "", err
	}
	tokens := prompt.Tokens
	s.Dropped, s.Prompt = dropped, len(tokens)
	s.Cached = d.session.Resume(prompt)
	if left := d.context - len(tokens); o.MaxTokens == 0 || o.MaxTokens > left {
		o.MaxTokens = left
	}
	text := d.pkg.Tokenizer.Stream() // holds back incomplete characters
	var b strings.Builder
	var failed error
	emit := func(piece string) bool {
		if b.WriteString(piece); piece != "" && failed == nil {
			failed = write(piece)
		}
		return failed == nil
	}
	start := time.Now()
	first := start
	err = d.session.Generate(ctx, tokens[s.Cached:], o, func(token int32) bool {
		if s.Generated++; s.Generated == 1 {
			first = time.Now()
		}
		return emit(text.Next(token))
	})
	s.First, s.Rest = first.Sub(start), time.Since(first)
	emit(text.Close())
	if err == nil {
		err = failed
	}
	return s, b.String(), err
}

// prompt renders the dialogue, without its oldest turns if the context is too small for all and an answer of most tokens. Turns
// are dropped in pairs, so that the dialogue still begins with the user, and enough at once that the next prompts share a
// beginning with this one.
func (d *Dialogue) prompt(ctx context.Context, most int) (p *runtime.Prompt, dropped int, err error) {
	room := d.context - max(1, min(most, d.context/4))
	if most == 0 {
		room = d.context - d.context/4
	}
	for {
		if p, err = d.encode(ctx, d.Turns[dropped:]); err != nil {
			return nil, 0, err
		}
		last, n := len(d.Turns)-dropped, len(p.Tokens)
		switch {
		case n <= room:
		case last <= 2:
			if n < d.context {
				break
			}
			return nil, 0, fmt.Errorf("%d tokens of %d: %w", n, d.context, ErrFull)
		default:
			dropped += 2
			room = d.context / 2
			continue
		}
		d.Turns = d.Turns[dropped:]
		return p, dropped, nil
	}
}

func (d *Dialogue) encode(ctx context.Context, turns []Turn) (*runtime.Prompt, error) {
	c := conversations.Conversation{Context: d.Variables, AddGenerationPrompt: true}
	if d.System != "" {
		c.Messages = append(c.Messages, Message("system", d.System))
	}
	marks, shown := NewMarks(), []*runtime.Prompt{}
	for _, t := range turns {
		content := t.Content
		if t.parts != nil {
			content = ""
			for _, x := range *t.parts {
				if content += x.text; x.shown != nil {
					content, shown = content+marks.Next(), append(shown, x.shown)
				}
			}
		}
		c.Messages = append(c.Messages, Message(t.Role, content))
	}
	text, err := d.template.Render(ctx, c, template.Limits{})
	if err != nil {
		return nil, err
	}
	p, err := marks.Encode(d.pkg, text, shown)
	if err != nil && len(shown) > 0 {
		err = &ShownError{err}
	}
	return p, err
}
