package device

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime"
)

// reading holds the tokens of a text that the engine printed.
type reading struct {
	tokens []int32
	// gap is the largest distance, in logits, from the best token to the one that the engine took; at is its index.
	gap float64
	at  int
	// stopped reports that a stop token followed.
	stopped bool
}

// reader finds the tokens of texts that the engine has generated greedily. The engine prints only their texts, which can be cut
// into tokens in several ways; the reader follows the model, computed on this computer, and takes at each step only tokens
// whose logit is within a tolerance of the best.
type reader struct {
	pkg  *runtime.Package
	sess *runtime.Session
	// tolerance is in logits.
	tolerance float64
}

// maxSteps bounds the tokens that are tried, as a multiple of those wanted.
const maxSteps = 8

// readError reports that the engine printed a text that the model does not generate.
type readError struct {
	step    int // the step at which nothing fits
	rest    string
	gap     float64 // of the nearest token that would fit, +Inf if there is none
	allowed float64
}

func (e *readError) Error() string {
	const most = 40
	rest := e.rest
	if len(rest) > most {
		rest = strings.ToValidUTF8(rest[:most], "") + "..."
	}
	switch {
	case math.IsNaN(e.gap):
		return fmt.Sprintf("%q is not a text of the number of tokens that the engine reports", rest)
	case e.rest == "":
		return fmt.Sprintf("the text ends after %d tokens, although the model does not", e.step)
	case math.IsInf(e.gap, 1):
		return fmt.Sprintf("token %d: %q begins with no token of the vocabulary", e.step, rest)
	}
	return fmt.Sprintf("token %d: the engine continues with %q, whose logit is %.3g below the best; up to %.3g is noise",
		e.step, rest, e.gap, e.allowed)
}

// read finds at most n tokens after a prompt that give the text. count is the number of tokens that the engine reports, the
// stop token included, or -1.
func (r *reader) read(ctx context.Context, prompt []int32, text string, n, count int) (*reading, error) {
	s := &search{reader: r, prompt: prompt, n: n, count: count, budget: maxSteps * (n + 1)}
	if n < 1 {
		return nil, fmt.Errorf("internal error: %d tokens to read", n)
	}
	switch ok, err := s.step(ctx, text); {
	case err != nil:
		return nil, err
	case ok:
		return &s.found, nil
	case s.nearest == nil:
		return nil, &readError{rest: text, gap: math.NaN()}
	}
	return nil, s.nearest
}

// search is one call of read.
type search struct {
	*reader
	prompt   []int32
	n, count int
	budget   int

	found   reading
	held    []int32    // the tokens in the session
	nearest *readError // of the longest sequence that could not be continued
}

// step continues found.tokens so that they give the rest of the text, and reports whether that was possible.
func (s *search) step(ctx context.Context, rest string) (bool, error) {
	done := len(s.found.tokens)
	if done == s.n {
		return rest == "" && (s.count < 0 || s.count == s.n), nil
	}
	if s.budget--; s.budget < 0 {
		return false, nil
	}
	logits, err := s.logits(ctx)
	if err != nil {
		return false, err
	}
	best := maximum(logits)
	if math.IsNaN(best) {
		return false, fmt.Errorf("the model computes NaN on this computer")
	}
	gap, at, fits := s.found.gap, s.found.at, false
	for _, t := range s.candidates(logits, best) {
		piece := s.pkg.Tokenizer.Decode([]int32{t})
		distance := best - float64(logits[t])
		s.found.gap, s.found.at = gap, at
		if distance > gap {
			s.found.gap, s.found.at = distance, done
		}
		if slices.Contains(s.pkg.Tokenizer.Stop(), t) {
			if strings.TrimSuffix(rest, "\n") == "" && (s.count < 0 || s.count == done+1) {
				s.found.stopped = true
				return true, nil
			}
			continue
		}
		if !strings.HasPrefix(rest, piece) {
			continue
		}
		fits = true
		s.found.tokens = append(s.found.tokens[:done:done], t)
		if ok, err := s.step(ctx, rest[len(piece):]); ok || err != nil {
			return ok, err
		}
		s.found.tokens = s.found.tokens[:done]
	}
	s.found.gap, s.found.at = gap, at
	if !fits {
		s.note(done, rest, logits, best)
	}
	return false, nil
}

// logits returns those after the prompt and the tokens found. It returns to a shorter sequence by computing it again.
func (s *search) logits(ctx context.Context) ([]float32, error) {
	all := slices.Concat(s.prompt, s.found.tokens)
	n := len(all) - 1
	more := len(s.held) == n && slices.Equal(s.held, all[:n])
	s.held = all
	if more {
		return s.sess.Decode(ctx, all[n])
	}
	s.sess.Reset()
	return s.sess.Prefill(ctx, all)
}

// candidates are the tokens within the tolerance, best first.
func (s *search) candidates(logits []float32, best float64) []int32 {
	var list []int32
	for t, v := range logits {
		if best-float64(v) <= s.tolerance {
			list = append(list, int32(t))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return list
}

// note remembers the nearest token that would have continued the longest sequence.
func (s *search) note(done int, rest string, logits []float32, best float64) {
	if s.nearest != nil && s.nearest.step >= done {
		return
	}
	e := &readError{step: done, rest: rest, gap: math.Inf(1), allowed: s.tolerance}
	for t, v := range logits {
		if d := best - float64(v); d < e.gap {
			if piece := s.pkg.Tokenizer.Decode([]int32{int32(t)}); piece != "" && strings.HasPrefix(rest, piece) {
				e.gap = d
			}
		}
	}
	s.nearest = e
}

func maximum(logits []float32) float64 {
	best := math.Inf(-1)
	for _, v := range logits {
		if f := float64(v); f != f {
			return f
		} else if f > best {
			best = f
		}
	}
	return best
}
