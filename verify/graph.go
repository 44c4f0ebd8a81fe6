package verify

import (
	"context"
	"errors"
	"fmt"
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
	if err := sess.Advance(ctx, [][]int32{w}); err != nil {
		return Finding{}, err
	}
	ref := s.Source.Reference
	h, err := ref.Hidden(ctx, [][]int32{w})
	if err != nil {
		return Finding{}, err
	}
	kl, diff, err := s.compareLogits(ctx, len(w), s.sourceLogits(ref, h), sess.Logits)
	if errors.As(err, new(*widthError)) {
		return fail(nil, "%v", err)
	}
	if err != nil {
		return Finding{}, err
	}
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
func (s *Subject) replace(part *runtime.Part) func(op *mnn.Op) (weights *backend.Replacement, bias []float32, err error) {
	names := map[string][]string{} // of weights, and of a bias
	for _, t := range s.Manifest.Tensors {
		if t.File == part.WeightFile {
			names[t.Op] = strings.SplitN(t.Name, BiasSeparator, 2)
		}
	}
	return func(op *mnn.Op) (weights *backend.Replacement, bias []float32, err error) {
		list, ok := names[op.Name]
		if n, inline := op.Param.(*mnn.LayerNorm); inline && !ok && n.External == nil {
			return nil, nil, nil // factors that only the graph has
		}
		if !ok {
			return nil, nil, fmt.Errorf("no tensor of the manifest belongs to this op")
		}
		if weights, err = s.floats(list[0], elements(op)); err != nil || len(list) == 1 {
			return weights, nil, err
		}
		offsets, err := s.floats(list[1], biases(op))
		if err != nil {
			return nil, nil, err
		}
		bias, err = offsets.All()
		return weights, bias, err
	}
}

// readElements is how many elements of a tensor a thread reads at a time.
const readElements = 1 << 18

// floats gives the n elements of a tensor of the source.
func (s *Subject) floats(name string, n int64) (*backend.Replacement, error) {
	src, info, err := s.Source.open(name)
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
	return &backend.Replacement{Len: int(n), Read: func(dst []float32, from int) error {
		pieces := (len(dst) + readElements - 1) / readElements
		errs := make([]error, pieces)
		kernel.Parallel(s.Options.Threads, pieces, func(lo, hi int) {
			var raw []byte
			for i := lo; i < hi; i++ {
				at := i * readElements
				raw, errs[i] = src.elements(dst[at:min(at+readElements, len(dst))], from+at, raw)
			}
		})
		return errors.Join(errs...)
	}}, nil
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
