package serve

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// leastLogprob stands for minus infinity, which JSON does not have.
const leastLogprob = -9999

// scored is a token with its log probability.
type scored struct {
	token   int32
	logprob float64
}

// position is a token of a text, with the likeliest ones at its place.
type position struct {
	scored
	first bool // nothing comes before it, so that it has no probability
	top   []scored
}

// score returns the log probability of a token by the softmax of logits, and the n likeliest tokens with theirs.
func score(token int32, logits []float32, n int) position {
	norm := kernel.LogSumExp(logits)
	of := func(t int32) scored {
		p := float64(logits[t]) - norm
		if !(p >= leastLogprob) {
			p = leastLogprob
		}
		return scored{t, math.Min(p, 0)}
	}
	p := position{scored: of(token)}
	if n > 0 {
		for _, t := range kernel.TopK(nil, logits, min(n, len(logits))) {
			p.top = append(p.top, of(t))
		}
	}
	return p
}

// tokenText is how a token is written in logprobs: bytes that are no characters by their numbers.
func tokenText(t *engine.Tokenizer, token int32) string {
	text := t.Decode([]int32{token})
	if utf8.ValidString(text) {
		return text
	}
	out := "bytes:"
	for i := range len(text) {
		out += fmt.Sprintf("\\x%02x", text[i])
	}
	return out
}

// textLogprobs are those of a completion.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// newTextLogprobs writes positions from a place in the text on, in characters.
func newTextLogprobs(t *engine.Tokenizer, list []position, offset int) *textLogprobs {
	l := &textLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for _, p := range list {
		l.Tokens = append(l.Tokens, tokenText(t, p.token))
		l.TextOffset = append(l.TextOffset, offset)
		offset += utf8.RuneCountInString(t.Decode([]int32{p.token}))
		if p.first {
			l.TokenLogprobs, l.TopLogprobs = append(l.TokenLogprobs, nil), append(l.TopLogprobs, nil)
			continue
		}
		l.TokenLogprobs = append(l.TokenLogprobs, &p.logprob)
		top := map[string]float64{}
		for _, s := range append(p.top, p.scored) {
			text := tokenText(t, s.token)
			if old, ok := top[text]; !ok || s.logprob > old {
				top[text] = s.logprob
			}
		}
		l.TopLogprobs = append(l.TopLogprobs, top)
	}
	return l
}

// chatLogprobs are those of a message.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func newChatLogprobs(t *engine.Tokenizer, list []position) *chatLogprobs {
	one := func(s scored) tokenLogprob {
		l := tokenLogprob{Token: tokenText(t, s.token), Logprob: s.logprob, Bytes: []int{}}
		for _, b := range []byte(t.Decode([]int32{s.token})) {
			l.Bytes = append(l.Bytes, int(b))
		}
		return l
	}
	l := &chatLogprobs{Content: []chatLogprob{}}
	for _, p := range list {
		c := chatLogprob{tokenLogprob: one(p.scored), Top: []tokenLogprob{}}
		for _, s := range p.top {
			c.Top = append(c.Top, one(s))
		}
		l.Content = append(l.Content, c)
	}
	return l
}
