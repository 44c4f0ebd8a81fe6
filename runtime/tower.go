package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Visual returns the part that reads pictures, or nil.
func (p *Package) Visual() *Part { return p.part(mnn.VisualPart, p.Config.Visual) }

// Audio returns the part that reads sound, or nil.
func (p *Package) Audio() *Part { return p.part(mnn.AudioPart, p.Config.Audio) }

// part returns a part by name if the configuration says that it is used, or nil.
func (p *Package) part(name string, used bool) *Part {
	if i := slices.IndexFunc(p.Parts[1:], func(x *Part) bool { return x.Name == name }); i >= 0 && used {
		return p.Parts[1+i]
	}
	return nil
}

// Tower turns pictures into rows that take the place of token embeddings. It is not safe for concurrent use.
type Tower struct {
	pkg   *Package
	exe   backend.Executable
	state backend.State
	patch int // edge of a patch in pixels, if the tower reads patches
	deep  int // after how many layers of the text model more is added to a row
	tile  int // edge of a tile in pixels, if the tower reads tiles
	// together: the tiles of a picture are computed in one call.
	together bool
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
	t := &Tower{pkg: p, exe: exe, state: exe.NewState()}
	if slices.Contains(part.Graph.Outputs, mnn.DeepRows) {
		if t.deep = p.Text().deep(); t.deep == 0 {
			return nil, fmt.Errorf("%s makes rows to add after layers, and the text model takes none: %w", part.GraphFile, tensor.ErrCorrupt)
		}
	}
	switch {
	case part.reads(mnn.CornersInput):
		t.patch = 16
	case part.reads(mnn.PatchesInput):
		t.patch = 14
	case part.reads(mnn.TilesInput):
		t.tile, t.together = p.Config.ImageSizeUnit, o.Mode == backend.Int8
	}
	return t, nil
}

// Grid is the edge of a patch in pixels, and of a cell in patches, if the tower reads the patches of pictures of any size; otherwise both
// are 0.
func (t *Tower) Grid() (patch, cell int) {
	if t.patch > 0 {
		return t.patch, gridCell
	}
	return 0, 0
}

const (
	// gridCell is the edge of a cell, in patches.
	gridCell = 2
	// gridEdge is how many patches an edge has at most: as many as the rotary tables of packages have.
	gridEdge = 1 << 10
	// gridMost bounds the patches of a picture here, because attention looks at all pairs: their mask takes 1 GiB.
	gridMost = 1 << 14
)

// gridSize returns what the engine makes of a size.
func (t *Tower) gridSize(s picture.Size) (picture.Size, error) {
	s, err := s.Round(t.patch * gridCell)
	if h, w := s.Height/t.patch, s.Width/t.patch; err == nil && (max(h, w) > gridEdge || h*w > gridMost) {
		err = fmt.Errorf("%v are %d x %d patches, more than %d an edge or %d in all; give a smaller size, as in <img><hw>448,672</hw>FILE</img>: %w",
			s, h, w, gridEdge, gridMost, tensor.ErrUnsupported)
	}
	return s, err
}

// Picture reads a picture. pixels are [3, ImageSize, ImageSize], normalised.
func (t *Tower) Picture(ctx context.Context, pixels []float32) (Picture, error) {
	rows, err := t.run(ctx, backend.Call{Embeddings: pixels, Tokens: 1, All: true})
	return newPicture(rows, 1, len(rows)/t.pkg.Config.HiddenSize), err
}

// Patches reads a picture of height x width patches, which are [patches, 2*3*patch*patch] in the order of cells: two frames of
// three channels.
func (t *Tower) Patches(ctx context.Context, patches []float32, height, width int) (Picture, error) {
	n := height * width
	if n < 1 || len(patches) != n*2*3*t.patch*t.patch || height%gridCell != 0 || width%gridCell != 0 {
		return Picture{}, fmt.Errorf("internal error: %d values for %d x %d patches", len(patches), height, width)
	}
	at := make([]int32, 0, 2*n)
	for axis := range 2 {
		for i := range n {
			cell, within, wide := i/(gridCell*gridCell), i%(gridCell*gridCell), width/gridCell
			at = append(at, int32([]int{cell/wide*gridCell + within/gridCell, cell%wide*gridCell + within%gridCell}[axis]))
		}
	}
	rows, err := t.run(ctx, backend.Call{Embeddings: patches, Tokens: n, All: true, Positions: at})
	if n /= gridCell * gridCell; err == nil && len(rows) != n*(1+t.deep)*t.pkg.Config.HiddenSize {
		err = fmt.Errorf("%d x %d patches become %d values: %w", height, width, len(rows), tensor.ErrCorrupt)
	}
	if err == nil && t.deep > 0 {
		rows = sideBySide(rows, n, t.pkg.Config.HiddenSize)
	}
	return newPicture(rows, height/gridCell, width/gridCell), err
}

// deep returns after how many layers the graph adds more to rows of pictures.
func (p *Part) deep() int {
	for i := range p.Graph.Ops {
		if in, ok := p.Graph.Ops[i].Param.(*mnn.Input); ok && p.Graph.Ops[i].Name == mnn.DeepInput && len(in.Dims) > 0 {
			return int(in.Dims[0])
		}
	}
	return 0
}

// sideBySide puts what is added to rows, n in each of the slices that follow them, next to the rows.
func sideBySide(x []float32, n, width int) []float32 {
	out := make([]float32, 0, len(x))
	for i := range n {
		for slice := 0; slice < len(x); slice += n * width {
			out = append(out, x[slice+i*width:slice+(i+1)*width]...)
		}
	}
	return out
}

func (t *Tower) run(ctx context.Context, c backend.Call) ([]float32, error) {
	t.state.Reset()
	rows, err := t.exe.Run(ctx, []backend.State{t.state}, c)
	if err != nil {
		return nil, err
	}
	if h := t.pkg.Config.HiddenSize; len(rows) == 0 || len(rows)%h != 0 {
		return nil, fmt.Errorf("a picture becomes %d values, not rows of %d: %w", len(rows), h, tensor.ErrCorrupt)
	}
	return slices.Clone(rows), nil
}
