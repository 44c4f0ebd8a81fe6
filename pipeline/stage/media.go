package stage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/invopop/jsonschema"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// CalibrationMedia is a source of pictures or clips.
type CalibrationMedia struct{ corpus.Media }

// UnmarshalJSON reads a path or a map.
func (m *CalibrationMedia) UnmarshalJSON(b []byte) error {
	*m = CalibrationMedia{}
	if json.Unmarshal(b, &m.Path) == nil {
		return nil
	}
	return jsondoc.DecodeStrict(b, &m.Media)
}

// JSONSchema describes the forms.
func (CalibrationMedia) JSONSchema() *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	s := r.Reflect(corpus.Media{})
	s.Version, s.Required = "", []string{"path"}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Description: "The path of a folder or of a Parquet file."}, s}}
}

// medium is an option that names pictures or clips, at its key.
type medium struct {
	key  string
	kind corpus.Kind
	of   *CalibrationMedia // or nil
}

func (c *Calibrate) media() []medium {
	return []medium{{"pictures", corpus.Pictures, c.Pictures}, {"sounds", corpus.Sounds, c.Sounds}}
}

// shows reports whether the recipe names pictures or clips.
func (c *Calibrate) shows() bool { return c.Pictures != nil || c.Sounds != nil }

// checkMedia rejects media that cannot be.
func (c *Calibrate) checkMedia(sec recipes.Section) error {
	for _, m := range c.media() {
		if m.of == nil {
			continue
		}
		if err := m.of.Validate(); err != nil {
			return sec.Errorf(m.key, "%v", err)
		}
	}
	return nil
}

// checkShown rejects media that a model cannot be shown.
func (c *Calibrate) checkShown(sec recipes.Section, src *source.Source) error {
	switch {
	case c.Pictures != nil && len(src.Model.Towers) == 0:
		return sec.Errorf("pictures", "the model has no tower that reads pictures")
	case c.Sounds != nil && src.Model.Ear == nil:
		return sec.Errorf("sounds", "the model has no part that reads sound")
	}
	return nil
}

// notice logs which towers are rounded to nearest, because the recipe names nothing for them.
func (c *Calibrate) notice(ctx context.Context, src *source.Source) {
	if len(src.Model.Towers) > 0 && c.Pictures == nil {
		zerolog.Ctx(ctx).Warn().Msg("the tower that reads pictures is rounded to nearest, because calibrate.pictures names none")
	}
	if src.Model.Ear != nil && c.Sounds == nil {
		zerolog.Ctx(ctx).Warn().Msg("the part that reads sound is rounded to nearest, because calibrate.sounds names none")
	}
}

// mediaSums are the digests of what the recipe names.
func (c *Calibrate) mediaSums(ctx context.Context, r *Run) (sums []string, err error) {
	for _, m := range c.media() {
		if m.of == nil {
			continue
		}
		chosen, err := m.of.Each(ctx, m.kind, r.Recipe.Resolve, func(corpus.Medium) error { return nil })
		if err != nil {
			return nil, r.Recipe.Stages["calibrate"].Errorf(m.key, "%s", plainError(err))
		}
		sums = append(sums, m.key, chosen.SHA256)
	}
	return sums, nil
}

// seen describes what calibration shows to a model, in the form in which its towers take it. The bytes are in files of the entry.
type seen struct {
	Pictures *seenMedia `json:"pictures,omitempty"`
	Sounds   *seenMedia `json:"sounds,omitempty"`
}

// seenMedia are pictures or clips.
type seenMedia struct {
	corpus.Chosen
	Name string `json:"name"`
	// Shown are pictures or clips, Views what their tower takes one by one: the picture, its tiles and the whole, or the clip.
	Shown []seenShown `json:"shown"`
	Views []seenView  `json:"views"`
}

// seenShown is a picture or clip.
type seenShown struct {
	Name  string `json:"name"`
	First int    `json:"first"` // of its views
	Count int    `json:"count"`
	// Rows and Columns are those of tiles, if there are any.
	Rows    int `json:"rows,omitempty"`
	Columns int `json:"columns,omitempty"`
}

// seenView is a view: the height and width of a picture in pixels, or as width the frames of a clip.
type seenView struct {
	Height int `json:"height,omitempty"`
	Width  int `json:"width"`
}

const seenFile = "shown.json"

// viewFile is the file of a view.
func viewFile(key string, i int) string { return fmt.Sprintf("%s-%05d.raw", key, i) }

