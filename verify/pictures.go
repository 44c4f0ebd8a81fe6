package verify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
)

// Vision computes with the source's tower that reads pictures.
type Vision struct {
	// Rows returns the rows of a picture, whose pixels are [3, size, size] and normalised; GridRows those of a picture of height x width
	// patches, for a tower that reads them.
	Rows     func(ctx context.Context, pixels []float32) ([]float32, error)
	GridRows func(ctx context.Context, patches []float32, height, width int) ([]float32, error)
	// Hidden returns the input of the head for a window whose tokens pad become rows, in order. grids are the heights and widths of the
	// pictures, in rows, if the tower reads patches.
	Hidden func(ctx context.Context, window []int32, pad int32, rows []float32, grids [][2]int) ([]float32, error)
	// Filter is that with which the library resizes pictures, 0 if it is not known.
	Filter picture.Filter
}

// pictures: the tower and the text model together compute from a prompt with two pictures what the source computes, at the source's
// precision up to rounding, and as shipped within the limit of the check kl for text.
type pictures struct{}

func (pictures) String() string { return "pictures" }

func (pictures) Hint(value map[string]float64) string {
	if value["rows"] > maxRowError || value["kl_graph"] > maxGraphKL {
		return ours
	}
	return closer(value["kl"], value["kl_float"], "verify.kl.max") + "; an override that matches the tensors of the tower gives it more bits"
}

const (
	// maxRowError is the largest distance of rows of the packaged tower at the source's precision from the source's, relative to their
	// length. Rounding causes about 1e-6.
	maxRowError = 1e-4
	// pictureWords is the number of tokens before, between and after pictures.
	pictureWords = 8
	// pictureTokens is the length of a prompt from which on it has only one picture.
	pictureTokens = 1024
)

func (pictures) Check(ctx context.Context, s *Subject) (Finding, error) {
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Vision == nil {
		return skip(needsWeights)
	}
	part := s.Package.Visual()
	tower, err := runtime.NewTower(s.Package, cpu.Backend{}, runtime.Options{Mode: backend.Float, Threads: s.Options.Threads, Replace: s.replace(part)})
	if err != nil {
		return Finding{}, err
	}
	p, err := newPicturePrompt(ctx, s, tower)
	if err != nil {
		return Finding{}, err
	}
	seen, rows, err := p.shown(ctx, tower)
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{"rows": distanceOf(p.rows, rows), "pictures": float64(len(p.pictures)), "tokens": float64(len(p.tokens))}
	if !(value["rows"] <= maxRowError) {
		return fail(value, "%s at the source's precision makes rows of pictures that differ from the source's by %.2g of their length", part.GraphFile, value["rows"])
	}
	sess, err := s.sourceSession(s.Package)
	if err != nil {
		return Finding{}, err
	}
	if value["kl_graph"], err = p.divergence(ctx, s, sess, seen); err != nil {
		return Finding{}, err
	}
	if !(value["kl_graph"] <= maxGraphKL) {
		return fail(value, "KL %.2g of the graphs at the source's precision on a prompt with pictures", value["kl_graph"])
	}
	if value["kl_float"], value["rows_float"], err = p.shipped(ctx, s, backend.Float); err != nil {
		return Finding{}, err
	}
	if value["kl"], value["rows_int8"], err = p.shipped(ctx, s, backend.Int8); err != nil {
		return Finding{}, err
	}
	resize, err := p.resize(ctx, s, tower, value)
	if err != nil {
		return Finding{}, err
	}
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	text, _ := e.Float.KL.Mean() // what the weights cost on text, which other checks have judged
	return atMost(value["kl"], s.Options.Checks.KL.limit(s, text), "nats", value,
		"KL %.4g nats (weights alone %.4g, graphs %.2g) on a prompt with %d pictures; rows of the tower differ by %.2g of their length (weights alone %.2g)%s",
		value["kl"], value["kl_float"], value["kl_graph"], len(p.pictures), value["rows_int8"], value["rows_float"], resize)
}

