package serve

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// form is one of the two forms of answers.
type form struct {
	prefix, object, chunk string
	chat                  bool
}

var (
	chatForm = form{"chatcmpl-", "chat.completion", "chat.completion.chunk", true}
	textForm = form{"cmpl-", "text_completion", "text_completion", false}
)

// message of a whole answer, or a part of one.
type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// answerChoice is a choice in any form.
type answerChoice struct {
	Index    int      `json:"index"`
	Message  *message `json:"message,omitempty"`
	Delta    *message `json:"delta,omitempty"`
	Text     *string  `json:"text,omitempty"`
	Logprobs any      `json:"logprobs"`
	Finish   *string  `json:"finish_reason"`
}

// document is an answer, or an event of a stream.
type document struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []answerChoice `json:"choices"`
	Usage   *usage         `json:"usage,omitempty"`
}

// reply writes an answer in its form, as a whole or as a stream.
type reply struct {
	form
	tokens  *engine.Tokenizer
	w       http.ResponseWriter
	control *http.ResponseController
	c       *completion
	id      string
	model   string
	created int64
	// choices of a whole answer so far.
	texts     []strings.Builder
	positions [][]position
	finish    []string
	begun     []bool // choices that a stream has begun
	streaming bool   // the header of a stream is written
}

func newReply(s *Server, w http.ResponseWriter, f form, c *completion) *reply {
	n := len(c.prompts) * c.choices
	return &reply{
		form: f, tokens: s.pkg.Tokenizer, w: w, control: http.NewResponseController(w), c: c,
		id: f.prefix + rand.Text(), model: s.o.Name, created: time.Now().Unix(),
		texts: make([]strings.Builder, n), positions: make([][]position, n), finish: make([]string, n), begun: make([]bool, n),
	}
}

// add takes a piece of a choice.
func (r *reply) add(p piece) error {
	if r.c.stream {
		return r.send(p)
	}
	r.texts[p.choice].WriteString(p.text)
	r.positions[p.choice] = append(r.positions[p.choice], p.positions...)
	if p.finish != "" {
		r.finish[p.choice] = p.finish
	}
	return nil
}

// end writes a whole answer, or ends a stream.
func (r *reply) end(u usage) error {
	if r.c.stream {
		if r.c.usage {
			if err := r.event(r.document(r.chunk, []answerChoice{}, &u)); err != nil {
				return err
			}
		}
		return r.raw("[DONE]")
	}
	var choices []answerChoice
	for i := range r.texts {
		c := answerChoice{Index: i, Finish: &r.finish[i]}
		text := r.texts[i].String()
		if r.chat {
			c.Message = &message{"assistant", &text}
		} else {
			c.Text = &text
		}
		c.Logprobs = r.logprobs(r.positions[i], 0)
		choices = append(choices, c)
	}
	b, err := json.Marshal(r.document(r.object, choices, &u))
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "application/json")
	_ = r.control.SetWriteDeadline(time.Now().Add(writePatience))
	_, err = r.w.Write(append(b, '\n'))
	return err
}

func (r *reply) document(object string, choices []answerChoice, u *usage) *document {
	return &document{r.id, object, r.created, r.model, choices, u}
}

// logprobs writes positions in the form, or nothing if the request wants none.
func (r *reply) logprobs(list []position, offset int) any {
	switch {
	case r.c.top < 0:
		return nil
	case r.chat:
		return newChatLogprobs(r.tokens, list)
	}
	return newTextLogprobs(r.tokens, list, offset)
}

// send writes a piece as an event of a stream.
func (r *reply) send(p piece) error {
	c := answerChoice{Index: p.choice}
	if r.chat && !r.begun[p.choice] {
		r.begun[p.choice] = true
		empty := ""
		first := answerChoice{Index: p.choice, Delta: &message{"assistant", &empty}}
		if err := r.event(r.document(r.chunk, []answerChoice{first}, nil)); err != nil {
			return err
		}
	}
	if r.chat {
		c.Delta = &message{}
		if p.text != "" {
			c.Delta.Content = &p.text
		}
	} else {
		c.Text = &p.text
	}
	if len(p.positions) > 0 {
		c.Logprobs = r.logprobs(p.positions, p.offset)
	}
	if p.finish != "" {
		c.Finish = &p.finish
	}
	return r.event(r.document(r.chunk, []answerChoice{c}, nil))
}

// event writes a document to the stream.
func (r *reply) event(d *document) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return r.raw(string(b))
}

func (r *reply) raw(data string) error {
	if !r.streaming {
		r.streaming = true
		h := r.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies must not collect events
	}
	_ = r.control.SetWriteDeadline(time.Now().Add(writePatience)) // of a client that does not read
	if _, err := r.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		return err
	}
	return r.control.Flush()
}

// fail tells the client of an error and returns the status of the request. A stream that has begun ends with the error.
func (r *reply) fail(e *apiError) int {
	if r.streaming {
		_ = r.raw(string(e.body()))
	} else {
		e.write(r.w)
	}
	return e.status
}
