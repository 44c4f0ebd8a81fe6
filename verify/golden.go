package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Golden is an output that another program recorded for the source, in a golden file: a JSON object
//
//	{"provenance": "transformers 5.23, float32", "outputs": [{"prompt": [ids], "output": [ids], "top_logits": [{"token": 1, "value": 2.5}]}]}
//
// Logits are those after the last prompt token.
type Golden = manifest.Golden

// ParseGoldens reads a golden file.
func ParseGoldens(b []byte) ([]Golden, error) {
	var f struct {
		Provenance string   `json:"provenance"`
		Outputs    []Golden `json:"outputs"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("golden file: %v: %w", err, tensor.ErrCorrupt)
	}
	if f.Provenance == "" || len(f.Outputs) == 0 {
		return nil, fmt.Errorf("golden file: no provenance or no outputs: %w", tensor.ErrCorrupt)
	}
	for i := range f.Outputs {
		f.Outputs[i].Provenance = f.Provenance
		if len(f.Outputs[i].Prompt) == 0 {
			return nil, fmt.Errorf("golden file: output %d has no prompt: %w", i, tensor.ErrCorrupt)
		}
	}
	return f.Outputs, nil
}

// golden: the package reproduces the outputs recorded in its manifest, and the source those recorded elsewhere.
type golden struct{}

func (golden) String() string { return "golden" }

func (golden) Hint(map[string]float64) string {
	return "the recorded outputs belong to other weights, or to a program that computes differently: verify.golden of the recipe names their file"
}

const (
	// goldenPrompt and goldenOutput are the lengths, in tokens, of the prompt and the output that Record
	// records.
	goldenPrompt, goldenOutput = 16, 24
	// goldenTop is the number of logits recorded.
	goldenTop = 8
	// maxGoldenDiff is how far a logit may move between two float32 programs: 1e-4 is ten times the
	// difference measured between transformers and the reference, relative to logits of about 10.
	maxGoldenDiff = 1e-3
)

func (golden) Check(ctx context.Context, s *Subject) (Finding, error) {
	n := 0
	if src, _ := s.float(); src != nil {
		for i, g := range s.Options.Goldens {
			if err := matchSource(ctx, s, g); err != nil {
				return fail(nil, "recorded output %d (%s): %v", i, g.Provenance, err)
			}
			n++
		}
	}
	if s.Manifest != nil {
		for i, g := range s.Manifest.Goldens {
			if err := matchPackage(ctx, s, g); err != nil {
				return fail(nil, "golden %d of the manifest: %v", i, err)
			}
			n++
		}
	}
	if n == 0 {
		return skip("no outputs are recorded")
	}
	return pass(map[string]float64{"outputs": float64(n)}, "%d recorded outputs reproduced", n)
}

// Record decodes greedily after a prompt from the start of the text, in float mode, for the manifest of a new
// package.
func Record(ctx context.Context, s *Subject, provenance string) ([]Golden, error) {
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	prompt := windows[0][:min(goldenPrompt, len(windows[0]))]
	out, top, err := greedy(ctx, s, prompt, goldenOutput)
	if err != nil {
		return nil, err
	}
	return []Golden{{Prompt: prompt, Output: out, TopLogits: top, Provenance: provenance}}, nil
}

func greedy(ctx context.Context, s *Subject, prompt []int32, n int) (out []int32, top []manifest.Logit, err error) {
	sess, err := s.session(backend.Float)
	if err != nil {
		return nil, nil, err
	}
	logits, err := sess.Prefill(ctx, prompt)
	if err != nil {
		return nil, nil, err
	}
	top = topLogits(logits)
	sess.Reset()
	err = sess.Generate(ctx, prompt, runtime.GenerateOptions{MaxTokens: n}, func(t int32) bool {
		out = append(out, t)
		return true
	})
	if out == nil {
		out = []int32{}
	}
	return out, top, err
}

func topLogits(logits []float32) []manifest.Logit {
	all := make([]manifest.Logit, len(logits))
	for i, v := range logits {
		all[i] = manifest.Logit{Token: int32(i), Value: v}
	}
	slices.SortFunc(all, func(a, b manifest.Logit) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Token, b.Token))
	})
	return all[:min(goldenTop, len(all))]
}

func matchPackage(ctx context.Context, s *Subject, g Golden) error {
	out, top, err := greedy(ctx, s, g.Prompt, len(g.Output))
	if err != nil {
		return err
	}
	if err := matchLogits(g.TopLogits, func(t int32) (float32, bool) {
		i := slices.IndexFunc(top, func(l manifest.Logit) bool { return l.Token == t })
		if i < 0 {
			return 0, false
		}
		return top[i].Value, true
	}); err != nil {
		return err
	}
	if !slices.Equal(out, g.Output) {
		return fmt.Errorf("output is %v, recorded %v", out, g.Output)
	}
	return nil
}

func matchLogits(want []manifest.Logit, got func(t int32) (float32, bool)) error {
	for _, l := range want {
		v, ok := got(l.Token)
		if !ok || math.Abs(float64(v)-float64(l.Value)) > maxGoldenDiff {
			return fmt.Errorf("logit of token %d is %g, recorded %g", l.Token, v, l.Value)
		}
	}
	return nil
}

// matchSource compares the reference with a golden. The output is compared step by step with the recorded prefix
// as context; a tie within maxGoldenDiff may fall either way.
func matchSource(ctx context.Context, s *Subject, g Golden) error {
	vocab := s.Source.Model.Vocab
	all := slices.Concat(g.Prompt, g.Output)
	for _, t := range all {
		if t < 0 || int(t) >= vocab {
			return fmt.Errorf("token %d of a vocabulary of %d", t, vocab)
		}
	}
	h, err := s.Source.Reference.Hidden(ctx, [][]int32{all})
	if err != nil {
		return err
	}
	rows, first := s.sourceLogits(s.Source.Reference, h), len(g.Prompt)-1
	for from, n := 0, tileRows(s.Options, vocab); from < len(g.Output)+1; from += n {
		to := min(from+n, len(g.Output)+1)
		logits, err := rows(ctx, first+from, first+to)
		if err != nil {
			return err
		}
		if from == 0 {
			if err := matchLogits(g.TopLogits, func(t int32) (float32, bool) {
				if t < 0 || int(t) >= vocab {
					return 0, false
				}
				return logits[t], true
			}); err != nil {
				return err
			}
		}
		for i, t := range g.Output[from:min(to, len(g.Output))] {
			r := newRow(logits[i*vocab : (i+1)*vocab])
			if best := r.top(); r.logits[best]-r.logits[t] > maxGoldenDiff {
				return fmt.Errorf("token %d of the output is %d, recorded %d", from+i, best, t)
			}
		}
	}
	return nil
}
