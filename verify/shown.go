package verify

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

const (
	// maxRowError is the largest distance of rows of a packaged tower or encoder at the source's precision from the source's, relative
	// to their length. Rounding causes about 1e-6.
	maxRowError = 1e-4
	// shownWords is the number of tokens before, between and after pictures or clips.
	shownWords = 8
)

// shownPrompt is a prompt some of whose tokens become rows of pictures or clips, and what the source makes of it.
type shownPrompt struct {
	tokens []int32
	words  []int32   // of the text that are still to be taken
	rows   []float32 // of all pictures or clips
	logits logitRows
}

// takeWords appends the next words of the text.
func (p *shownPrompt) takeWords() {
	n := min(shownWords, len(p.words))
	p.tokens, p.words = append(p.tokens, p.words[:n]...), p.words[n:]
}

// medium is what a prompt shows, and the part of the package that reads it.
type medium struct {
	name   string // pictures or clips
	reader string // tower or encoder
	count  int
	part   *runtime.Part
	// read opens the part and returns what it makes of the pictures or clips, and its rows in the source's form.
	read func(ctx context.Context, o runtime.Options) (seen []runtime.Picture, rows []float32, err error)
	// cost measures what the engine's own preparation costs, sets values, and returns a clause for the detail of the check.
	cost func(ctx context.Context, value map[string]float64) (string, error)
}

// check compares what the package computes with the source: the graphs at the source's precision up to rounding, and the package as it
// is shipped within the limit of the check kl for text.
func (p *shownPrompt) check(ctx context.Context, s *Subject, m medium) (Finding, error) {
	seen, rows, err := m.read(ctx, runtime.Options{Mode: backend.Float, Threads: s.Options.Threads, Replace: s.replace(m.part)})
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{m.name: float64(m.count), "tokens": float64(len(p.tokens))}
	if value["rows"], err = p.distance(m, rows); err != nil {
		return Finding{}, err
	}
	if !(value["rows"] <= maxRowError) {
		return fail(value, "%s at the source's precision makes rows of %s that differ from the source's by %.2g of their length",
			m.part.GraphFile, m.name, value["rows"])
	}
	sess, err := s.sourceSession(s.Package)
	if err != nil {
		return Finding{}, err
	}
	if value["kl_graph"], err = p.divergence(ctx, s, sess, seen); err != nil {
		return Finding{}, err
	}
	if !(value["kl_graph"] <= maxGraphKL) {
		return fail(value, "KL %.2g of the graphs at the source's precision on a prompt with %s", value["kl_graph"], m.name)
	}
	if value["kl_float"], value["rows_float"], err = p.shipped(ctx, s, m, backend.Float); err != nil {
		return Finding{}, err
	}
	if value["kl"], value["rows_int8"], err = p.shipped(ctx, s, m, backend.Int8); err != nil {
		return Finding{}, err
	}
	cost, err := m.cost(ctx, value)
	if err != nil {
		return Finding{}, err
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	text, _ := e.Float.KL.Mean() // what the weights cost on text, which other checks have judged
	return atMost(value["kl"], s.Options.Checks.KL.limit(s, text), "nats", value,
		"KL %.4g nats (weights alone %.4g, graphs %.2g) on a prompt with %d %s; rows of the %s differ by %.2g of their length (weights alone %.2g)%s",
		value["kl"], value["kl_float"], value["kl_graph"], m.count, m.name, m.reader, value["rows_int8"], value["rows_float"], cost)
}

// otherWords is a sentence about ids that a package has and the source has not; empty if there are none. What a prompt shows would stand
// between other words than the model knows, which no comparison of prompts that are made with these ids finds.
func otherWords(want, got map[string]int32) string {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			return fmt.Sprintf("llm_config.json has %s %d, the source %d", key, got[key], want[key])
		}
	}
	return ""
}

// shownHint is that of a check of a prompt that shows something.
func shownHint(value map[string]float64, reader string) string {
	if value["rows"] > maxRowError || value["kl_graph"] > maxGraphKL {
		return ours
	}
	return closer(value["kl"], value["kl_float"], "verify.kl.max") + "; an override that matches the tensors of the " + reader + " gives it more bits"
}

// shipped returns the divergence of the package as it is, and the distance of its rows.
func (p *shownPrompt) shipped(ctx context.Context, s *Subject, m medium, mode backend.Mode) (kl, distance float64, err error) {
	seen, rows, err := m.read(ctx, runtime.Options{
		Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / sessionShare,
	})
	if err == nil {
		distance, err = p.distance(m, rows)
	}
	if err != nil {
		return 0, 0, err
	}
	sess, err := s.session(mode)
	if err != nil {
		return 0, 0, err
	}
	kl, err = p.divergence(ctx, s, sess, seen)
	return kl, distance, err
}

// divergence is that of a session that is shown rows.
func (p *shownPrompt) divergence(ctx context.Context, s *Subject, sess *runtime.Session, seen []runtime.Picture) (float64, error) {
	sess.Reset()
	sess.Show(seen...)
	if err := sess.Feed(ctx, p.tokens); err != nil {
		return 0, err
	}
	kl, _, err := s.compareLogits(ctx, len(p.tokens), p.logits, sess.Logits)
	return kl, err
}

// distance is that of rows from the source's.
func (p *shownPrompt) distance(m medium, rows []float32) (float64, error) {
	if len(rows) != len(p.rows) {
		return 0, fmt.Errorf("the %s makes %d values of %s, the source %d", m.reader, len(rows), m.name, len(p.rows))
	}
	return distanceOf(p.rows, rows), nil
}

// distanceOf is the length of the difference from want, relative to the length of want.
func distanceOf(want, got []float32) float64 {
	var d, n float64
	for i, w := range want {
		e := float64(got[i]) - float64(w)
		d, n = d+float64(e*e), n+float64(float64(w)*float64(w))
	}
	return math.Sqrt(d / n)
}
