package source

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Pictures are the facts of using a tower that reads pictures.
type Pictures struct {
	// A value v of a pixel, from 0 to 255, becomes (v - Mean) * Norm, for each of red, green and blue.
	Mean, Norm [3]float32
	// Pad is the token in place of which rows are put; Start and End are those around them, -1 without.
	Pad, Start, End int32
	// Whole is the token before the whole picture, for a tower that reads tiles, and Most the largest edge of a picture that is cut into
	// them, a multiple of the tower's.
	Whole int32
	Most  int
	// Slice and Number are the tokens around a slice and around the number of a picture, for a tower that reads slices.
	Slice, Number [2]int32
	// Filter is that with which the library resizes; 0 if it is not known here.
	Filter picture.Filter
	// LeastPixels and MostPixels are the areas between which the library keeps a picture that it does not cut, 0 if callers need not keep to
	// them.
	LeastPixels, MostPixels int
	// Conditions are sentences for users.
	Conditions []string
}

// Cells are how a tower of a Grid divides pictures.
func Cells(t *arch.Tower) picture.Cells {
	return picture.Cells{Patch: t.Patch, Edge: t.Cell, Frames: t.Frames}
}

// processorNames are the files in which repositories describe the preparation of pictures. Newer ones have all processors in the second.
var processorNames = []string{"preprocessor_config.json", "processor_config.json"}

// processor is what these files say about pictures. Absent fields have the defaults of the library's processors.
type processor struct {
	Rescale   *bool     `json:"do_rescale"`
	Factor    *float64  `json:"rescale_factor"`
	Normalize *bool     `json:"do_normalize"`
	Mean      []float64 `json:"image_mean"`
	Deviation []float64 `json:"image_std"`
	// NormMean and NormDeviation are the same in MiniCPM-V.
	NormMean      []float64 `json:"norm_mean"`
	NormDeviation []float64 `json:"norm_std"`
	Resample      *int      `json:"resample"`
	Crop          *bool     `json:"do_center_crop"`
	Pad           *bool     `json:"do_pad"`
	Split         *bool     `json:"do_image_splitting"`
	// SliceMode, Numbers, Slices, View and Rows are those of MiniCPM-V.
	SliceMode *bool `json:"slice_mode"`
	Numbers   *bool `json:"use_image_id"`
	Slices    *int  `json:"max_slice_nums"`
	View      *int  `json:"scale_resolution"`
	Rows      *int  `json:"image_feature_size"`
	Least     *int  `json:"min_pixels"`
	Most      *int  `json:"max_pixels"`
	// LeastRows and MostRows are the same in rows that a picture becomes.
	LeastRows *int `json:"min_image_tokens"`
	MostRows  *int `json:"max_image_tokens"`
	// Soft is how many rows a picture becomes at most, in the library of Gemma 4, which makes it as large as that allows.
	Soft *int `json:"max_soft_tokens"`
	// Sizes is another place of the two.
	Sizes json.RawMessage `json:"size"`
	// Tile is that of pictures that are cut.
	Tile json.RawMessage `json:"max_image_size"`
}

// edges are a form of a size.
type edges struct {
	Shortest *int `json:"shortest_edge"`
	Longest  *int `json:"longest_edge"`
}

// pixels is the condition for pictures of any size, which the library counts so many times.
func (x *processor) pixels(times int) string {
	least, most := x.Least, x.Most
	var e edges
	if json.Unmarshal(x.Sizes, &e) == nil { // families have other forms of it
		least, most = cmp.Or(least, e.Shortest), cmp.Or(most, e.Longest)
	}
	const text = "the library keeps the shape of a picture and its size"
	if least == nil || most == nil {
		return text + "; the engine does not: pass height and width"
	}
	return fmt.Sprintf("%s, if it has %d to %d pixels, and makes it so large or small if not; the engine does not: pass such a height and width",
		text, (*least+times-1)/times, *most/times)
}

