package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Visual returns the part that reads pictures, or nil.
func (p *Package) Visual() *Part {
	if i := slices.IndexFunc(p.Parts[1:], func(x *Part) bool { return x.Name == mnn.VisualPart }); i >= 0 && p.Config.Visual {
		return p.Parts[1+i]
	}
	return nil
}

// Tower turns pictures into rows that take the place of token embeddings. It is not safe for concurrent use.
type Tower struct {
	pkg   *Package
	exe   backend.Executable
	state backend.State
}

// NewTower compiles the part of a package that reads pictures.
func NewTower(p *Package, b backend.Backend, o Options) (*Tower, error) {
	part := p.Visual()
	if part == nil {
		return nil, fmt.Errorf("the package has no part that reads pictures: %w", tensor.ErrUnsupported)
	}
	exe, err := compile(p, part, b, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part.GraphFile, err)
	}
	return &Tower{pkg: p, exe: exe, state: exe.NewState()}, nil
}

// Rows returns the rows [rows, hidden] of a picture. pixels are [3, ImageSize, ImageSize], normalised.
func (t *Tower) Rows(ctx context.Context, pixels []float32) ([]float32, error) {
	t.state.Reset()
	rows, err := t.exe.Run(ctx, []backend.State{t.state}, backend.Call{Embeddings: pixels, Tokens: 1, All: true})
	if err != nil {
		return nil, err
	}
	if h := t.pkg.Config.HiddenSize; len(rows) == 0 || len(rows)%h != 0 {
		return nil, fmt.Errorf("a picture becomes %d values, not rows of %d: %w", len(rows), h, tensor.ErrCorrupt)
	}
	return slices.Clone(rows), nil
}
