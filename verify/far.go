package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

const (
	// farTokens are fed after the largest window, and the last farRows of them are compared.
	farTokens, farRows = 64, 32
	// farthest is the longest window that is checked: the work per token grows with it.
	farthest = 8192
)

// far is a part of a package that is cheap enough to run past its windows, chunks and the switch of its rotary
// frequencies: one layer of each kind, between embedding and head.
type far struct {
	layers []int
	pkg    *runtime.Package
	tokens []int32
	// The source's values at the last farRows tokens: states after the layers, and what logits are made of.
	states [][]float32
	logits logitRows
}

// farPart returns the part and the source's values, computed once for all checks. It returns nil without a reason if no
// feature of the model begins after the first tokens, which have already been compared, and nil with one if the part cannot
// be run.
func (s *Subject) farPart(ctx context.Context, compared int) (p *far, reason string, err error) {
	if s.parts == nil {
		p, reason, err := s.newFar(ctx, compared)
		if err != nil {
			return nil, "", err
		}
		s.parts = &parts{p, reason}
	}
	return s.parts.far, s.parts.reason, nil
}

// parts caches the result of farPart.
type parts struct {
	far    *far
	reason string
}

func (s *Subject) newFar(ctx context.Context, compared int) (p *far, reason string, err error) {
	d := &s.Source.Model
	most := d.MaxPositions
	if n := s.Package.Config.MaxPositions; n > 0 {
		most = min(most, n)
	}
	reach, beyond := 0, 0
	for _, at := range d.Bounds {
		switch {
		case at >= most: // no position lies after it
		case at > farthest:
			beyond = at
		default:
			reach = max(reach, at)
		}
	}
	if beyond > 0 {
		reason = fmt.Sprintf("positions after %d are not checked", beyond)
	}
	n := min(reach+farTokens, most)
	if reach == 0 || n <= compared {
		return nil, reason, nil
	}
	p = &far{layers: d.Kinds, tokens: make([]int32, n)}
	for i := range p.tokens { // any distinct tokens work
		p.tokens[i] = int32(uint64(i+1) * 0x9e3779b97f4a7c15 >> 33 % uint64(d.Vocab))
	}
	model, err := s.Source.Part(p.layers)
	if err != nil {
		return nil, "", err
	}
	if model.Fit([][]int32{p.tokens}) == 0 {
		return nil, fmt.Sprintf("%d tokens do not fit the memory limit, so positions after %d are not checked", n, reach), nil
	}
	text := *s.Package.Text()
	if text.Graph, err = cut(text.Graph, p.layers, d.Layers); err != nil {
		return nil, "", err
	}
	pkg := *s.Package
	pkg.Parts = []*runtime.Part{&text}
	p.pkg = &pkg
	if err := model.Layers(ctx, [][]int32{p.tokens}, func(_ int, h []float32) error {
		p.states = append(p.states, slices.Clone(p.tail(h)))
		return nil
	}); err != nil {
		return nil, "", err
	}
	last := slices.Clone(p.states[len(p.states)-1])
	if err := model.Norm(last); err != nil {
		return nil, "", err
	}
	p.logits = s.sourceLogits(model, last)
	return p, reason, nil
}

// tail returns the elements of v, which has equally many for every token, that belong to the last farRows.
func (p *far) tail(v []float32) []float32 {
	return v[len(v)/len(p.tokens)*(len(p.tokens)-farRows):]
}

// cut keeps the listed layers of a graph of n layers; the first layer must be listed. Each reads the output of the one
// before it in the list, and the head reads the output of the last.
func cut(g *mnn.Graph, layers []int, n int) (*mnn.Graph, error) {
	outputs := make([]int32, n)
	for i := range outputs {
		at := slices.IndexFunc(g.Ops, func(o mnn.Op) bool { return o.Name == mnn.LayerOutput(i) })
		if at < 0 || len(g.Ops[at].Outputs) != 1 {
			return nil, fmt.Errorf("layer %d: the graph has no op %q", i, mnn.LayerOutput(i))
		}
		outputs[i] = g.Ops[at].Outputs[0]
	}
	instead := map[int32]int32{outputs[n-1]: outputs[layers[len(layers)-1]]}
	for i, l := range layers[1:] {
		instead[outputs[l-1]] = outputs[layers[i]]
	}
	c := *g
	c.Ops = slices.Clone(g.Ops)
	for i := range c.Ops {
		in := slices.Clone(c.Ops[i].Inputs)
		for j, t := range in {
			if to, ok := instead[t]; ok {
				in[j] = to
			}
		}
		c.Ops[i].Inputs = in
	}
	return &c, nil
}

