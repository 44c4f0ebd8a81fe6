package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime/backend"
)

// positions: rotary attention depends on distances only, so the same tokens give the same logits at any
// position. Contexts at sampled places up to the model's last position are compared with the one at 0, which
// reveals a rotary table that is too short or has wrong entries.
type positions struct{}

func (positions) String() string { return "positions" }

func (positions) Hint(map[string]float64) string { return ours }

const (
	// positionTokens is the length of a sampled context.
	positionTokens = 24
	// positionSamples is the number of places, including the first and the last possible ones.
	positionSamples = 12
	// maxPositionKL allows for float32 rotary angles: a cosine that is wrong in its last bit at every pair and
	// position moves logits by about 1e-5, a divergence below 1e-9; a wrong table gives more than 1e-3.
	maxPositionKL = 1e-6
)

func (positions) Check(ctx context.Context, s *Subject) (Finding, error) {
	absolute := s.Package.Config.LLMExport.AbsolutePositions
	if s.Source != nil {
		absolute = s.Source.Model.AbsolutePositions
	}
	if absolute != "" {
		return skip("logits depend on absolute positions: %s", absolute)
	}
	last := s.Package.Config.MaxPositions
	windows, err := s.windows()
	if err != nil {
		return Finding{}, err
	}
	w := windows[0][:min(positionTokens, len(windows[0]))]
	if last < 2*len(w) {
		return skip("the package states no maximum position that leaves room for samples")
	}
	sess, err := s.session(backend.Float)
	if err != nil {
		return Finding{}, err
	}
	if err := sess.FeedAt(ctx, w, 0); err != nil {
		return Finding{}, err
	}
	vocab, rows := s.Package.Vocabulary(), tileRows(s.Options, s.Package.Vocabulary())
	want := make([]float32, 0, len(w)*vocab)
	for from := 0; from < len(w); from += rows {
		part, err := sess.Logits(ctx, from, min(from+rows, len(w)))
		if err != nil {
			return Finding{}, err
		}
		want = append(want, part...)
	}
	if len(want) != len(w)*vocab {
		return fail(nil, "the graph computes %d logits for %d tokens of a vocabulary of %d", len(want), len(w), vocab)
	}
	first := func(_ context.Context, from, to int) ([]float32, error) { return want[from*vocab : to*vocab], nil }
	worst, worstAt := 0.0, 0
	for i := 1; i < positionSamples; i++ {
		at := (last - len(w)) * i / (positionSamples - 1)
		if err := sess.FeedAt(ctx, w, at); err != nil {
			return Finding{}, err
		}
		kl, _, err := s.compareLogits(ctx, len(w), first, sess.Logits)
		if err != nil {
			return Finding{}, err
		}
		if kl > worst {
			worst, worstAt = kl, at
		}
	}
	value := map[string]float64{"kl": worst, "at": float64(worstAt), "last": float64(last)}
	return atMost(worst, maxPositionKL, "nats", value,
		"%d places up to position %d, compared with position 0: largest KL %.2g, at %d", positionSamples, last-1, worst, worstAt)
}