// readPictures reads how pictures are prepared for a tower.
func readPictures(dir string, t *arch.Tower, vocab int, tok *tokenizer.Tokenizer) (*Pictures, error) {
	// The library's processors have a bicubic filter, or for tiles Lanczos', unless a file says otherwise.
	p := &Pictures{Pad: int32(t.Pad), Start: -1, End: -1, Filter: picture.Bicubic}
	switch {
	case t.Tiles != nil:
		p.Filter = picture.Lanczos
	case t.Slices != nil:
		if err := p.slices(t, tok); err != nil {
			return nil, err
		}
	}
	if t.PadWord != "" {
		id, ok := tok.ID(t.PadWord)
		if !ok {
			return nil, fmt.Errorf("tokenizer.json has no token %q, which stands for pictures: %w", t.PadWord, tensor.ErrUnsupported)
		}
		p.Pad = id
	} else if t.Pad < 0 {
		if p.Pad = int32(tok.VocabSize()); int(p.Pad) >= vocab {
			return nil, fmt.Errorf("every row of the embedding, %d, has a token in tokenizer.json, and none is left to stand for pictures: %w",
				vocab, tensor.ErrUnsupported)
		}
	} else if _, ok := tok.Token(p.Pad); !ok {
		return nil, fmt.Errorf("config.json: the token of pictures, %d, is not a token of tokenizer.json: %w", t.Pad, tensor.ErrCorrupt)
	}
	if err := p.readMarks(dir, t, tok); err != nil {
		return nil, err
	}
	x := processor{Mean: t.Mean[:], Deviation: t.Deviation[:]}
	if t.Padded > 0 {
		x.Normalize = new(bool) // the default of this library's processor
	}
	if t.Squared {
		p.Conditions = append(p.Conditions, "the library pads a picture to a black square, the engine squeezes it: pad pictures before")
	}
	for _, name := range processorNames {
		b, err := ReadOptional(dir, name)
		if err != nil || b == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		outer := struct {
			*processor
			Inner *processor `json:"image_processor"`
		}{&x, &x}
		if err := json.Unmarshal(b, &outer); err != nil {
			return nil, fmt.Errorf("%s: %v: %w", name, err, tensor.ErrCorrupt)
		}
		if t.Slices != nil {
			if x.NormMean != nil {
				x.Mean = x.NormMean
			}
			if x.NormDeviation != nil {
				x.Deviation = x.NormDeviation
			}
		}
		if err := p.normalise(&x); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if x.Resample != nil {
			p.Filter = picture.Filter(*x.Resample)
			if p.Filter.Check() != nil {
				p.Filter = 0
			}
		}
		if x.Crop != nil && *x.Crop && !t.Squared {
			p.Conditions = append(p.Conditions, "the library cuts out the middle square of a picture, the engine squeezes the whole: "+
				"cut pictures to squares before")
		}
		if x.Pad != nil && *x.Pad && !t.Grid && t.Tiles == nil && !t.Squared {
			p.Conditions = append(p.Conditions, "the library pads a picture to a square, the engine squeezes it: pad pictures before")
		}
		return p, p.size(&x, t, tok)
	}
	return p, cmp.Or(p.normalise(&x), p.size(&x, t, tok))
}

// size reads what is said about the sizes of pictures.
func (p *Pictures) size(x *processor, t *arch.Tower, tok *tokenizer.Tokenizer) error {
	switch {
	case t.Slices != nil:
		return p.views(x, t)
	case t.Padded > 0:
		return p.filled(x, t)
	case t.Grid && t.Most > 0:
		return p.rows(x, t)
	case t.Grid:
		p.Conditions = append(p.Conditions, x.pixels(max(1, t.Counted)))
	case t.Tiles != nil:
		return p.tiles(x, t, tok)
	}
	return nil
}

