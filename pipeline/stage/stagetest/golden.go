package stagetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/pipeline/safetensors"
)

// Families lists the checkpoints of random weights below a directory, which have logits of transformers next to them: one
// at least for every model type.
func Families(dir string) ([]string, error) {
	goldens, err := filepath.Glob(filepath.Join(dir, "*", "golden.safetensors"))
	if err == nil && len(goldens) == 0 {
		err = fmt.Errorf("%s holds no checkpoints", dir)
	}
	names := make([]string, 0, len(goldens))
	for _, g := range goldens {
		names = append(names, filepath.Base(filepath.Dir(g)))
	}
	return names, err
}

// Golden is an output that transformers computed in float32: Logits [len(IDs), vocabulary].
type Golden struct {
	IDs    []int32
	Logits []float32
}

// ReadGolden reads ids_N and logits_N of a golden file.
func ReadGolden(path, n string) (g Golden, err error) {
	err = entries(path, func(name string, size int, raw []byte) {
		switch name {
		case "ids_" + n:
			for ; len(raw) > 0; raw = raw[size:] {
				g.IDs = append(g.IDs, int32(binary.LittleEndian.Uint32(raw)))
			}
		case "logits_" + n:
			g.Logits = floats(raw)
		}
	})
	if err == nil && (len(g.IDs) == 0 || len(g.Logits) == 0 || len(g.Logits)%len(g.IDs) != 0) {
		err = fmt.Errorf("%s: %d logits for %d ids", path, len(g.Logits), len(g.IDs))
	}
	return g, err
}

// ReadStepwise reads the logits that transformers computed for the second ids one by one after the first 32 of them. They are
// nil in a golden file whose logits are the same as those computed at once.
func ReadStepwise(path string) (logits []float32, err error) {
	err = entries(path, func(name string, _ int, raw []byte) {
		if name == "logits_decode" {
			logits = floats(raw)
		}
	})
	return logits, err
}

// entries calls f with the tensors of a safetensors file and the sizes of their elements.
func entries(path string, f func(name string, size int, raw []byte)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h, err := safetensors.ParseHeader(b, int64(len(b)))
	if err != nil {
		return err
	}
	for _, e := range h.Entries {
		f(e.Name, int(e.DType.Size()), b[e.Offset:e.Offset+e.Size])
	}
	return nil
}

func floats(raw []byte) (x []float32) {
	for ; len(raw) > 0; raw = raw[4:] {
		x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return x
}

// longs are int64 that fit int32.
func longs(raw []byte) (list []int32) {
	for ; len(raw) > 0; raw = raw[8:] {
		list = append(list, int32(binary.LittleEndian.Uint32(raw)))
	}
	return list
}

// Pictures is what transformers computed for a conversation with pictures: a prompt with two of them, steps one token at a time, and a
// second prompt with a third picture.
type Pictures struct {
	// IDs are all tokens, Prompt and Steps the numbers of the first ones. Logits are [len(IDs), vocabulary].
	IDs           []int32
	Prompt, Steps int
	Logits        []float32
	// Rows are those of the pictures, one picture after another; Images are [height, width, 3] bytes of red, green and blue, and Sizes the
	// heights and widths, nil if all are squares.
	Rows   []float32
	Images [][]byte
	Sizes  [][2]int
}

// Size returns the height and width of a picture.
func (p *Pictures) Size(i int) (height, width int) {
	if p.Sizes != nil {
		return p.Sizes[i][0], p.Sizes[i][1]
	}
	n := 1
	for n*n*3 < len(p.Images[i]) {
		n++
	}
	return n, n
}

// The prompts of the conversation, in the form in which the engine takes them: image_0 is the first picture of the prompt.
const (
	FirstPicturePrompt  = "Look at this: <img>image_0</img> and then at <img>image_1</img> What is different?"
	SecondPicturePrompt = " Now compare with <img>image_0</img> Is it brighter?"
)

// ReadPictures reads a golden file of pictures.
func ReadPictures(path string) (*Pictures, error) {
	p := &Pictures{}
	err := entries(path, func(name string, _ int, raw []byte) {
		switch name {
		case "ids":
			p.IDs = longs(raw)
		case "first":
			n := longs(raw)
			p.Prompt, p.Steps = int(n[0]), int(n[1])
		case "sizes":
			for n := longs(raw); len(n) > 0; n = n[2:] {
				p.Sizes = append(p.Sizes, [2]int{int(n[0]), int(n[1])})
			}
		case "rows":
			p.Rows = floats(raw)
		case "logits":
			p.Logits = floats(raw)
		default: // image_0, image_1, ..., in this order
			p.Images = append(p.Images, raw)
		}
	})
	if err == nil && (len(p.IDs) <= p.Prompt+p.Steps || len(p.Images) == 0 || len(p.Logits)%len(p.IDs) != 0) {
		err = fmt.Errorf("%s: %d ids, %d pictures, %d logits", path, len(p.IDs), len(p.Images), len(p.Logits))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Sounds is the same for clips, see [Pictures].
type Sounds struct {
	IDs           []int32
	Prompt, Steps int
	// Logits and Rows are those of the features of the engine, Library the logits of those of the library.
	Logits, Library, Rows []float32
	// Waves are the clips, samples at 16 kHz, and Features those of the engine, [128, frames].
	Waves, Features [][]float32
}

// The prompts of the conversation, in the form in which the engine takes them.
const (
	FirstSoundPrompt = "Hear this: <|audio_bos|><audio>audio_0</audio><|audio_eos|> and then this: <|audio_bos|><audio>audio_1</audio><|audio_eos|>" +
		" What is different?"
	SecondSoundPrompt = " Now compare with <|audio_bos|><audio>audio_0</audio><|audio_eos|> Is it louder?"
)

// ReadSounds reads a golden file of clips.
func ReadSounds(path string) (*Sounds, error) {
	p := &Sounds{}
	err := entries(path, func(name string, _ int, raw []byte) {
		switch name {
		case "ids":
			p.IDs = longs(raw)
		case "first":
			n := longs(raw)
			p.Prompt, p.Steps = int(n[0]), int(n[1])
		case "rows":
			p.Rows = floats(raw)
		case "logits":
			p.Logits = floats(raw)
		case "library":
			p.Library = floats(raw)
		default: // features_0, features_1, ..., wave_0, wave_1, ..., in this order
			if strings.HasPrefix(name, "features") {
				p.Features = append(p.Features, floats(raw))
				return
			}
			wave := make([]float32, len(raw)/2)
			for i := range wave {
				wave[i] = float32(int16(binary.LittleEndian.Uint16(raw[2*i:]))) / (1 << 15)
			}
			p.Waves = append(p.Waves, wave)
		}
	})
	if err == nil && (len(p.IDs) <= p.Prompt+p.Steps || len(p.Waves) == 0 || len(p.Waves) != len(p.Features) || len(p.Logits)%len(p.IDs) != 0) {
		err = fmt.Errorf("%s: %d ids, %d clips, %d logits", path, len(p.IDs), len(p.Waves), len(p.Logits))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Planes are the pixels of a square picture as a tower reads them, [3, size, size]: (value - mean) * norm.
func Planes(image []byte, mean, norm [3]float32) []float32 {
	n := len(image) / 3
	out := make([]float32, len(image))
	for i, v := range image {
		out[i%3*n+i/3] = (float32(v) - mean[i%3]) * norm[i%3]
	}
	return out
}
