package device

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

const (
	// outputTokens is the number of tokens that the engine generates after a prompt that the manifest does not have.
	outputTokens = 24
	// textPrompts is the number of such prompts, and promptWords their length.
	textPrompts, promptWords = 3, 14
	// perplexityTokens is the length of the text of ppl_eval, which cuts a text into contexts only beyond 768 tokens.
	perplexityTokens = 512
	// tileRows is the number of positions whose logits are in memory at a time.
	tileRows = 32

	// floatGap is how far, in logits, two programs may differ that compute in float32: twice the bound of goldens, as two
	// tokens are compared.
	floatGap = 2e-3
	// halfGap is the same with float16: a divergence of 2e-4 nats, the largest measured on arm64 for families that ship with
	// float16, is a standard deviation of 0.02 of the logits, and 0.1 is five of them.
	halfGap = 0.1
	// noiseFactor allows the engine twice the largest difference that activations in int8 make on this computer: the engine rounds
	// them alike, but not to the same bits.
	noiseFactor = 2
	// floatRatio and halfRatio bound how far the ratio of two perplexities may be from 1. Over 512 tokens a divergence of 0.004 nats,
	// the largest measured for int8 activations, is a standard deviation of 0.4 %; 2 % is five of them.
	floatRatio, halfRatio = 1e-3, 0.02
)

// host computes the package on this computer.
type host struct {
	pkg         *runtime.Package
	exact, int8 *runtime.Session // int8 is nil if the package's settings do not quantize activations
}

func newHost(p *runtime.Package, o Options) (*host, error) {
	h := &host{pkg: p}
	opts := runtime.Options{Threads: o.Threads, CacheBytes: o.CacheBytes, DynamicOption: p.Config.DynamicOption}
	var err error
	if h.exact, err = runtime.NewSession(p, cpu.Backend{}, opts); err != nil {
		return nil, err
	}
	if p.Config.Memory == "low" {
		opts.Mode = backend.Int8
		h.int8, err = runtime.NewSession(p, cpu.Backend{}, opts)
	}
	return h, err
}

// prompt is a text that the engine continues.
type prompt struct {
	name   string
	text   string
	tokens []int32
	// output is the continuation in float, without a stop token.
	output []int32
}

// prompts returns the goldens of the manifest and prompts from the text, with sentences about goldens that cannot be used.
func (s *session) prompts(ctx context.Context) (list []prompt, skipped []string, err error) {
	if s.m != nil {
		for i, g := range s.m.Goldens {
			p := prompt{name: fmt.Sprintf("golden %d", i), tokens: g.Prompt, output: g.Output}
			p.text = s.pkg.Tokenizer.Decode(g.Prompt)
			switch {
			case len(g.Output) == 0:
			case !onePrompt(p.text) || !slices.Equal(s.pkg.Tokenizer.Encode(p.text), g.Prompt):
				skipped = append(skipped, fmt.Sprintf("golden %d of the manifest: %s reads lines of text, and none has its tokens", i, demoProgram))
			default:
				list = append(list, p)
			}
		}
	}
	for i, text := range promptTexts(s.o.Text, textPrompts) {
		p := prompt{name: fmt.Sprintf("prompt %d", i), text: text, tokens: s.pkg.Tokenizer.Encode(text)}
		if len(p.tokens) == 0 {
			continue
		}
		s.host.exact.Reset()
		err := s.host.exact.Generate(ctx, p.tokens, runtime.GenerateOptions{MaxTokens: outputTokens}, func(t int32) bool {
			p.output = append(p.output, t)
			return true
		})
		if err != nil {
			return nil, nil, err
		}
		if len(p.output) > 0 {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		err = problem("--text names another text", "the text has no line that can be a prompt")
	}
	return list, skipped, err
}

// onePrompt reports whether llm_demo takes a text as one prompt: it reads lines, and skips those that are empty or begin
// with a number sign.
func onePrompt(text string) bool {
	return text != "" && text[0] != '#' && !strings.ContainsAny(text, "\n\r\x00")
}

// promptTexts returns at most n beginnings of lines, spread over the text.
func promptTexts(text string, n int) []string {
	var lines []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) >= promptWords/2 {
			if p := strings.Join(words[:min(promptWords, len(words))], " "); onePrompt(p) {
				lines = append(lines, p)
			}
		}
	}
	var list []string
	n = min(n, len(lines))
	for i := range n {
		list = append(list, lines[i*len(lines)/n])
	}
	return list
}

// noise returns the largest change, in logits, that int8 activations make on this computer to the distance of a likely token
// from the best, over all tokens of the outputs.
func (h *host) noise(ctx context.Context, prompts []prompt) (float64, error) {
	if h.int8 == nil {
		return 0, nil
	}
	most := 0.0
	for _, p := range prompts {
		all := slices.Concat(p.tokens, p.output[:len(p.output)-1])
		h.exact.Reset()
		h.int8.Reset()
		a, err := h.exact.Forward(ctx, all)
		if err != nil {
			return 0, err
		}
		b, err := h.int8.Forward(ctx, all)
		if err != nil {
			return 0, err
		}
		vocab := len(a) / len(all)
		for i := len(p.tokens) - 1; i < len(all); i++ {
			most = math.Max(most, rowNoise(a[i*vocab:(i+1)*vocab], b[i*vocab:(i+1)*vocab]))
		}
	}
	return most, nil
}

// likely is the distance, in logits, from the best token up to which tokens count for the noise.
const likely = 4

// rowNoise returns the largest change of the distance between a likely token and the best.
func rowNoise(a, b []float32) float64 {
	best := 0
	for t, v := range a {
		if v > a[best] {
			best = t
		}
	}
	most := 0.0
	for t, v := range a {
		if float64(a[best]-v) <= likely {
			most = math.Max(most, math.Abs(float64((b[t]-b[best])-(v-a[best]))))
		}
	}
	return most
}

// perplexityText returns the longest beginning of a text, in whole lines, of at most perplexityTokens tokens, and its tokens.
func (h *host) perplexityText(text string) (string, []int32) {
	end := 0
	var tokens []int32
	for line := range strings.Lines(text) {
		t := h.pkg.Tokenizer.Encode(text[:end+len(line)])
		if len(t) > perplexityTokens {
			break
		}
		end += len(line)
		tokens = t
	}
	return text[:end], tokens
}

// perplexity computes that of tokens in one context, as ppl_eval does: exp of the mean negative log-likelihood of all but
// the first.
func perplexity(ctx context.Context, s *runtime.Session, tokens []int32) (float64, error) {
	if err := s.Advance(ctx, [][]int32{tokens}); err != nil {
		return 0, err
	}
	sum := 0.0
	for from := 0; from < len(tokens)-1; from += tileRows {
		to := min(from+tileRows, len(tokens)-1)
		l, err := s.Logits(ctx, from, to)
		if err != nil {
			return 0, err
		}
		vocab := len(l) / (to - from)
		for i := from; i < to; i++ {
			sum += surprise(l[(i-from)*vocab:(i-from+1)*vocab], tokens[i+1])
		}
	}
	return math.Exp(sum / float64(len(tokens)-1)), nil
}

// surprise returns the negative log-likelihood of a token in nats.
func surprise(logits []float32, token int32) float64 {
	top := maximum(logits)
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum) - float64(logits[token])
}
