package calibrate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const foldingsFile = "foldings.json"

// rewrite returns the model to encode: the source, rotated or with folded scales as the chain requires.
func rewrite(ctx context.Context, o Options, s Scheme, f *Finished) (tensor.Source, error) {
	if s.Chain.Rotator == nil && len(s.Chain.Folders) == 0 {
		return o.Source, nil
	}
	if f.rewritten(s.Chain.Rotator == nil) {
		return f.Source(o.Source) // an earlier run got further than this
	}
	var overlay *Overlay
	var err error
	if s.Chain.Rotator != nil {
		overlay, err = Rotate(ctx, o.Decoder, o.Source, s.Chain.Rotator, o.Dir, o.Threads)
	} else {
		overlay, err = fold(ctx, o, s, f)
	}
	if err != nil {
		return nil, err
	}
	return overlay, f.setOverlay(overlay)
}

// errStopped ends a walk whose remaining results are not needed.
var errStopped = errors.New("stopped")

// fold runs the foldings over walks of the float model, and of its towers and ears.
func fold(ctx context.Context, o Options, s Scheme, f *Finished) (*Overlay, error) {
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	if err != nil {
		return nil, err
	}
	of, err := o.floatRows(ctx, o.Source)
	defer func() { closeShown(of) }()
	if err != nil {
		return nil, err
	}
	w := o.walk(m)
	w.prompted(o.Prompts, o.Skip, of)
	overlay, list, err := foldings(ctx, o.Decoder, &o, &s, w, w.run)
	if err != nil {
		return nil, err
	}
	for _, shown := range o.Shown {
		x, err := o.show(shown, o.Source, 0)
		if err != nil {
			return nil, err
		}
		more, sites, err := foldings(ctx, shown.layers(), &o, &s, x.walk, x.run)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shown.Name, err)
		}
		maps.Copy(overlay.changes, more.changes)
		for _, site := range sites {
			site.Site = shown.Name + "." + site.Site
			list = append(list, site)
		}
	}
	for _, x := range list {
		zerolog.Ctx(ctx).Debug().Str("site", x.Site).Str("method", x.Method).Float64("gain", x.Gain()).Float32("least", x.Least).Float32("most", x.Most).Msg("folded")
	}
	return overlay, f.setFoldings(list)
}

// foldings runs the foldings over a walk of the layers of d, which run begins.
func foldings(ctx context.Context, d *arch.Decoder, o *Options, s *Scheme, w *walk, run func(context.Context) error) (*Overlay, []Folding, error) {
	needed := map[string]bool{}
	for _, site := range Sites(d) {
		if slices.ContainsFunc(site.Consumers, func(w arch.Weight) bool { return s.coded(w.Tensor) }) {
			needed[site.Consumers[0].Tensor] = true
		}
	}
	w.passes = func(layer int) bool { return s.passes(d, layer) }
	w.wanted = func(in *input) bool {
		return slices.ContainsFunc(in.linears, func(l *forward.Linear) bool { return needed[l.Weight.Tensor] })
	}
	var failed error
	next, stop := iter.Pull2(func(yield func(*input, *quant.Stats) bool) {
		w.visit = func(_ context.Context, in *input, st *quant.Stats) error {
			if !yield(in, st) {
				return errStopped
			}
			return nil
		}
		if err := run(ctx); err != nil && !errors.Is(err, errStopped) {
			failed = err
		}
	})
	defer stop()
	stats := func(tensor string) (*quant.Stats, error) {
		for {
			in, st, ok := next()
			if !ok {
				return nil, errors.Join(failed, fmt.Errorf("internal error: nothing reads what %s reads", tensor))
			}
			for _, l := range in.linears {
				if l.Weight.Tensor == tensor {
					return st, nil
				}
			}
		}
	}
	spec := func(tensor string) quant.Spec {
		if !s.coded(tensor) {
			return quant.Half // no error that a folding could lessen
		}
		return s.Specs[tensor]
	}
	return Fold(ctx, d, o.Source, s.Chain, spec, stats, o.Threads)
}