// rows reads the limits of a tower of which they are numbers of rows.
func (p *Pictures) rows(x *processor, t *arch.Tower) error {
	least, most, edge := *cmp.Or(x.LeastRows, &t.Least), *cmp.Or(x.MostRows, &t.Most), t.Patch*t.Cell
	if least < 1 || most < least || most > maxRows {
		return fmt.Errorf("min_image_tokens %d, max_image_tokens %d: %w", least, most, tensor.ErrUnsupported)
	}
	least, most = least*edge*edge, most*edge*edge
	p.LeastPixels, p.MostPixels, x.Least, x.Most = least, most, &least, &most
	if x.Split == nil || *x.Split {
		p.Conditions = append(p.Conditions, t.Loss)
	}
	p.Conditions = append(p.Conditions, x.pixels(1))
	return nil
}

// filled reads the limit of a tower that always takes as many patches. The engine does not normalise its pixels.
func (p *Pictures) filled(x *processor, t *arch.Tower) error {
	if p.Mean != [3]float32{} || p.Norm != [3]float32{1 / 255., 1 / 255., 1 / 255.} {
		return fmt.Errorf("do_normalize, image_mean, image_std, rescale_factor: the engine gives this tower pixels from 0 to 1: %w", tensor.ErrUnsupported)
	}
	cell := t.Cell * t.Cell
	most := *cmp.Or(x.Soft, new(t.Padded/cell))
	if most < 1 || most > maxRows {
		return fmt.Errorf("max_soft_tokens %d: %w", most, tensor.ErrUnsupported)
	}
	text := fmt.Sprintf("the library keeps the shape of a picture and makes it as large as %d tokens allow; the engine does not: pass such a height and width",
		most)
	if most > t.Padded/cell {
		most = t.Padded / cell
		text += fmt.Sprintf("; the engine allows %d", most)
	}
	p.MostPixels = most * cell * t.Patch * t.Patch
	p.Conditions = append(p.Conditions, text)
	return nil
}

// maxRows bounds the rows of a picture in a processor's file: 2^24 patches.
const maxRows = 1 << 22

// normalise computes Mean and Norm.
func (p *Pictures) normalise(x *processor) error {
	factor := 1.0 / 255
	if x.Factor != nil {
		factor = *x.Factor
	}
	if x.Rescale != nil && !*x.Rescale {
		factor = 1
	}
	mean, deviation := x.Mean, x.Deviation
	if x.Normalize != nil && !*x.Normalize {
		mean, deviation = []float64{0, 0, 0}, []float64{1, 1, 1}
	}
	if len(mean) != 3 || len(deviation) != 3 || !(factor > 0 && factor <= 1) {
		return fmt.Errorf("image_mean %v, image_std %v, rescale_factor %g: %w", mean, deviation, factor, tensor.ErrUnsupported)
	}
	for i := range 3 {
		if !(deviation[i] > 0) {
			return fmt.Errorf("image_std %v: %w", deviation, tensor.ErrCorrupt)
		}
		p.Mean[i], p.Norm[i] = float32(mean[i]/factor), float32(factor/deviation[i])
	}
	return nil
}

// readMarks finds the tokens around a picture. tokenizer_config.json may name others than the library's processor has.
func (p *Pictures) readMarks(dir string, t *arch.Tower, tok *tokenizer.Tokenizer) error {
	if t.Start == "" {
		return nil
	}
	words := struct {
		Start string `json:"start_image_token"`
		End   string `json:"end_image_token"`
	}{t.Start, t.End}
	b, err := ReadOptional(dir, "tokenizer_config.json")
	if err != nil {
		return err
	}
	if b != nil {
		if err := json.Unmarshal(b, &words); err != nil {
			return fmt.Errorf("tokenizer_config.json: %v: %w", err, tensor.ErrCorrupt)
		}
	}
	for _, m := range []struct {
		word string
		id   *int32
	}{{words.Start, &p.Start}, {words.End, &p.End}} {
		id, ok := tok.ID(m.word)
		if !ok {
			return fmt.Errorf("tokenizer.json has no token %q, which the library puts around pictures: %w", m.word, tensor.ErrUnsupported)
		}
		*m.id = id
	}
	return nil
}
