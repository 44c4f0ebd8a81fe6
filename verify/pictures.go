package verify

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/picture"
)

// Vision computes with the source's tower that reads pictures.
type Vision struct {
	// Rows returns the rows of a picture, whose pixels are [3, size, size] and normalised; GridRows those of a picture of height x width
	// patches, for a tower that reads them.
	Rows     func(ctx context.Context, pixels []float32) ([]float32, error)
	GridRows func(ctx context.Context, patches []float32, height, width int) ([]float32, error)
	// Patch is the edge of a patch if views of a picture are read by GridRows, 0 if not.
	Patch int
	// Hidden returns the input of the head for a window whose tokens pad become rows, in order. grids are the heights and widths of the
	// pictures, in rows, if the tower reads patches.
	Hidden func(ctx context.Context, window []int32, pad int32, rows []float32, grids [][2]int) ([]float32, error)
	// Words are the ids that the tokenizer has for what stands for a picture and around it, by their keys in llm_config.json.
	Words map[string]int32
	// Filter is that with which the library resizes pictures, 0 if it is not known.
	Filter picture.Filter
}

// pictures: the tower and the text model together compute from a prompt with two pictures what the source computes, at the source's
// precision up to rounding, and as shipped within the limit of the check kl for text.
type pictures struct{}

func (pictures) String() string { return "pictures" }

func (pictures) Hint(value map[string]float64) string { return shownHint(value, "tower") }

// pictureTokens is the length of a prompt from which on it has only one picture.
const pictureTokens = 1024

func (pictures) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Vision == nil {
		return skip(needsWeights)
	}
	c := s.Package.Config
	if wrong := otherWords(s.Source.Vision.Words, map[string]int32{
		"image_pad": c.ImagePad, "vision_start": c.VisionStart, "vision_end": c.VisionEnd, "global_image": c.GlobalImage,
		"vision_slice_start_id": c.SliceStart, "vision_slice_end_id": c.SliceEnd, "vision_id_start_id": c.NumberStart, "vision_id_end_id": c.NumberEnd,
	}); wrong != "" {
		return fail(nil, "%s", wrong)
	}
	open := func(o runtime.Options) (*runtime.Tower, error) { return runtime.NewTower(s.Package, cpu.Backend{}, o) }
	tower, err := open(runtime.Options{Threads: s.Options.Threads})
	if err != nil {
		return Finding{}, err
	}
	p, err := newPicturePrompt(ctx, s, tower)
	if err != nil {
		return Finding{}, err
	}
	return p.check(ctx, s, medium{
		name: "pictures", reader: "tower", count: len(p.pictures), part: s.Package.Visual(),
		read: func(ctx context.Context, o runtime.Options) ([]runtime.Picture, []float32, error) {
			t, err := open(o)
			if err != nil {
				return nil, nil, err
			}
			return p.shown(ctx, t)
		},
		cost: func(ctx context.Context, value map[string]float64) (string, error) {
			return p.resize(ctx, s, tower, value)
		},
	})
}

// picturePrompt is a prompt with pictures, and what the source makes of it.
type picturePrompt struct {
	shownPrompt
	pictures []seenPicture
	grids    [][2]int // of the rows of pictures, if the tower reads patches
	// hidden and width are the elements of a row of the source and of the package.
	hidden, width int
}

// seenPicture is a picture in the form in which a tower takes it: pixels, or height x width patches.
type seenPicture struct {
	image         *picture.Image // before it was resized, if it was
	values        []float32
	height, width int
	views         *picture.Views // of a tower that reads tiles, instead of values
}

// newPicturePrompt makes a prompt with a wide and a high picture, or squares if the tower takes nothing else.
func newPicturePrompt(ctx context.Context, s *Subject, t *runtime.Tower) (*picturePrompt, error) {
	windows, err := s.windows()
	if err != nil {
		return nil, err
	}
	c := s.Package.Config
	p := &picturePrompt{shownPrompt: shownPrompt{words: windows[0]}, hidden: s.Source.Model.Hidden, width: c.HiddenSize}
	for i := range 2 {
		p.takeWords()
		x, err := s.newSeen(t, i)
		if err != nil {
			return nil, err
		}
		rows, err := x.rows(ctx, s)
		if err != nil {
			return nil, err
		}
		n := len(rows) / (s.Source.Model.Hidden * (1 + s.Source.Model.Deep))
		if i > 0 && len(p.tokens)+n > min(pictureTokens, c.MaxPositions-3*shownWords) {
			break
		}
		p.pictures, p.rows = append(p.pictures, x), append(p.rows, rows...)
		if x.views != nil {
			ids, err := t.Frame(x.views, n/len(x.views.Images))
			if err != nil {
				return nil, err
			}
			p.tokens = append(p.tokens, ids...)
			continue
		}
		if cell := t.Cells().Edge; cell > 0 {
			p.grids = append(p.grids, [2]int{x.height / cell, x.width / cell})
		}
		marked := c.VisionStart >= 0 && c.VisionEnd >= 0
		if marked {
			p.tokens = append(p.tokens, c.VisionStart)
		}
		p.tokens = append(p.tokens, slices.Repeat([]int32{c.ImagePad}, n)...)
		if marked {
			p.tokens = append(p.tokens, c.VisionEnd)
		}
	}
	p.takeWords()
	p.logits, err = p.judged(ctx, s, p.rows)
	return p, err
}