// look reads what the recipe names, prepares it for the towers of the model, and writes it to an entry.
func (c *Calibrate) look(ctx context.Context, r *Run, src *source.Source, p *pipeline.Partial) (*seen, error) {
	sec := r.Recipe.Stages["calibrate"]
	all := &seen{}
	for _, m := range c.media() {
		if m.of == nil {
			continue
		}
		x := &seenMedia{Name: filepath.Base(filepath.FromSlash(m.of.Path))}
		add := func(v seenView, b []byte) error {
			x.Views = append(x.Views, v)
			return os.WriteFile(filepath.Join(p.Dir, viewFile(m.key, len(x.Views)-1)), b, 0o666)
		}
		total := int64(max(m.of.Count, 1))
		var err error
		x.Chosen, err = m.of.Each(ctx, m.kind, r.Recipe.Resolve, func(f corpus.Medium) error {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			s := seenShown{Name: f.Name, First: len(x.Views)}
			var err error
			if m.key == "pictures" {
				err = lookAt(f.Bytes, src, &s, add)
			} else {
				err = listen(f.Bytes, src.Model.Ear, add)
			}
			s.Count = len(x.Views) - s.First
			x.Shown = append(x.Shown, s)
			done := int64(len(x.Shown))
			r.Limits.Report("calibrate", m.key, done, max(total, done))
			return err
		})
		if err != nil {
			return nil, sec.Errorf(m.key, "%s", plainError(err))
		}
		if len(x.Shown) < 2 {
			return nil, sec.Errorf(m.key, "a single file is not enough: one of %d is set aside to measure on", probeShare)
		}
		if x.Other > 0 {
			zerolog.Ctx(ctx).Warn().Int("files", x.Other).Msg("calibration: other files of the folder of " + m.key + " are not read")
		}
		if m.key == "pictures" {
			all.Pictures = x
		} else {
			all.Sounds = x
		}
	}
	return all, nil
}

// calibrationRows bounds the rows of a picture of native size, calibrationTiles the tiles of one that is cut: more pictures tell more than
// larger ones.
const calibrationRows, calibrationTiles = 256, 4

// lookAt resizes a picture as the model's library does, and adds what the tower takes, as bytes of red, green and blue.
func lookAt(b []byte, src *source.Source, s *seenShown, add func(seenView, []byte) error) error {
	im, err := picture.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	t, facts := src.Model.Towers[0], src.Pictures
	if t.Slices != nil {
		return lookAtSlices(im, t.Patch, add)
	}
	f := facts.Filter
	if f == 0 {
		f = picture.Bicubic
	}
	fit := picture.Size{Height: t.Size, Width: t.Size}
	switch unit := t.Patch * t.Cell; {
	case t.Padded > 0:
		fit, err = im.Size().Fill(unit, min(facts.MostPixels, calibrationRows*unit*unit))
	case t.Grid:
		least, most := 4*unit*unit, calibrationRows*unit*unit
		if facts.MostPixels > 0 {
			most = min(most, facts.MostPixels)
			least = min(max(least, facts.LeastPixels), most)
		}
		fit, err = im.Size().Fit(unit, least, most)
	case t.Tiles != nil && facts.Most > t.Size:
		if fit, err = im.Size().Fit(t.Size, t.Size*t.Size, calibrationTiles*t.Size*t.Size); err == nil {
			fit = picture.Size{Height: min(fit.Height, facts.Most), Width: min(fit.Width, facts.Most)}
		}
	}
	if err != nil {
		return err
	}
	if im, err = im.ResizeLibrary(fit, f); err != nil {
		return err
	}
	views := []*picture.Image{im}
	if t.Tiles != nil {
		v, err := im.Cut(fit, t.Size, max(facts.Most, t.Size))
		if err != nil {
			return err
		}
		views, s.Rows, s.Columns = v.Images, v.Grid.Height, v.Grid.Width
	}
	return addViews(views, add)
}

// addViews adds what the tower takes one by one.
func addViews(views []*picture.Image, add func(seenView, []byte) error) error {
	for _, v := range views {
		if err := add(seenView{v.Height, v.Width}, v.Pix); err != nil {
			return err
		}
	}
	return nil
}

// lookAtSlices adds the overview and the slices of a picture, which engines and the model's library make of it as it is.
func lookAtSlices(im *picture.Image, patch int, add func(seenView, []byte) error) error {
	size, err := im.Size().Whole(patch, calibrationTiles*picture.ViewEdge*picture.ViewEdge)
	if err != nil {
		return err
	}
	v, err := im.Slices(size, patch)
	if err != nil {
		return err
	}
	return addViews(v.Images, add)
}

// listen computes the features of a clip, of which as much as the model hears is used, and adds them as float32.
func listen(b []byte, e *arch.Ear, add func(seenView, []byte) error) error {
	wave, err := sound.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	const perFrame = sound.Rate / 100
	features, err := sound.Features(e.Features, wave[:min(len(wave), e.Frames*perFrame)])
	if err != nil {
		return err
	}
	frames := len(features) / sound.Mels
	if e.Rows(frames) < 1 || frames < 3 {
		return fmt.Errorf("a clip of %d samples at 16 kHz is too short: %w", len(wave), tensor.ErrUnsupported)
	}
	raw := make([]byte, 0, 4*len(features))
	for _, v := range features {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return add(seenView{Width: frames}, raw)
}