// picturePrompt is a prompt with pictures, and what the source makes of it.
type picturePrompt struct {
	tokens   []int32
	pictures []seenPicture
	grids    [][2]int  // of the rows of pictures, if the tower reads patches
	rows     []float32 // of all pictures
	// hidden and width are the elements of a row of the source and of the package.
	hidden, width int
	logits        []float32
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
	c, words := s.Package.Config, windows[0]
	p := &picturePrompt{hidden: s.Source.Model.Hidden, width: s.Package.Config.HiddenSize}
	take := func() {
		n := min(pictureWords, len(words))
		p.tokens, words = append(p.tokens, words[:n]...), words[n:]
	}
	for i := range 2 {
		take()
		x, err := s.newSeen(t, i)
		if err != nil {
			return nil, err
		}
		rows, err := x.rows(ctx, s)
		if err != nil {
			return nil, err
		}
		n := len(rows) / s.Source.Model.Hidden
		if i > 0 && len(p.tokens)+n > min(pictureTokens, c.MaxPositions-3*pictureWords) {
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
		if _, cell := t.Grid(); cell > 0 {
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
	take()
	p.logits, err = p.judged(ctx, s, p.rows)
	return p, err
}

// judged returns the logits of the source for the prompt with rows of pictures.
func (p *picturePrompt) judged(ctx context.Context, s *Subject, rows []float32) ([]float32, error) {
	h, err := s.Source.Vision.Hidden(ctx, p.tokens, s.Package.Config.ImagePad, rows, p.grids)
	if err != nil {
		return nil, err
	}
	logits := make([]float32, len(p.tokens)*s.Source.Model.Vocab)
	return logits, s.Source.Reference.Logits(ctx, logits, h)
}

// newSeen draws a picture in the form in which a tower takes it. A tower that reads patches is given one that need not be resized.
func (s *Subject) newSeen(t *runtime.Tower, number int) (seenPicture, error) {
	c := s.Package.Config
	patch, cell := t.Grid()
	if t.Tile() > 0 {
		return s.newViews(t, number, s.Source.Vision.Filter)
	}
	if cell == 0 {
		im := drawn(c.ImageSize, number)
		x, err := s.pixels(im, s.Source.Vision.Filter)
		return seenPicture{image: im, values: x}, err
	}
	edge := patch * cell
	im, err := drawn(5*edge, number).Resize(picture.Size{Height: []int{4, 7}[number] * edge, Width: []int{6, 3}[number] * edge})
	if err != nil {
		return seenPicture{}, err
	}
	x, err := im.Patches(picture.Norm{Mean: c.ImageMean, Scale: c.ImageNorm}, patch)
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
			rows, err := v.Rows(ctx, s.planes(im))
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
		list, rows = append(list, seen), append(rows, p.unmarked(seen.Rows)...)
	}
	if len(rows) != len(p.rows) {
		return nil, nil, fmt.Errorf("the tower makes %d values of pictures, the source %d", len(rows), len(p.rows))
	}
	return list, rows, nil
}

// unmarked are rows of the package without the columns that the source does not have.
func (p *picturePrompt) unmarked(rows []float32) (out []float32) {
	for row := range slices.Chunk(rows, p.width) {
		out = append(out, row[:p.hidden]...)
	}
	return out
}

// divergence is that of a session that is shown rows.
func (p *picturePrompt) divergence(ctx context.Context, s *Subject, sess *runtime.Session, seen []runtime.Picture) (float64, error) {
	sess.Reset()
	sess.Show(seen...)
	got, err := sess.Forward(ctx, p.tokens)
	if err != nil {
		return 0, err
	}
	if len(got) != len(p.logits) {
		return 0, fmt.Errorf("the graph computes %d logits for %d tokens, the source %d", len(got), len(p.tokens), len(p.logits))
	}
	kl, _ := compareLogits(p.logits, got, s.Source.Model.Vocab, s.Options.Threads)
	return kl, nil
}

// shipped returns the divergence of the package as it is, and the distance of its rows.
func (p *picturePrompt) shipped(ctx context.Context, s *Subject, mode backend.Mode) (kl, distance float64, err error) {
	tower, err := runtime.NewTower(s.Package, cpu.Backend{}, runtime.Options{
		Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads, CacheBytes: s.Options.Memory / sessionShare,
	})
	if err != nil {
		return 0, 0, err
	}
	seen, rows, err := p.shown(ctx, tower)
	if err != nil {
		return 0, 0, err
	}
	sess, err := s.session(mode)
	if err != nil {
		return 0, 0, err
	}
	kl, err = p.divergence(ctx, s, sess, seen)
	return kl, distanceOf(p.rows, rows), err
}

// distanceOf is the length of the difference from want, relative to the length of want.
func distanceOf(want, got []float32) float64 {
	var d, n float64
	for i, w := range want {
		e := float64(got[i]) - float64(w)
		d, n = d+e*e, n+float64(w)*float64(w)
	}
	return math.Sqrt(d / n)
}
