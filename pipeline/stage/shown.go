package stage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// probeShare is the divisor of the number of pictures or clips that are set aside to measure on.
const probeShare = 8

// showing is what calibration shows to the towers of a model, and the prompts with it.
type showing struct {
	record seen
	// shown are all pictures and clips, learned without those of the probe.
	shown, learned []*calibrate.Showing
	// prompts have pictures and clips of learned, probe those that are set aside, of shown.
	prompts, probe []calibrate.Prompt
}

// showing reads what the calibration of a run shows; nil if that is nothing. windows is its text.
func (r *Run) showing(src *source.Source, windows [][]int32) (*showing, error) {
	if !r.Calibrate.shows() {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(r.Calibration.Path, seenFile))
	if err != nil {
		return nil, err
	}
	x := &showing{}
	if err := json.Unmarshal(b, &x.record); err != nil {
		return nil, fmt.Errorf("%s: %v: %w", seenFile, err, tensor.ErrCorrupt)
	}
	if p := x.record.Pictures; p != nil {
		x.add(src, p, "pictures", r.Calibration.Path)
	}
	if p := x.record.Sounds; p != nil {
		x.add(src, p, "sounds", r.Calibration.Path)
	}
	return x, x.prompt(src, windows, r.Recipe.Target.Context)
}

// add adds pictures or clips. Those of the probe are spread evenly over them.
func (x *showing) add(src *source.Source, m *seenMedia, key, dir string) {
	read := func(view int) ([]float32, error) {
		b, err := os.ReadFile(filepath.Join(dir, viewFile(key, view)))
		if err != nil {
			return nil, err
		}
		v := m.Views[view]
		if key == "sounds" {
			return featuresOf(b, v)
		}
		return pixelsOf(b, v, src)
	}
	var views []int
	for i := range m.Shown {
		if !probing(i, len(m.Shown)) {
			for k := range m.Shown[i].Count {
				views = append(views, m.Shown[i].First+k)
			}
		}
	}
	all := &calibrate.Showing{Name: "vision", Read: read}
	if key == "sounds" {
		all.Name, all.Ear = "audio", src.Model.Ear
	} else {
		all.Tower = src.Model.Towers[0]
	}
	for _, v := range m.Views {
		size := forward.Shown{Width: v.Width}
		switch {
		case all.Tower != nil && all.Tower.Grid:
			size = forward.Shown{Height: v.Height / all.Tower.Patch, Width: v.Width / all.Tower.Patch}
		case all.Tower != nil:
			size = forward.Shown{}
		}
		all.Sizes = append(all.Sizes, size)
	}
	some := *all
	some.Sizes, some.Read = nil, func(i int) ([]float32, error) { return read(views[i]) }
	for _, v := range views {
		some.Sizes = append(some.Sizes, all.Sizes[v])
	}
	x.shown, x.learned = append(x.shown, all), append(x.learned, &some)
}

// probing reports whether picture i of n is one to measure on.
func probing(i, n int) bool {
	most := max(1, n/probeShare)
	for k := range most {
		if i == (2*k+1)*n/(2*most) {
			return true
		}
	}
	return false
}

// pixelsOf returns a view in the form in which the tower takes it.
func pixelsOf(b []byte, v seenView, src *source.Source) ([]float32, error) {
	if v.Height < 1 || v.Width < 1 || len(b)/3/v.Height != v.Width || len(b) != 3*v.Height*v.Width {
		return nil, fmt.Errorf("a calibration picture of %d x %d pixels has %d bytes: %w", v.Height, v.Width, len(b), tensor.ErrCorrupt)
	}
	im := &picture.Image{Height: v.Height, Width: v.Width, Pix: b}
	n := picture.Norm{Mean: src.Pictures.Mean, Scale: src.Pictures.Norm}
	t := src.Model.Towers[0]
	if !t.Grid {
		return im.Planes(n), nil
	}
	p, err := im.Patches(n, source.Cells(t))
	if err != nil {
		return nil, err
	}
	return p.Pixels, nil
}