// graphFar adds to f the result of the graph check after the first tokens.
func (s *Subject) graphFar(ctx context.Context, compared int, f Finding) (Finding, error) {
	p, reason, err := s.farPart(ctx, compared)
	if err != nil {
		return fail(f.Value, "%v", err)
	}
	if p == nil {
		return f.and(reason), nil
	}
	sess, err := s.sourceSession(p.pkg)
	if err != nil {
		return Finding{}, err
	}
	n := len(p.tokens)
	if err := sess.Advance(ctx, [][]int32{p.tokens}); err != nil {
		return Finding{}, err
	}
	kl, _, err := s.compareLogits(ctx, farRows, p.logits, func(ctx context.Context, from, to int) ([]float32, error) {
		return sess.Logits(ctx, n-farRows+from, n-farRows+to)
	})
	if errors.As(err, new(*widthError)) {
		return fail(f.Value, "%v", err)
	}
	if err != nil {
		return Finding{}, err
	}
	f.Value["kl_far"], f.Value["far"] = kl, float64(n)
	if !(kl <= maxGraphKL) {
		return fail(f.Value, "KL %.2g of layers %v alone at the source's precision from the source, over the last %d of %d tokens: "+
			"a window, a chunk or rotary frequencies differ there", kl, p.layers, farRows, n)
	}
	return f.and(fmt.Sprintf("KL %.2g of layers %v alone after %d tokens", kl, p.layers, n-farRows)).and(reason), nil
}

// layersFar adds to f the result of the layers check after the first tokens.
func (s *Subject) layersFar(ctx context.Context, compared int, limit float64, f Finding) (Finding, error) {
	p, reason, err := s.farPart(ctx, compared)
	if err != nil {
		return fail(f.Value, "%v", err)
	}
	if p == nil {
		return f.and(reason), nil
	}
	sess, err := runtime.NewSession(p.pkg, cpu.Backend{}, runtime.Options{
		Mode: backend.Float, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / sessionShare, ExpertBytes: max(1, s.Options.Memory/expertShare),
	})
	if err != nil {
		return Finding{}, err
	}
	got := make([][]float32, len(p.layers))
	sess.Observe = func(op *mnn.Op, _ int, _ []int, v []float32) {
		for i, l := range p.layers {
			if op.Name == mnn.LayerOutput(l) {
				got[i] = slices.Clone(p.tail(v))
			}
		}
	}
	if err := sess.Advance(ctx, [][]int32{p.tokens}); err != nil {
		return Finding{}, err
	}
	worst, worstAt := 0.0, 0
	for i, want := range p.states {
		if len(got[i]) != len(want) {
			return fail(f.Value, "layer %d: the graph has no op %q with %d numbers for %d tokens", p.layers[i], mnn.LayerOutput(p.layers[i]), len(want), farRows)
		}
		if e := relativeError(want, got[i]); !(e <= worst) {
			worst, worstAt = e, p.layers[i]
		}
	}
	f.Value["worst_far"] = worst
	if !(worst <= limit) {
		return fail(f.Value, "layer %d is bad after %d tokens: relative error %.3g of its output, limit %.3g", worstAt, len(p.tokens)-farRows, worst, limit)
	}
	return f.and(fmt.Sprintf("%.3g after %d tokens", worst, len(p.tokens)-farRows)).and(reason), nil
}

// and appends text to the detail of f.
func (f Finding) and(text string) Finding {
	if text != "" {
		f.Detail += "; " + text
	}
	return f
}
