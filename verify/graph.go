package verify

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// graph: the packaged graph, given the source's own weights and run in float32, computes what the reference
// computes. Two float32 programs differ only by rounding, which causes a divergence far below maxGraphKL.
type graph struct{}

func (graph) String() string { return "graph" }

func (graph) Hint(map[string]float64) string { return ours }

// maxGraphKL is a hundred times the divergence from rounding on the small models of the tests (below 1e-10).
const maxGraphKL = 1e-8

// graphTokens is the number of tokens of the first window that the float comparisons of graph and layers use.
const graphTokens = 96

func (graph) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Reference == nil {
		return skip(needsWeights)
	}
	if s.Package.Task() != runtime.Generate {
		return s.graphVectors(ctx)
	}
	windows, err := s.windows()
	if err != nil {
		return Finding{}, err
	}
	w := windows[0][:min(graphTokens, len(windows[0]))]
	sess, err := s.sourceSession(s.Package)
	if err != nil {
		return Finding{}, err
	}
	got, err := sess.Forward(ctx, w)
	if err != nil {
		return Finding{}, err
	}
	h, err := s.Source.Reference.Hidden(ctx, [][]int32{w})
	if err != nil {
		return Finding{}, err
	}
	want := make([]float32, len(w)*s.Source.Model.Vocab)
	if err := s.Source.Reference.Logits(ctx, want, h); err != nil {
		return Finding{}, err
	}
	if len(got) != len(want) {
		return fail(nil, "the graph computes %d logits for %d tokens, the source %d", len(got), len(w), len(want))
	}
	kl, diff := compareLogits(want, got, s.Source.Model.Vocab, s.Options.Threads)
	value := map[string]float64{"kl": kl, "largest_difference": diff}
	f, err := atMost(kl, maxGraphKL, "nats", value, "KL %.2g of the graph at the source's precision from the source, largest logit difference %.2g", kl, diff)
	if err != nil || !f.Passed {
		return f, err
	}
	for _, part := range s.Package.Parts[1:] {
		if part == s.Package.Visual() || part == s.Package.Audio() {
			continue // the checks pictures and sounds run them
		}
		f = f.and(part.GraphFile + " was not run, because the source describes no computation for it")
	}
	return s.graphFar(ctx, len(w), f)
}

// sourceSession runs the text model of pkg, which is the package or a part of it, with the source's own weights in
// float32.
func (s *Subject) sourceSession(pkg *runtime.Package) (*runtime.Session, error) {
	table, info, err := s.Source.open(s.Source.Model.Embedding)
	if err != nil {
		return nil, err
	}
	hidden := int(info.Shape[len(info.Shape)-1])
	return runtime.NewSession(pkg, cpu.Backend{}, runtime.Options{
		Mode: backend.Float, Threads: s.Options.Threads, Replace: s.replace(pkg.Text()),
		Embed: func(tokens []int32) ([]float32, error) {
			v := make([]float32, len(tokens)*hidden)
			for i, t := range tokens {
				if err := table.row(v[i*hidden:(i+1)*hidden], int(t)); err != nil {
					return nil, err
				}
			}
			return v, nil
		},
	})
}

// replace returns the source's own weights for the ops of a part.
func (s *Subject) replace(part *runtime.Part) func(op *mnn.Op) (weights, bias []float32, err error) {
	names := map[string][]string{} // of weights, and of a bias
	for _, t := range s.Manifest.Tensors {
		if t.File == part.WeightFile {
			names[t.Op] = strings.SplitN(t.Name, BiasSeparator, 2)
		}
	}
	return func(op *mnn.Op) (weights, bias []float32, err error) {
		list, ok := names[op.Name]
		if n, inline := op.Param.(*mnn.LayerNorm); inline && !ok && n.External == nil {
			return nil, nil, nil // factors that only the graph has
		}
		if !ok {
			return nil, nil, fmt.Errorf("no tensor of the manifest belongs to this op")
		}
		if weights, err = s.Source.floats(list[0], elements(op)); err != nil || len(list) == 1 {
			return weights, nil, err
		}
		bias, err = s.Source.floats(list[1], biases(op))
		return weights, bias, err
	}
}

// floats reads all n elements of a tensor.
func (s *Source) floats(name string, n int64) ([]float32, error) {
	src, info, err := s.open(name)
	if err != nil {
		return nil, err
	}
	has, err := info.Shape.Elements()
	if err != nil {
		return nil, err
	}
	if has != n {
		return nil, fmt.Errorf("%s has %d elements, the op takes %d: %w", name, has, n, tensor.ErrCorrupt)
	}
	v := make([]float32, n)
	return v, src.row(v, 0)
}

// elements returns the number of weights that an op takes.
func elements(op *mnn.Op) int64 {
	switch p := op.Param.(type) {
	case *mnn.Convolution:
		return int64(p.Outputs) * int64(p.Inputs)
	case *mnn.LayerNorm:
		if len(p.External) >= 2 {
			return p.External[1] / 4
		}
		return int64(len(p.Gamma))
	case *mnn.Blob:
		if len(p.External) >= 2 {
			return p.External[1] / 4
		}
	}
	return 0
}

// biases returns the number of elements of the vector stored after an op's weights, or 0 if the op has none.
func biases(op *mnn.Op) int64 {
	switch p := op.Param.(type) {
	case *mnn.Convolution:
		return int64(p.Outputs)
	case *mnn.LayerNorm:
		if len(p.External) >= 3 {
			return p.External[2] / 4
		}
		return int64(len(p.Beta))
	}
	return 0
}

// compareLogits returns the mean divergence and the largest difference of [n, vocab] logits.
func compareLogits(want, got []float32, vocab, threads int) (kl, diff float64) {
	type gap struct{ kl, diff float64 }
	gaps := make([]gap, len(want)/vocab)
	kernel.Parallel(threads, len(gaps), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			a, b := newRow(want[r*vocab:(r+1)*vocab]), newRow(got[r*vocab:(r+1)*vocab])
			if !a.finite() || !b.finite() {
				gaps[r] = gap{math.Inf(1), math.Inf(1)}
				continue
			}
			gaps[r].kl = a.kl(b)
			for i, v := range a.logits {
				gaps[r].diff = max(gaps[r].diff, math.Abs(float64(v)-float64(b.logits[i])))
			}
		}
	})
	for _, g := range gaps {
		kl += g.kl / float64(len(gaps))
		diff = max(diff, g.diff)
	}
	return kl, diff
}