// judged returns the logits of the source for the prompt with rows of pictures.
func (p *picturePrompt) judged(ctx context.Context, s *Subject, rows []float32) (logitRows, error) {
	h, err := s.Source.Vision.Hidden(ctx, p.tokens, s.Package.Config.ImagePad, rows, p.grids)
	if err != nil {
		return nil, err
	}
	return s.sourceLogits(s.Source.Reference, h), nil
}

// newSeen draws a picture in the form in which a tower takes it. A tower that reads patches is given one that need not be resized.
func (s *Subject) newSeen(t *runtime.Tower, number int) (seenPicture, error) {
	c := s.Package.Config
	cells := t.Cells()
	switch {
	case t.Tile() > 0:
		return s.newViews(t, number, s.Source.Vision.Filter)
	case t.Patch() > 0: // views of a picture are made of it as it is
		im := drawn(32, number)
		v, err := t.Cut(im, picture.Size{Height: []int{224, 448}[number], Width: []int{448, 224}[number]})
		return seenPicture{views: v}, err
	}
	if cells.Edge == 0 {
		im := drawn(c.ImageSize, number)
		x, err := s.pixels(im, s.Source.Vision.Filter)
		return seenPicture{image: im, values: x}, err
	}
	edge := cells.Unit()
	im, err := drawn(5*edge, number).Resize(picture.Size{Height: []int{4, 7}[number] * edge, Width: []int{6, 3}[number] * edge})
	if err != nil {
		return seenPicture{}, err
	}
	x, err := im.Patches(picture.Norm{Mean: c.ImageMean, Scale: c.ImageNorm}, cells)
	if err != nil {
		return seenPicture{}, err
	}
	return seenPicture{values: x.Pixels, height: x.Grid.Height, width: x.Grid.Width}, nil
}

// rows are those that the source makes of a picture.
func (x *seenPicture) rows(ctx context.Context, s *Subject) ([]float32, error) {
	v := s.Source.Vision
	if x.views != nil {
		var all []float32
		for _, im := range x.views.Images {
			rows, err := v.view(ctx, s, im)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	if x.height == 0 {
		return v.Rows(ctx, x.values)
	}
	return v.GridRows(ctx, x.values, x.height, x.width)
}

// view returns the rows of a view of a picture.
func (v *Vision) view(ctx context.Context, s *Subject, im *picture.Image) ([]float32, error) {
	if v.Patch == 0 {
		return v.Rows(ctx, s.planes(im))
	}
	x, err := im.Patches(picture.Norm{Mean: s.Package.Config.ImageMean, Scale: s.Package.Config.ImageNorm}, picture.Cells{Patch: v.Patch, Edge: 1, Frames: 1})
	if err != nil {
		return nil, err
	}
	return v.GridRows(ctx, x.Pixels, x.Grid.Height, x.Grid.Width)
}

// shown returns what a tower makes of the pictures.
func (p *picturePrompt) shown(ctx context.Context, t *runtime.Tower) (list []runtime.Picture, rows []float32, err error) {
	for _, x := range p.pictures {
		var seen runtime.Picture
		switch {
		case x.views != nil:
			seen, err = t.Views(ctx, x.views)
		case x.height == 0:
			seen, err = t.Picture(ctx, x.values)
		default:
			seen, err = t.Patches(ctx, x.values, x.height, x.width)
		}
		if err != nil {
			return nil, nil, err
		}
		list, rows = append(list, seen), append(rows, unmarked(seen.Rows, p.width, p.hidden)...)
	}
	return list, rows, nil
}

// unmarked are rows of the package without the columns that the source does not have.
func unmarked(rows []float32, width, hidden int) (out []float32) {
	for row := range slices.Chunk(rows, width) {
		out = append(out, row[:hidden]...)
	}
	return out
}
