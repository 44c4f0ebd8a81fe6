package verify

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

const (
	// passageCount is the number of places that a report shows, passageGap their least distance in tokens within a window,
	// passageBefore the number of tokens shown before them, and passageTokens the number of likely next tokens.
	passageCount, passageGap, passageBefore, passageTokens = 8, 32, 40, 4
	// positionRanges is the number of ranges of positions in a report.
	positionRanges = 16
)

// passage is a position with the most likely next tokens.
type passage struct {
	window, position int
	kl               float64
	before           []int32 // up to and including the position
	next             int32
	source, pkg      []likely
}

// likely is a next token and its probability.
type likely struct {
	token       int32
	probability float64
}

// passages collects the positions with the largest divergences.
type passages []passage

// wants reports whether a position belongs to the list: its divergence is larger than that of all places near it, and than
// that of the last of a full list.
func (l passages) wants(window, position int, kl float64) bool {
	for _, p := range l {
		if p.near(window, position) && p.kl >= kl {
			return false
		}
	}
	return kl > 0 && (len(l) < passageCount || kl > l[len(l)-1].kl)
}

func (p *passage) near(window, position int) bool {
	return p.window == window && max(p.position-position, position-p.position) < passageGap
}

// add inserts a passage that the list wants, in place of those near it.
func (l *passages) add(p passage) {
	*l = slices.DeleteFunc(*l, func(q passage) bool { return q.near(p.window, p.position) })
	at, _ := slices.BinarySearchFunc(*l, p, func(a, b passage) int { return -cmp.Compare(a.kl, b.kl) })
	*l = slices.Insert(*l, at, p)
	*l = (*l)[:min(len(*l), passageCount)]
}

// most returns the most likely tokens of a row, the smaller id first of equally likely ones.
func (r row) most(n int) []likely {
	var list []likely
	for id, v := range r.logits {
		p := float64(v)
		if len(list) == n && p <= list[n-1].probability {
			continue
		}
		at := len(list)
		for at > 0 && list[at-1].probability < p {
			at--
		}
		list = slices.Insert(list, at, likely{int32(id), p})
		list = list[:min(len(list), n)]
	}
	for i := range list {
		list[i].probability = exp(list[i].probability - r.norm)
	}
	return list
}

// divergence describes the divergences of the package as shipped for a report, nil without a source or if logits of the
// package are not finite. The tokenizer is that of the package.
func (e *Evaluation) divergence(o *Options, t *engine.Tokenizer) *about.Divergence {
	s := &e.Int8.KL
	if s.Len() == 0 || e.NotFinite > 0 {
		return nil
	}
	d := &about.Divergence{Text: o.TextName, SHA256: o.TextSHA256, Window: e.Window, Windows: e.Windows, Scored: s.Len()}
	for _, q := range []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1} {
		d.Shares = append(d.Shares, about.DivergenceShare{Share: q, KL: s.Quantile(q)})
	}
	d.Positions = s.ranges(o.ScoreFrom)
	for _, p := range e.passages {
		d.Passages = append(d.Passages, about.Passage{
			Window: p.window, Position: p.position, KL: p.kl,
			Before: tokenText(t, p.before...), Next: tokenText(t, p.next),
			Source: probabilities(t, p.source), Package: probabilities(t, p.pkg),
		})
	}
	return d
}

func probabilities(t *engine.Tokenizer, list []likely) []about.Probability {
	out := make([]about.Probability, len(list))
	for i, x := range list {
		out[i] = about.Probability{Token: tokenText(t, x.token), Probability: x.probability}
	}
	return out
}

// tokenText returns the text of tokens, with U+FFFD for control characters and for what is only a part of a character.
func tokenText(t *engine.Tokenizer, ids ...int32) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(t.Decode(ids), "\uFFFD"))
}

// ranges groups the values by their positions in windows, the first of which is from.
func (s *Sample) ranges(from int) []about.DivergenceRange {
	var byPosition [][]float64
	for i, lo := range s.windows {
		hi := len(s.values)
		if i+1 < len(s.windows) {
			hi = s.windows[i+1]
		}
		for k, v := range s.values[lo:hi] {
			if k == len(byPosition) {
				byPosition = append(byPosition, nil)
			}
			byPosition[k] = append(byPosition[k], v)
		}
	}
	n := min(positionRanges, len(byPosition))
	var list []about.DivergenceRange
	for i := range n {
		lo, hi := i*len(byPosition)/n, (i+1)*len(byPosition)/n
		x := Sample{values: slices.Concat(byPosition[lo:hi]...)}
		mean, _ := x.Mean()
		list = append(list, about.DivergenceRange{From: from + lo, To: from + hi - 1, Mean: mean, High: x.Quantile(0.9)})
	}
	return list
}

// worstMatrices is the number of matrices in a report of methods that do not watch the model.
const worstMatrices = 32

// worst returns the matrices with the largest errors of their weights, the largest first; a matrix that two ops read counts once.
func worst(list []about.OpError) []about.OpError {
	slices.SortFunc(list, func(a, b about.OpError) int {
		return cmp.Or(-cmp.Compare(a.WeightError, b.WeightError), cmp.Compare(a.Tensor, b.Tensor))
	})
	list = slices.CompactFunc(list, func(a, b about.OpError) bool { return a.Tensor == b.Tensor })
	return list[:min(len(list), worstMatrices)]
}
