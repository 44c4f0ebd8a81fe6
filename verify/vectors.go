package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/sentence"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Vectors checks that the vectors that the package as shipped makes of texts point where those of the source do: one minus the
// mean cosine. For a reranker, it is the error of scores relative to how far the scores of the source are apart.
type Vectors struct{ Limit }

// largestDistance and largestScoreError are the defaults of Max, about three times what rounding to nearest in blocks of 64 costs
// on MiniLM (docs/embeddings.md has the table); 2 bits must be better than that. An error of 1 puts documents in any order.
var (
	largestDistance   = byBits{16: 1e-5, 8: 0.012, 6: 0.02, 5: 0.05, 4: 0.18, 3: 0.5, 2: 0.8}
	largestScoreError = byBits{16: 0.01, 8: 0.5, 6: 0.7, 5: 0.8, 4: 1, 3: 1, 2: 1}
)

func (*Vectors) String() string { return "vectors" }

// Hint implements Check.
func (*Vectors) Hint(map[string]float64) string {
	return "use more bits, smaller blocks or the method search to come closer to the source; verify.vectors.max of the recipe is the limit"
}

// Validate implements Validator.
func (v *Vectors) Validate() (key, problem string) { return v.notNegative() }

// Check implements Check.
func (v *Vectors) Check(ctx context.Context, s *Subject) (Finding, error) {
	if src, reason := s.float(); src == nil {
		return skip("%s", reason)
	}
	m, err := s.measure(ctx)
	if err != nil {
		return Finding{}, err
	}
	if m.otherIDs != "" {
		return fail(nil, "%s", m.otherIDs)
	}
	value := map[string]float64{"int8": m.int8, "float": m.float, "largest": m.largest, "texts": float64(m.texts)}
	if s.Package.Task() == runtime.Rerank {
		return atMost(m.int8, v.or(largestScoreError[s.Options.Bits]), "of spread", value,
			"scores of %d documents are off by %.3g of their spread (weights alone %.3g), largest difference %.3g", m.texts, m.int8, m.float, m.largest)
	}
	return atMost(m.int8, v.or(largestDistance[s.Options.Bits]), "1 - cosine", value,
		"1 - cosine %.3g over %d texts (weights alone %.3g), largest %.3g", m.int8, m.texts, m.float, m.largest)
}

// vectors are the measurements of a package that turns texts into vectors or scores.
type vectors struct {
	Evaluation // only the activations
	texts      int
	// float and int8 are the distances of the package from the source with float and int8 activations, as Vectors defines them.
	float, int8 float64
	// largest is the largest distance of a text with int8 activations.
	largest float64
	// otherIDs describes a text that the package gives other ids than the source.
	otherIDs string
	reranker bool
}

// metrics returns the measurements by their names in a manifest.
func (v *vectors) metrics() map[string]manifest.Metric {
	name := "cosine_distance"
	if v.reranker {
		name = "score_error"
	}
	m := map[string]manifest.Metric{"largest_activation": {Value: v.LargestActivation}, "texts": {Value: float64(v.texts)}}
	if v.texts > 0 {
		m[name], m[name+"_float"] = manifest.Metric{Value: v.int8}, manifest.Metric{Value: v.float}
	}
	return m
}

// textWords are the numbers of words of the texts that are measured, in turns.
var textWords = []int{6, 1, 25, 3, 60, 12, 130, 40}

// measuredTexts is how many texts are measured.
const measuredTexts = 32

// texts cuts the evaluation text into texts of a few words up to many.
func (s *Subject) texts() []string {
	words := strings.Fields(s.Options.Text)
	var list []string
	for i := 0; len(list) < measuredTexts && len(words) > 0; i++ {
		n := min(textWords[i%len(textWords)], len(words))
		list, words = append(list, strings.Join(words[:n], " ")), words[n:]
	}
	return list
}

// inputs returns the ids of the texts that are measured, pairs of a query and a document for a reranker. other describes the first
// text that gets other ids from the source's tokenizer.
func (s *Subject) inputs(ctx context.Context) (windows [][]int32, other string, err error) {
	rerank := s.Package.Task() == runtime.Rerank
	m, err := sentence.Open(s.Package, rerank)
	if err != nil {
		return nil, "", err
	}
	texts, most := s.texts(), s.Package.Config.MaxPositions
	for i, text := range texts {
		var ids []int32
		if rerank {
			ids, err = m.PairTokens(sentence.Query{Text: texts[(i+1)%len(texts)]}, text)
		} else {
			ids, err = m.Tokens(ctx, text)
		}
		if errors.As(err, new(*sentence.LengthError)) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if want, ok := s.sourceIDs(rerank, text, texts[(i+1)%len(texts)]); ok && other == "" && !slices.Equal(trained(s.Package.Task(), ids), want) {
			other = fmt.Sprintf("the package gives %q other ids than the source", clip(text))
		}
		windows = append(windows, ids)
	}
	if len(windows) == 0 {
		return nil, "", fmt.Errorf("no part of the text fits into %d positions: %w", most, tensor.ErrUnsupported)
	}
	return windows, other, nil
}

// sourceIDs returns the ids that the source's tokenizer gives a text, or a document for a query; not ok without a source.
func (s *Subject) sourceIDs(rerank bool, text, query string) (ids []int32, ok bool) {
	if s.Source == nil {
		return nil, false
	}
	t := s.Source.Tokenizer
	if !rerank {
		return t.Encode(text, true), true
	}
	ids = append(t.Encode(query, true), t.SuffixIDs()...)
	return append(append(ids, t.Encode(text, false)...), t.SuffixIDs()...), true
}

