package stage

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/quant"
)

// RecodedLayer is a layer whose matrices were encoded again.
type RecodedLayer struct {
	Layer    int `json:"layer"`
	Matrices int `json:"matrices"`
	// Different are the tensors whose codes and scales are not those of the package.
	Different []string `json:"different"`
}

// NoLayerError is a layer that a model does not have.
type NoLayerError struct{ Layer, Layers int }

func (e *NoLayerError) Error() string {
	return fmt.Sprintf("there is no layer %d: the model has %d, from 0 to %d", e.Layer, e.Layers, e.Layers-1)
}

// Recode encodes the matrices of some layers of the package again and compares them with it, over the codes that the package has for all
// others: a sample of what the package claims, without the work of all layers. The package is that of the run's recipe; a budget is
// not allocated again, matrices are stored as in the package.
func (r *Run) Recode(ctx context.Context, p place.Package, layers []int) ([]RecodedLayer, error) {
	chain, err := r.Quantize.chain()
	if err != nil {
		return nil, err
	}
	sec := r.Recipe.Stages[r.Quantize.String()]
	switch {
	case chain.Needs() == quant.Nothing:
		return nil, sec.Errorf("method", "looks at weights alone, so layers need not be chosen: making the whole package again takes little longer")
	case chain.Tuner != nil:
		return nil, sec.Errorf("method", "%s changes the scales of all layers together, so only the whole package can be made again", chain.Tuner.Name())
	}
	if _, err := r.Execute(ctx, r.Fetch.String()); err != nil {
		return nil, err
	}
	src, err := r.Source(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range layers {
		if i >= len(src.Decoder.Layers) {
			return nil, &NoLayerError{i, len(src.Decoder.Layers)}
		}
	}
	if _, err := r.Execute(ctx, r.Calibrate.String()); err != nil {
		return nil, err
	}
	packaged := map[string]*manifest.Tensor{}
	for i := range p.Manifest.Tensors {
		t := &p.Manifest.Tensors[i]
		packaged[t.Name] = t
	}
	if src, err = r.Source(ctx); err != nil {
		return nil, err
	}
	var a *assemble.Allocation
	if r.Quantize.Budget != nil {
		a = &assemble.Allocation{Specs: map[string]string{}}
		for name, t := range packaged {
			if _, err := quant.ParseSpec(t.Spec); err == nil { // a matrix
				a.Specs[name] = t.Spec
			}
		}
	}
	pl, err := r.Plan(src, a)
	if err != nil {
		return nil, err
	}
	_, windows, _, err := r.text()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.Store.Dir(), "recode-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o, _, err := r.watching(pl, windows, &pipeline.Partial{Dir: dir, Name: "recode"}, "quantize", "calibrated weights")
	if err != nil {
		return nil, err
	}
	items := map[string]*plan.Item{}
	for it := range pl.Plan.Items() {
		items[it.Slot.Weight.Tensor] = it
	}
	stored := func(tensor string) ([]byte, error) { return storedCodes(p.Dir, packaged[tensor], items[tensor]) }
	sums, err := calibrate.Recode(ctx, o, schemeOf(pl, chain, &r.Calibrate), layers, stored)
	if err != nil {
		return nil, err
	}
	var list []RecodedLayer
	for _, i := range layers {
		l := RecodedLayer{Layer: i, Different: []string{}}
		src.Decoder.LayerLinears(i, func(_ string, m *arch.Linear) {
			name := m.Weight.Tensor
			sum, ok := sums[name]
			if !ok || err != nil {
				return
			}
			var b []byte
			if b, err = stored(name); err != nil {
				return
			}
			l.Matrices++
			if digest.Of(b).Hex() != sum {
				l.Different = append(l.Different, name)
			}
		})
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// storedCodes reads the codes and scales of a matrix of the package in dir.
func storedCodes(dir string, t *manifest.Tensor, it *plan.Item) ([]byte, error) {
	if t == nil || it == nil {
		return nil, fmt.Errorf("the package lacks it")
	}
	if t.Size != it.Size() {
		return nil, fmt.Errorf("the package has %d bytes of it, %d are expected", t.Size, it.Size())
	}
	f, err := os.Open(filepath.Join(dir, t.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, it.Codes+it.Alpha)
	_, err = io.ReadFull(io.NewSectionReader(f, t.Offset+it.Header, int64(len(b))), b)
	return b, err
}
