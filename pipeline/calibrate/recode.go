package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Recode encodes the matrices of some layers of the text model again, over those that a package has: stored returns the codes and
// scales of any other matrix as they lie in its weights. It returns SHA-256 of the new codes and scales by the name of the tensor, in
// lower-case hex. The work ends after the last of the layers. o.Dir is empty at first.
func Recode(ctx context.Context, o Options, s Scheme, layers []int, stored func(tensor string) ([]byte, error)) (map[string]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := newFinished(o.Dir, o.Name, "")
	if err := f.resume(); err != nil {
		return nil, err
	}
	defer f.close()
	again := map[string]bool{}
	for _, i := range layers {
		o.Decoder.LayerLinears(i, func(_ string, l *arch.Linear) { again[l.Weight.Tensor] = true })
	}
	var failed error
	take := func(w arch.Weight) {
		if failed != nil || again[w.Tensor] || f.Has(w.Tensor) || s.Floats[w.Tensor] {
			return
		}
		spec := s.Specs[w.Tensor]
		layout, err := spec.Layout(w.Rows, w.Cols)
		if err == nil {
			var b []byte
			if b, err = stored(w.Tensor); err == nil && int64(len(b)) != layout.Bytes() {
				err = fmt.Errorf("%d bytes, %d expected: %w", len(b), layout.Bytes(), tensor.ErrCorrupt)
			}
			if err == nil {
				err = f.add(Op{Tensor: w.Tensor, Spec: spec.String()}, b)
			}
		}
		if err != nil {
			failed = fmt.Errorf("%s: %w", w.Tensor, err)
		}
	}
	take(o.Decoder.Embedding)
	o.Decoder.Linears(func(_ string, l *arch.Linear) { take(l.Weight) })
	for _, x := range o.Shown {
		if err := x.linears(o.Source, func(l *arch.Linear) { take(l.Weight) }); err != nil {
			return nil, err
		}
	}
	if failed != nil {
		return nil, failed
	}
	if err := quantize(ctx, o, s, f, slices.Max(layers)+1); err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, op := range f.Ops {
		if again[op.Tensor] {
			sums[op.Tensor] = op.SHA256
		}
	}
	return sums, nil
}