// trained returns the ids of a text as the model was trained on them: those of a pair have no mark of the engine.
func trained(task runtime.Task, ids []int32) []int32 {
	if task != runtime.Rerank || len(ids) < 2 {
		return ids
	}
	return append(slices.Clone(ids[:1]), ids[2:]...)
}

// reference returns the source's vectors of the ids of texts.
func (s *Subject) reference(ctx context.Context, inputs [][]int32) (all [][]float32, err error) {
	for _, ids := range inputs {
		v, err := s.Source.Vectors(ctx, [][]int32{trained(s.Package.Task(), ids)})
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// vectorsOf runs a session on the ids of texts.
func vectorsOf(ctx context.Context, sess *runtime.Session, inputs [][]int32) (all [][]float32, err error) {
	for _, ids := range inputs {
		v, err := sess.Vector(ctx, ids)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Clone(v))
	}
	return all, nil
}

// measure runs the package on the texts once.
func (s *Subject) measure(ctx context.Context) (*vectors, error) {
	if s.vectors != nil {
		return s.vectors, nil
	}
	v := &vectors{reranker: s.Package.Task() == runtime.Rerank}
	inputs, other, err := s.inputs(ctx)
	if err != nil {
		return nil, err
	}
	v.otherIDs = other
	c := candidate{Evaluation: &v.Evaluation}
	var got [2][][]float32
	for i, mode := range []backend.Mode{backend.Float, backend.Int8} {
		sess, err := s.session(mode)
		if err != nil {
			return nil, err
		}
		if mode == backend.Float {
			sess.Peaks = func(op *mnn.Op, peak float32) { c.activation(op.Name, peak) }
		}
		if got[i], err = vectorsOf(ctx, sess, inputs); err != nil {
			return nil, err
		}
	}
	if src, _ := s.float(); src != nil {
		want, err := s.reference(ctx, inputs)
		if err != nil {
			return nil, err
		}
		v.texts = len(want)
		v.float, _ = v.distance(want, got[0])
		v.int8, v.largest = v.distance(want, got[1])
	}
	s.vectors = v
	return v, nil
}

// distance returns the distance of vectors or scores from those of the source, and that of the farthest.
func (v *vectors) distance(want, got [][]float32) (mean, largest float64) {
	if v.reranker {
		return scoreError(want, got)
	}
	for i := range want {
		d := 1 - cosine(want[i], got[i])
		if !finite(d) {
			return math.NaN(), math.NaN()
		}
		mean, largest = mean+d/float64(len(want)), max(largest, d)
	}
	return mean, largest
}

// cosine is that of the angle between two vectors; NaN if their lengths differ.
func cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	var ab, aa, bb float64
	for i, x := range a {
		ab += float64(float64(x) * float64(b[i]))
		aa += float64(float64(x) * float64(x))
		bb += float64(float64(b[i]) * float64(b[i]))
	}
	return ab / math.Sqrt(float64(aa*bb))
}

// scoreError is the root of the mean squared difference of scores, relative to the standard deviation of the source's, and the
// largest difference.
func scoreError(want, got [][]float32) (relative, largest float64) {
	var mean, spread, sum float64
	n := float64(len(want))
	for _, w := range want {
		mean += float64(w[0]) / n
	}
	for i, w := range want {
		d, off := float64(got[i][0])-float64(w[0]), float64(w[0])-mean
		sum, spread, largest = sum+float64(d*d), spread+float64(off*off), max(largest, math.Abs(d))
		if !finite(d) {
			return math.NaN(), math.NaN()
		}
	}
	if spread == 0 {
		return math.Sqrt(sum / n), largest
	}
	return math.Sqrt(sum / spread), largest
}

// maxGraphDistance and maxGraphScore are a hundred times what rounding causes on the small models of the tests.
const (
	maxGraphDistance = 1e-9
	maxGraphScore    = 1e-5
)

// graphVectors is the check graph for packages that turn texts into vectors or scores.
func (s *Subject) graphVectors(ctx context.Context) (Finding, error) {
	inputs, _, err := s.inputs(ctx)
	if err != nil {
		return Finding{}, err
	}
	inputs = inputs[:min(len(textWords), len(inputs))]
	sess, err := s.sourceSession(s.Package)
	if err != nil {
		return Finding{}, err
	}
	want, err := s.reference(ctx, inputs)
	if err != nil {
		return Finding{}, err
	}
	got, err := vectorsOf(ctx, sess, inputs)
	if err != nil {
		return Finding{}, err
	}
	if len(got[0]) != len(want[0]) {
		return fail(nil, "the graph computes %d numbers for a text, the source %d", len(got[0]), len(want[0]))
	}
	distance, difference := 0.0, 0.0
	for i := range want {
		distance = max(distance, 1-cosine(want[i], got[i]))
		for j, w := range want[i] {
			difference = max(difference, math.Abs(float64(got[i][j])-float64(w)))
		}
	}
	value := map[string]float64{"largest_difference": difference}
	if s.Package.Task() == runtime.Rerank {
		return atMost(difference, maxGraphScore, "", value, "scores of the graph at the source's precision differ from the source's by up to %.2g", difference)
	}
	value["distance"] = distance
	return atMost(distance, maxGraphDistance, "1 - cosine", value,
		"1 - cosine %.2g of the graph at the source's precision from the source, largest difference %.2g", distance, difference)
}
