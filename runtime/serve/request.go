package serve

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime"
)

// Bounds of requests.
const (
	maxChoices     = 16
	maxPrompts     = 256
	maxStops       = 16
	maxStopBytes   = 1 << 10
	maxTopLogprobs = 20
	// defaultTokens is how many tokens a completion has if the request does not say: that of OpenAI.
	defaultTokens = 16
)

// order is what both kinds of requests have in common.
type order struct {
	stream, usage bool // usage: at the end of a stream
	choices       int
	// most is the number of tokens to generate, -1 for what the context has room for.
	most    int
	sampler *runtime.Sampler
	seed    uint64
	seeded  bool
	stops   []string
	// top is how many likeliest tokens the logprobs show, -1 for no logprobs.
	top int
}

// readOrder reads the members that both kinds of requests have.
func (s *Server) readOrder(f fields) (o *order, err error) {
	o = &order{top: -1, most: -1}
	if err := s.readModel(f); err != nil {
		return nil, err
	}
	if o.stream, err = f.boolean("stream"); err != nil {
		return nil, err
	}
	var options struct {
		Usage       bool  `json:"include_usage"`
		Obfuscation *bool `json:"include_obfuscation"`
	}
	if ok, err := f.read("stream_options", &options, "an object"); err != nil {
		return nil, err
	} else if ok && !o.stream {
		return nil, badf("stream_options", "stream_options needs stream")
	}
	o.usage = options.Usage
	if o.choices, err = f.integer("n", 1, 1, maxChoices); err != nil {
		return nil, err
	}
	var seed int64
	if o.seeded, err = f.read("seed", &seed, "a whole number"); err != nil {
		return nil, err
	}
	if o.seed = uint64(seed); !o.seeded {
		o.seed = rand.Uint64()
	}
	if o.stops, err = readStops(f); err != nil {
		return nil, err
	}
	o.sampler, err = s.readSampler(f)
	return o, err
}

// readModel accepts the name of the package only.
func (s *Server) readModel(f fields) error {
	var model string
	ok, err := f.read("model", &model, "a text")
	if err == nil && ok && model != s.o.Name {
		e := badf("model", "there is no model %q here, only %q", model, s.o.Name)
		code := "model_not_found"
		e.status, e.Code = http.StatusNotFound, &code
		return e
	}
	return err
}

// readStops reads a text, or a list of texts.
func readStops(f fields) ([]string, error) {
	raw, ok := f["stop"]
	if !ok {
		return nil, nil
	}
	var one string
	var list []string
	if json.Unmarshal(raw, &one) == nil {
		f["stop"], _ = json.Marshal([]string{one})
	}
	if _, err := f.read("stop", &list, "a text or a list of texts"); err != nil {
		return nil, err
	}
	if len(list) > maxStops {
		return nil, badf("stop", "stop has %d texts; %d are allowed", len(list), maxStops)
	}
	for _, s := range list {
		if s == "" || len(s) > maxStopBytes {
			return nil, badf("stop", "texts of stop must have 1 to %d bytes", maxStopBytes)
		}
	}
	return list, nil
}

// readSampler reads the sampling options; what a request does not set is as the package has it.
func (s *Server) readSampler(f fields) (*runtime.Sampler, error) {
	base := runtime.Sampler{}
	if s.o.Sampler != nil {
		base = *s.o.Sampler
	} else if f["top_p"] != nil || f["top_k"] != nil || f["min_p"] != nil {
		base.Temperature = 1
	}
	r := base
	for _, n := range []struct {
		name      string
		to        *float64
		low, high float64
	}{
		{"temperature", &r.Temperature, 0, 100}, {"top_p", &r.TopP, 0, 1}, {"min_p", &r.MinP, 0, 1},
		{"presence_penalty", &r.Presence, -2, 2}, {"frequency_penalty", &r.Frequency, -2, 2},
		{"repetition_penalty", &r.Penalty, 0, 100},
	} {
		if f[n.name] == nil {
			continue // the package's value may be outside these bounds
		}
		var err error
		if *n.to, err = f.number(n.name, 0, n.low, n.high); err != nil {
			return nil, err
		}
	}
	k, err := f.integer("top_k", r.TopK, -1, 1<<30)
	r.TopK = max(k, 0) // other servers take -1 for all
	return &r, err
}

