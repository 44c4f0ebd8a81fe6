//go:build engine

package enginetest

import (
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
)

const (
	mirrorWidth = 256 // of the rows of tiny-qwen3
	mirrorSize  = 64  // of a picture without a size

	mirrorPad, mirrorStart, mirrorEnd = 8000, 8001, 8002 // tokens
)

// mirrorNorm is that of CLIP.
var mirrorNorm = picture.Norm{
	Mean: [3]float32{122.7709383, 116.7460125, 104.0937}, Scale: [3]float32{0.0145984, 0.0150077, 0.0142201},
}

// mirror is a graph under construction whose output are its inputs.
type mirror struct{ g mnn.Graph }

func (m *mirror) op(name string, kind mnn.OpType, p mnn.Param, in ...int32) int32 {
	out := int32(len(m.g.Tensors))
	m.g.Tensors = append(m.g.Tensors, name)
	m.g.Ops = append(m.g.Ops, mnn.Op{Name: name, Type: kind, Inputs: in, Outputs: []int32{out}, Param: p})
	return out
}

func (m *mirror) input(name string, dt mnn.DataType, dims ...int32) int32 {
	return m.op(name, mnn.OpInput, &mnn.Input{Dims: dims, DType: dt, Format: mnn.NCHW})
}

// rows appends what makes rows of the width of the decoder of a value.
func (m *mirror) rows(name string, x int32, dims ...int32) int32 {
	return m.op(name, mnn.OpReshape, &mnn.Reshape{Dims: dims, DimType: mnn.NCHW}, x)
}

