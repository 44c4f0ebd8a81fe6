package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// CheckInput refuses inputs that engines do not feed, and those that are not fed here if an op of the graph reads them.
func CheckInput(g *mnn.Graph, op *mnn.Op) error {
	switch op.Name {
	case mnn.CornersInput, mnn.WeightsInput:
		for i := range g.Ops {
			if slices.Contains(g.Ops[i].Inputs, op.Outputs[0]) {
				return fmt.Errorf("%s reads it: %w", g.Ops[i].Name, tensor.ErrUnsupported)
			}
		}
		return nil
	case "input_ids", "attention_mask", "position_ids", "logits_index", mnn.PicturesInput, mnn.PatchesInput, mnn.PaddedInput,
		mnn.PlacesInput, mnn.TilesInput, mnn.SizesInput, mnn.FeaturesInput:
		return nil
	case mnn.DeepInput:
		if p := op.Param.(*mnn.Input); len(p.Dims) != 3 || p.Dims[0] < 1 || p.Dims[2] < 1 {
			return fmt.Errorf("%v values: %w", p.Dims, tensor.ErrUnsupported)
		}
		return nil
	}
	return fmt.Errorf("unknown input: %w", tensor.ErrUnsupported)
}

// Features returns the shape of an input of features of sound: [1, features, frames], or [1, frames, features] where the graph says so.
func Features(p *mnn.Input, frames, features int) []int {
	if len(p.Dims) == 3 && p.Dims[1] < 0 {
		return []int{1, frames, features}
	}
	return []int{1, features, frames}
}

// Pictures returns the shape of an input of so many pictures, which must hold n values.
func Pictures(p *mnn.Input, count, n int) ([]int, error) {
	if OfViews(p) {
		patch := int(p.Dims[2])
		if patches := n / (count * 3 * patch * patch); patches > 0 && patches*count*3*patch*patch == n {
			return []int{count, 3, patch, patches * patch}, nil
		}
		return nil, fmt.Errorf("%d values for %d views of shape %v: %w", n, count, p.Dims, tensor.ErrCorrupt)
	}
	shape, rest := make([]int, len(p.Dims)), 1
	for i, d := range p.Dims {
		if shape[i] = int(d); d < 1 && i > 0 || rest > n {
			return nil, fmt.Errorf("pictures of shape %v: %w", p.Dims, tensor.ErrUnsupported)
		}
		if i > 0 {
			rest *= int(d)
		}
	}
	if len(shape) > 0 && shape[0] < 1 { // any number of tiles
		shape[0] = n / rest
	}
	if err := Limited(shape); err != nil {
		return nil, err
	}
	if Count(shape) != n {
		return nil, fmt.Errorf("%d values for pictures of shape %v: %w", n, p.Dims, tensor.ErrCorrupt)
	}
	return shape, nil
}

// OfViews reports whether an input has the patches of views of several sizes side by side, [views, 3, patch, patches*patch].
func OfViews(p *mnn.Input) bool {
	const most = 1 << 14 // pixels
	return len(p.Dims) == 4 && p.Dims[1] == 3 && p.Dims[2] > 0 && p.Dims[2] <= most && p.Dims[3] < 0
}

// Views divides the positions of a call into those of the patches of each view, and the heights and widths of views.
func Views(c *backend.Call) (at, sizes []int32, err error) {
	n := len(c.Positions) - 2*c.Tokens
	if n < c.Tokens || n%c.Tokens != 0 {
		return nil, nil, fmt.Errorf("internal error: %d positions for %d views", len(c.Positions), c.Tokens)
	}
	return c.Positions[:n], c.Positions[n:], nil
}

// Each reports whether an input of positions has those of the patches of each view, [views, patches].
func Each(p *mnn.Input) bool { return len(p.Dims) == 2 && p.Dims[0] < 0 }

// Axes is the number of axes of an input of positions, [axes, tokens], or [1, tokens, axes] for places of patches.
func Axes(p *mnn.Input) int {
	switch len(p.Dims) {
	case 2:
		return max(1, int(p.Dims[0]))
	case 3:
		return max(1, int(p.Dims[2]))
	}
	return 1
}

// EveryPair reports whether an input is the mask of a tower, [1, tokens, tokens], by which everything is seen.
func EveryPair(p *mnn.Input) bool { return len(p.Dims) == 3 }
