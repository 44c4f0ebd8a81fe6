package verify

import (
	_ "embed"
	"fmt"
)

// Text is the built-in evaluation text: inaugural addresses of presidents of the United States, in the public
// domain.
//
//go:embed text.txt
var Text string

// Options says what is measured and which numbers are still acceptable. The zero value of a limit means the
// default of the body's bit width.
type Options struct {
	// Text is evaluated; TextName and TextSHA256 name it in reports.
	Text, TextName, TextSHA256 string
	// Window is the number of tokens of a fresh context, Windows how many of them are taken, spread evenly over
	// the text; 0 takes all that the text has.
	Window, Windows int
	// ScoreFrom is the first position of a window whose prediction counts; others are context only. 0 scores all.
	ScoreFrom int
	// DecodeTokens is the number of last tokens of a window that are also fed one by one.
	DecodeTokens int
	// TokenizerStrings is how many strings the check tokenizer takes, spread evenly over those that there are; 0 takes all.
	TokenizerStrings int
	// Goldens are outputs recorded elsewhere that the source must reproduce.
	Goldens []Golden
	Limits  Limits
	Threads int
	// Memory is what the buffers of an evaluation are measured by, in bytes: a quarter each for the weights that the two
	// sessions keep, a sixteenth each for codes of experts, an eighth for tiles of logits. The reference has a limit of its own, and the hidden states of a
	// batch of windows, which the sessions and the reference hold, do not grow with the text. Mapped files, the graph,
	// KV caches and the text itself come on top.
	Memory int64
	// Progress is told the positions evaluated so far; it may be nil.
	Progress func(done, total int64)
}

// Limits are the largest acceptable values.
type Limits struct {
	// KL is the mean divergence in nats between the source and the package as shipped.
	KL float64
	// PerplexityRatio is perplexity of the package over perplexity of the source.
	PerplexityRatio float64
	// LayerError is the relative error of the hidden state after any layer.
	LayerError float64
	// KLNoise and LayerNoise loosen KL and LayerError where the checks weights and graph have shown that the package is the
	// source with weights as near as its methods promise, so that all there is is noise: the divergence may be KLNoise times
	// that of the weights alone, and a layer's error LayerNoise. 0 leaves the limits as they are.
	KLNoise, LayerNoise float64
	// OutputError is the relative squared error of an op's outputs that a method may report of a matrix; 0 goes by bits.
	OutputError float64
	// SourcePerplexity is what is absurd for the source itself; 0 means a quarter of the vocabulary.
	SourcePerplexity float64
	// TokenizerPlain and TokenizerHard are shares of strings whose ids may differ in the engine.
	TokenizerPlain, TokenizerHard float64
}

// defaults by bits of the body. They are about three times what round-to-nearest with blocks of 64 and an
// 8-bit table costs on the small trained models of the tests (docs/verification.md has the table), except at 2
// bits, where they refuse what plain rounding makes of such a model: text that no longer follows the prompt.
var defaults = map[int]Limits{
	16: {KL: 1e-3, PerplexityRatio: 1.005, LayerError: 0.02},
	8:  {KL: 0.02, PerplexityRatio: 1.02, LayerError: 0.1},
	6:  {KL: 0.03, PerplexityRatio: 1.03, LayerError: 0.2},
	5:  {KL: 0.06, PerplexityRatio: 1.05, LayerError: 0.3},
	4:  {KL: 0.15, PerplexityRatio: 1.15, LayerError: 0.5},
	3:  {KL: 0.5, PerplexityRatio: 1.5, LayerError: 0.8},
	2:  {KL: 1, PerplexityRatio: 2.5, LayerError: 1.2},
}

// What noise may do at least. On 64 mixtures of experts and state-space models of random weights, whose routers flip, int8
// activations made of the weights' divergence 2.3 times as much over a window, and 4.3 times over 32 tokens; no layer was
// off by more than .7. Beyond an error of 1 nothing of a state is left.
const (
	defaultKLNoise    = 6
	defaultLayerNoise = 1
)

// Default tokenizer limits: no difference on plain text, 3 % on the hard strings.
const (
	defaultTokenizerPlain = 0
	defaultTokenizerHard  = 0.03
)

// DefaultLimits are the limits of a body of the given bit width.
func DefaultLimits(bits int) (Limits, error) {
	l, ok := defaults[bits]
	if !ok {
		return Limits{}, fmt.Errorf("no default limits for %d bits", bits)
	}
	l.KLNoise, l.LayerNoise = defaultKLNoise, defaultLayerNoise
	l.TokenizerPlain, l.TokenizerHard = defaultTokenizerPlain, defaultTokenizerHard
	return l, nil
}