// featuresOf returns the features of a clip.
func featuresOf(b []byte, v seenView) ([]float32, error) {
	if len(b) != 4*sound.Mels*v.Width {
		return nil, fmt.Errorf("a calibration clip of %d frames has %d bytes: %w", v.Width, len(b), tensor.ErrCorrupt)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out, nil
}

// promptText is how many tokens of calibration text follow a picture or clip in a prompt.
const promptText = 64

// prompt makes a prompt of every picture and clip: it, as in a conversation, and text after it.
func (x *showing) prompt(src *source.Source, windows [][]int32, context int) error {
	most := src.Decoder.MaxPositions
	if context > 0 && context < most {
		most = context
	}
	for which, all := range x.shown {
		m := x.record.Pictures
		if all.Ear != nil {
			m = x.record.Sounds
		}
		next := 0 // view of learned
		for i, s := range m.Shown {
			first := s.First
			held := probing(i, len(m.Shown))
			if !held {
				first = next
				next += s.Count
			}
			p := calibrate.Prompt{Showing: which, Window: slices.Clone(src.Facts.Prefix)}
			for k := range s.Count {
				p.Items = append(p.Items, first+k)
			}
			if err := x.show(src, all, m, s, &p); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			text := windows[i%len(windows)]
			text = text[min(len(src.Facts.Prefix), len(text)):]
			room := min(len(text), promptText, most-len(p.Window))
			if room < 1 {
				return fmt.Errorf("%s: a prompt of %d tokens, and the model has %d positions: %w", s.Name, len(p.Window), most, tensor.ErrUnsupported)
			}
			// A token of text that stands for pictures would take a row.
			for _, t := range text[:room] {
				if t != p.Pad {
					p.Window = append(p.Window, t)
				}
			}
			if held {
				x.probe = append(x.probe, p)
			} else {
				x.prompts = append(x.prompts, p)
			}
		}
	}
	return nil
}

// show appends the tokens of a picture or clip to a prompt.
func (x *showing) show(src *source.Source, all *calibrate.Showing, m *seenMedia, s seenShown, p *calibrate.Prompt) error {
	encode := func(text string) { p.Window = append(p.Window, src.Tokenizer.Encode(text, false)...) }
	if all.Ear != nil {
		p.Pad = src.Sounds.Pad
		encode(src.Sounds.Start)
		p.Window = append(p.Window, slices.Repeat([]int32{p.Pad}, all.Ear.Rows(m.Views[s.First].Width))...)
		encode(src.Sounds.End)
		return nil
	}
	t, facts := all.Tower, src.Pictures
	p.Pad = facts.Pad
	encode(t.Before)
	if t.Slices != nil {
		number := src.Tokenizer.Encode("0", false)
		p.Window = append(append(append(p.Window, facts.Number[0]), number...), facts.Number[1])
		words := [2]int32{facts.Start, facts.End}
		for range s.Count {
			p.Window = append(append(append(p.Window, words[0]), slices.Repeat([]int32{p.Pad}, t.Slices.Queries.Rows)...), words[1])
			words = facts.Slice
		}
		encode(t.After)
		return nil
	}
	if t.Tiles == nil {
		n := t.Cell
		rows := 0
		if t.Grid {
			v := m.Views[s.First]
			p.Grids = [][2]int{{v.Height / t.Patch / n, v.Width / t.Patch / n}}
			rows = p.Grids[0][0] * p.Grids[0][1]
		} else {
			rows = t.Rows()
		}
		if facts.Start >= 0 && facts.End >= 0 {
			p.Window = append(p.Window, facts.Start)
		}
		p.Window = append(p.Window, slices.Repeat([]int32{p.Pad}, rows)...)
		if facts.Start >= 0 && facts.End >= 0 {
			p.Window = append(p.Window, facts.End)
		}
		encode(t.After)
		return nil
	}
	view := func(word int32) {
		p.Window = append(append(p.Window, facts.Start, word), slices.Repeat([]int32{p.Pad}, t.Rows())...)
	}
	for row := range s.Rows {
		for column := range s.Columns {
			word := fmt.Sprintf("<row_%d_col_%d>", row+1, column+1)
			id, ok := src.Tokenizer.ID(word)
			if !ok {
				return fmt.Errorf("tokenizer.json has no token %q: %w", word, tensor.ErrUnsupported)
			}
			view(id)
		}
		encode("\n")
	}
	if s.Rows > 0 {
		encode("\n")
	}
	view(facts.Whole)
	p.Window = append(p.Window, facts.End)
	encode(t.After)
	return nil
}
