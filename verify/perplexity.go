package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime/kernel"
)

func exp(v float64) float64 { return kernel.Exp(v) }

// Perplexity checks the perplexity of the package as shipped against that of the source. Its options also configure
// the evaluation for every check that reads it.
type Perplexity struct {
	Text      Text     `json:"text" jsonschema_description:"Evaluation text: builtin, or a file with its digest."`
	Window    int      `json:"window" jsonschema:"minimum=8" jsonschema_description:"Tokens of a fresh context."`
	Windows   int      `json:"windows" jsonschema:"minimum=0" jsonschema_description:"Number of contexts, spread over the text; 0 is all that the text has."`
	Decode    int      `json:"decode" jsonschema:"minimum=0" jsonschema_description:"Last tokens of a context that are also fed one by one."`
	MaxRatio  *float64 `json:"max_ratio,omitempty" jsonschema_description:"Largest perplexity relative to the source; by bit width if absent."`
	MaxSource *float64 `json:"max_source,omitempty" jsonschema_description:"Perplexity of the source above which the checkpoint is absurd; a quarter of the vocabulary if absent."`
}

// largestRatio is the default of MaxRatio.
var largestRatio = byBits{16: 1.005, 8: 1.02, 6: 1.03, 5: 1.05, 4: 1.15, 3: 1.5, 2: 2.5}

func (*Perplexity) String() string { return "perplexity" }

// Hint implements Check.
func (*Perplexity) Hint(value map[string]float64) string {
	const limit = "verify.perplexity.max_ratio"
	switch {
	case value["not_finite"] > 0:
		return "logits overflow: nothing in verify.perplexity.max_ratio helps; " + ours
	case value["ratio"] == 0:
		return "the package does not predict the text: name the checkpoint with --source to compare it with that; " +
			"verify.perplexity.max_source of the recipe is the limit, and " + limit + " that of a comparison"
	}
	return closer(value["excess"], value["excess_float"], limit)
}

// Validate implements Validator.
func (p *Perplexity) Validate() (key, problem string) {
	switch {
	case p.Window < 8:
		return "window", "must be 8 or more"
	case p.Windows < 0:
		return "windows", "must not be negative"
	case p.Decode < 0:
		return "decode", "must not be negative"
	case p.MaxRatio != nil && !(*p.MaxRatio > 0):
		return "max_ratio", "must be more than 0"
	case p.MaxSource != nil && !(*p.MaxSource > 1):
		return "max_source", "must be more than 1"
	}
	return "", ""
}

// absurd returns the perplexity above which a model clearly does not predict the text.
func (p *Perplexity) absurd(s *Subject) float64 {
	return Limit{p.MaxSource}.or(float64(s.Package.Vocabulary()) / 4)
}

// Check implements Check.
func (p *Perplexity) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	if e.NotFinite > 0 {
		return fail(map[string]float64{"not_finite": float64(e.NotFinite)}, "%d positions have logits that are NaN or infinite", e.NotFinite)
	}
	mean, se := e.Int8.NLL.Mean()
	ppl := exp(mean)
	value := map[string]float64{"perplexity": ppl, "std_err": ppl * se}
	if src, _ := s.float(); src == nil {
		return atMost(ppl, p.absurd(s), "", value, "perplexity %.4f ± %.2g on %s", ppl, ppl*se, s.Options.TextName)
	}
	src, _ := e.Source.Mean()
	ratio := exp(mean - src)
	float, _ := e.Float.NLL.Mean()
	value["ratio"], value["excess"], value["excess_float"] = ratio, mean-src, float-src
	limit := Limit{p.MaxRatio}.or(largestRatio[s.Options.Bits])
	return atMost(ratio, limit, "", value, "perplexity %.4f ± %.2g, source %.4f, ratio %.4f", ppl, ppl*se, exp(src), ratio)
}

// sourceSane: the source itself predicts the text. A checkpoint that is damaged, or whose config.json belongs
// to another one, can be packaged faithfully and is still useless.
type sourceSane struct{}

func (sourceSane) String() string { return "source" }

func (sourceSane) Hint(map[string]float64) string {
	return "the checkpoint itself does not predict the text: its weights are damaged or were never trained, or the text does not suit it; " +
		"verify.perplexity of the recipe has text and max_source"
}

func (sourceSane) Check(ctx context.Context, s *Subject) (Finding, error) {
	if src, reason := s.float(); src == nil {
		return skip("%s", reason)
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	mean, _ := e.Source.Mean()
	limit, ppl := s.Options.Checks.Perplexity.absurd(s), exp(mean)
	return atMost(ppl, limit, "", map[string]float64{"perplexity": ppl},
		"the source has perplexity %.4g on %s; more than %.4g would be absurd", ppl, s.Options.TextName, limit)
}