// prompt is one of a request.
type prompt struct {
	*runtime.Prompt
	// text is what echo shows.
	text string
}

// completion is a request for one or more texts to be continued.
type completion struct {
	*order
	prompts []prompt
	echo    bool
	done    func() // releases the pictures of the prompts; nil without
}

// readCompletion reads a request of /v1/completions.
func (s *Server) readCompletion(body []byte) (*completion, error) {
	f, err := readFields(body)
	if err != nil {
		return nil, err
	}
	o, err := s.readOrder(f)
	if err != nil {
		return nil, err
	}
	c := &completion{order: o}
	if c.echo, err = f.boolean("echo"); err != nil {
		return nil, err
	}
	if o.most, err = f.integer("max_tokens", defaultTokens, 0, 1<<30); err != nil {
		return nil, err
	}
	if f["logprobs"] != nil {
		if o.top, err = f.integer("logprobs", 0, 0, maxTopLogprobs); err != nil {
			return nil, err
		}
	}
	if err := s.readPrompts(f, c); err != nil {
		return nil, err
	}
	return c, f.done()
}

// readPrompts reads a text, a list of texts, a list of tokens, or a list of lists of tokens.
func (s *Server) readPrompts(f fields, c *completion) error {
	raw, ok := f["prompt"]
	delete(f, "prompt")
	if !ok {
		return badf("prompt", "a prompt is missing")
	}
	var (
		text   string
		texts  []string
		tokens []int32
		lists  [][]int32
	)
	switch {
	case json.Unmarshal(raw, &text) == nil:
		texts = []string{text}
	case json.Unmarshal(raw, &tokens) == nil:
		lists = [][]int32{tokens}
	case json.Unmarshal(raw, &texts) == nil:
	case json.Unmarshal(raw, &lists) == nil:
		texts = nil
	default:
		return badf("prompt", "prompt must be a text, a list of texts, a list of tokens, or a list of lists of tokens")
	}
	if n := max(len(texts), len(lists)); n > maxPrompts {
		return badf("prompt", "%d prompts; %d are allowed", n, maxPrompts)
	}
	for _, t := range texts {
		ids, err := s.pkg.Tokenizer.TryEncode(t)
		if err != nil {
			return badf("prompt", "%v", err)
		}
		c.prompts = append(c.prompts, prompt{&runtime.Prompt{Tokens: ids}, t})
	}
	for _, l := range lists {
		c.prompts = append(c.prompts, prompt{&runtime.Prompt{Tokens: l}, s.pkg.Tokenizer.Decode(l)})
	}
	if len(c.prompts) == 0 {
		return badf("prompt", "the list of prompts is empty")
	}
	for i := range c.prompts {
		if err := s.checkPrompt("prompt", c.prompts[i].Tokens, c.most); err != nil {
			return err
		}
	}
	return nil
}

// tooLong is a prompt of so many tokens, or more.
func tooLong(param string, tokens, context int) *apiError {
	e := badf(param, "the prompt has %d tokens; the context has %d, those of the answer included", tokens, context)
	code := "context_length_exceeded"
	e.Code = &code
	return e
}

// checkPrompt bounds a prompt by the context.
func (s *Server) checkPrompt(param string, tokens []int32, most int) error {
	switch {
	case len(tokens) == 0:
		return badf(param, "the prompt is empty")
	case len(tokens) > s.o.Context || len(tokens) == s.o.Context && most != 0:
		return tooLong(param, len(tokens), s.o.Context)
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= s.pkg.Vocabulary() {
			return badf(param, "token %d: the vocabulary has %d", t, s.pkg.Vocabulary())
		}
	}
	return nil
}

// valid replaces what is not UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}