func (m *mirror) write(t *testing.T, dir, part, output string) {
	t.Helper()
	m.g.Outputs, m.g.Version = []string{output}, "3.6.1"
	b, err := m.g.Marshal()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, mnn.GraphFile(part)), b, 0o666)
	}
	if err == nil && part != "" {
		err = os.WriteFile(filepath.Join(dir, mnn.WeightFile(part)), make([]byte, 64), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mirrored copies a package of tiny-qwen3. The logits of the copy are what its decoder is given, and its settings are completed.
func mirrored(t *testing.T, pkg string, settings map[string]any) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mirror")
	if err := os.CopyFS(dir, os.DirFS(pkg)); err != nil {
		t.Fatal(err)
	}
	text := &mirror{}
	x := text.input("input_ids", mnn.DTFloat, 1, 1, mirrorWidth)
	text.input("attention_mask", mnn.DTFloat, 1, 1, -1, -1)
	text.input("position_ids", mnn.DTInt32, 1, -1)
	text.input("logits_index", mnn.DTInt32, 1)
	text.rows("logits", x, 1, -1, mirrorWidth)
	text.write(t, dir, "", "logits")

	name := filepath.Join(dir, "llm_config.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, settings)
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(name, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// seeing adds a tower that returns its inputs, as far as the graphs of this program need them.
func seeing(t *testing.T, dir string, inputs ...string) {
	t.Helper()
	tower := &mirror{}
	var given []int32
	for _, name := range inputs {
		switch name {
		case "attention_mask":
			tower.input(name, mnn.DTFloat, 1, -1, -1)
		case "idx_tensor":
			tower.input(name, mnn.DTInt32, 4, -1)
		case "weight_tensor":
			tower.input(name, mnn.DTFloat, 4, -1)
		case "position_ids":
			x := tower.op(name+"/float", mnn.OpCast, &mnn.Cast{From: mnn.DTInt32, To: mnn.DTFloat}, tower.input(name, mnn.DTInt32, 2, -1))
			given = append(given, tower.rows(name+"/rows", x, -1, 1, mirrorWidth))
		case "pixels":
			given = append(given, tower.rows(name+"/rows", tower.input(name, mnn.DTFloat, 1, 3, -1, -1), -1, 1, mirrorWidth))
		default:
			given = append(given, tower.rows(name+"/rows", tower.input(name, mnn.DTFloat, -1, -1), -1, 1, mirrorWidth))
		}
	}
	tower.op("image_embeds", mnn.OpConcat, &mnn.Axis{Axis: 0}, given...)
	tower.write(t, dir, "visual", "image_embeds")
}

// shown has every engine read a prompt with a mirror, and compares tokens and what took the place of mirrorPad with those wanted.
func shown(t *testing.T, dir, text string, ids []int32, rows []float32) {
	t.Helper()
	for _, e := range engines(t) {
		out := filepath.Join(t.TempDir(), "rows")
		a, err := e.do(job{Package: dir, Script: []any{map[string]any{"text": text, "images": []string{}}}, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.IDs) != 1 || !slices.Equal(a.IDs[0], ids) {
			t.Fatalf("%s: ids %v, want %v", e.version, a.IDs, ids)
		}
		var got []float32
		all := readFloats(t, out)
		for i, id := range ids {
			if id == mirrorPad {
				got = append(got, all[i*mirrorWidth:(i+1)*mirrorWidth]...)
			}
		}
		sameBits(t, e.version+": what the tower is given", rows, got)
	}
}

// TestPicturesAsRead holds this program's reading of prompts and pictures to the engine's own, from the file to the numbers that the
// tower is given: bit for bit, in each branch.
func TestPicturesAsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wide, tall := filepath.Join(dir, "wide picture.png"), filepath.Join(dir, "tall.png")
	paint(t, wide, 700, 300)
	paint(t, tall, 93, 201)
	names := strings.NewReplacer("WIDE", wide, "TALL", tall)
	pkg := export(t, checkpoints(t, false)[0], form{engine: "3.5", bits: 4, table: 16, block: "64"})
	p, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	fixed := func(unit int) reader {
		return func(im *picture.Image, s picture.Size) ([]float32, picture.Size, error) {
			s, err := s.Up(unit)
			if err == nil {
				im, err = im.Resize(s)
			}
			if err != nil {
				return nil, s, err
			}
			return im.Planes(mirrorNorm), s, nil
		}
	}
	qwen := []string{"patches", "position_ids", "attention_mask"}
	for _, c := range []struct {
		name, text string
		unit       int
		inputs     []string
		read       reader
	}{
		{"fixed", "See <img>WIDE</img>, <img>TALL<hw>96,64</hw></img> and <img>TALL</img>!", 1, []string{"pixels"}, fixed(1)},
		{"unit", "<img><hw>60,50</hw>WIDE</img> <img>TALL</img>\n<img>not\na mark</img>", 32, []string{"pixels"}, fixed(32)},
		{"qwen2-vl", "<img><hw>230,110</hw>WIDE</img> or <img><hw>126,890</hw>TALL</img>? <img>WIDE</img>", 1, qwen, patches(14)},
		{"qwen3-vl", "<img><hw>250,120</hw>WIDE</img> or <img><hw>144,1020</hw>TALL</img>? <img>WIDE</img>", 1,
			append(slices.Clone(qwen), "idx_tensor", "weight_tensor"), patches(16)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := names.Replace(c.text)
			ids, rows := wanted(t, p, text, c.read)
			copied := mirrored(t, pkg, map[string]any{
				"is_visual": true, "image_size": mirrorSize, "image_size_unit": c.unit, "image_mean": mirrorNorm.Mean,
				"image_norm": mirrorNorm.Scale, "image_pad": mirrorPad, "vision_start": mirrorStart, "vision_end": mirrorEnd,
			})
			seeing(t, copied, c.inputs...)
			shown(t, copied, text, ids, rows)
		})
	}
}

// reader returns what a tower is given for a picture at a size, and the size that it had.
type reader func(im *picture.Image, s picture.Size) ([]float32, picture.Size, error)

// patches reads for a tower of the Qwen kind.
func patches(patch int) reader {
	return func(im *picture.Image, s picture.Size) ([]float32, picture.Size, error) {
		s, err := s.Round(2 * patch)
		if err == nil {
			im, err = im.Resize(s)
		}
		if err != nil {
			return nil, s, err
		}
		p, err := im.Patches(mirrorNorm, picture.QwenCells(patch))
		if err != nil {
			return nil, s, err
		}
		values := p.Pixels
		for _, v := range p.Positions {
			values = append(values, float32(v))
		}
		return values, s, nil
	}
}

// wanted returns the tokens of a prompt and the rows of its pictures.
func wanted(t *testing.T, p *runtime.Package, text string, read reader) (ids []int32, rows []float32) {
	t.Helper()
	pieces, err := prompt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	size := picture.Size{Height: mirrorSize, Width: mirrorSize}
	for _, x := range pieces {
		if x.Kind == prompt.Text {
			ids = append(ids, p.Tokenizer.Encode(x.Text)...)
			continue
		}
		im, err := picture.Open(x.Text)
		if err != nil {
			t.Fatal(err)
		}
		if x.Size != (picture.Size{}) {
			size = x.Size
		}
		var values []float32
		if values, size, err = read(im, size); err != nil {
			t.Fatal(err)
		}
		if len(values)%mirrorWidth != 0 {
			t.Fatalf("%d values are not rows", len(values))
		}
		ids = append(ids, mirrorStart)
		ids = append(ids, slices.Repeat([]int32{mirrorPad}, len(values)/mirrorWidth)...)
		ids = append(ids, mirrorEnd)
		rows = append(rows, values...)
	}
	return ids, rows
}

// paint writes a picture of noise on a gradient.
func paint(t *testing.T, name string, width, height int) {
	t.Helper()
	im := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			n := uint32(x*7919+y*104729) * 2654435761
			im.SetNRGBA(x, y, color.NRGBA{byte(x*255/width) ^ byte(n>>28), byte(y * 255 / height), byte(n >> 24), 255})
		}
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, im); err != nil {
		t.Fatal(err)
	}
}
