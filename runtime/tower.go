package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
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
	// cells are those of a tower that reads patches.
	cells picture.Cells
	// padded is how many patches the tower takes if it always takes as many.
	padded int
	deep   int // after how many layers of the text model more is added to a row
	tile   int // edge of a tile in pixels, if the tower reads tiles
	patch  int // edge of a patch in pixels, if the tower reads an overview and slices
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
	case part.reads(mnn.PaddedInput):
		t.cells = picture.Cells{Patch: 16, Edge: 3, Frames: 1}
		if t.padded = part.padded(); t.padded != paddedPatches {
			return nil, fmt.Errorf("%s takes %d patches, and engines give %d: %w", part.GraphFile, t.padded, paddedPatches, tensor.ErrUnsupported)
		}
	case part.reads(mnn.CornersInput):
		t.cells = picture.QwenCells(16)
	case part.reads(mnn.PatchesInput):
		t.cells = picture.QwenCells(14)
	case part.reads(mnn.SizesInput):
		t.patch = p.Config.ImageSizeUnit
	case part.reads(mnn.TilesInput):
		t.tile, t.together = p.Config.ImageSizeUnit, o.Mode == backend.Int8
	}
	return t, nil
}

// Cells are how the tower divides pictures if it reads the patches of pictures of any size; otherwise all numbers are 0.
func (t *Tower) Cells() picture.Cells { return t.cells }

const (
	// paddedPatches is how many patches engines give to towers that always take as many.
	paddedPatches = 2520
	// gridEdge is how many patches an edge has at most: as many as the rotary tables of packages have.
	gridEdge = 1 << 10
	// gridMost bounds the patches of a picture here, because attention looks at all pairs: their mask takes 1 GiB.
	gridMost = 1 << 14
)

// gridSize returns what the engine makes of a size.
func (t *Tower) gridSize(s picture.Size) (picture.Size, error) {
	s, err := s.Round(t.cells.Unit())
	if h, w := s.Height/t.cells.Patch, s.Width/t.cells.Patch; err == nil && (max(h, w) > gridEdge || h*w > gridMost) {
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

// Patches reads a picture of height x width patches, which are [patches, 3*frames*patch*patch] in the order of cells.
func (t *Tower) Patches(ctx context.Context, patches []float32, height, width int) (Picture, error) {
	n, edge := height*width, t.cells.Edge
	if n < 1 || len(patches) != n*3*t.cells.Frames*t.cells.Patch*t.cells.Patch || height%edge != 0 || width%edge != 0 {
		return Picture{}, fmt.Errorf("internal error: %d values for %d x %d patches", len(patches), height, width)
	}
	at := make([]int32, 0, 2*n)
	for axis := range 2 {
		for i := range n {
			cell, within, wide := i/(edge*edge), i%(edge*edge), width/edge
			at = append(at, int32([]int{cell/wide*edge + within/edge, cell%wide*edge + within%edge}[axis]))
		}
	}
	if t.padded > 0 {
		rows, err := t.runPadded(ctx, patches, at, width)
		return newPicture(rows, height/edge, width/edge), err
	}
	rows, err := t.run(ctx, backend.Call{Embeddings: patches, Tokens: n, All: true, Positions: at})
	if n /= edge * edge; err == nil && len(rows) != n*(1+t.deep)*t.pkg.Config.HiddenSize {
		err = fmt.Errorf("%d x %d patches become %d values: %w", height, width, len(rows), tensor.ErrCorrupt)
	}
	if err == nil && t.deep > 0 {
		rows = sideBySide(rows, n, t.pkg.Config.HiddenSize)
	}
	return newPicture(rows, height/edge, width/edge), err
}

// runPadded reads patches whose rows and then columns are at, of a picture so many patches wide, as the engine gives them: row by row, the
// channels of a pixel next to each other, and after them such of zeros. It returns the rows of the picture, divided as the engine does.
func (t *Tower) runPadded(ctx context.Context, patches []float32, at []int32, width int) ([]float32, error) {
	n, area := len(at)/2, t.cells.Patch*t.cells.Patch
	if n > t.padded {
		return nil, fmt.Errorf("a picture of %d patches, the tower takes %d: %w", n, t.padded, tensor.ErrUnsupported)
	}
	values, places := make([]float32, t.padded*3*area), make([]int32, 2*t.padded)
	for i := 2 * n; i < len(places); i++ {
		places[i] = -1
	}
	for i := range n {
		row, column := int(at[i]), int(at[n+i])
		to := row*width + column
		places[2*to], places[2*to+1] = int32(column), int32(row)
		for k, v := range patches[i*3*area : (i+1)*3*area] {
			values[to*3*area+k%area*3+k/area] = v
		}
	}
	rows, err := t.run(ctx, backend.Call{Embeddings: values, Tokens: t.padded, All: true, Positions: places})
	if err != nil {
		return nil, err
	}
	used := n / (t.cells.Edge * t.cells.Edge) * t.pkg.Config.HiddenSize
	if len(rows) < used {
		return nil, fmt.Errorf("%d patches become %d values: %w", n, len(rows), tensor.ErrCorrupt)
	}
	const factor = 1 / float32(mnn.PaddedDivisor)
	kernel.Scale(rows, rows, factor)
	return rows[:used], nil
}

// padded returns how many patches the graph takes.
func (p *Part) padded() int {
	for i := range p.Graph.Ops {
		if in, ok := p.Graph.Ops[i].Param.(*mnn.Input); ok && p.Graph.Ops[i].Name == mnn.PaddedInput && len(in.Dims) > 1 {
			return int(in.Dims[1])
		}
	}
	return 0
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
