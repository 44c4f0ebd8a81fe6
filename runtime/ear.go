package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Ear turns clips into rows that take the place of token embeddings. It is not safe for concurrent use.
type Ear struct {
	pkg   *Package
	exe   backend.Executable
	state backend.State
	most  int // frames of a clip
	// factor, if not 0, is what the engine multiplies rows by. Such an ear reads frames one after the other.
	factor float32
}

// usm is the audio_type of Gemma 4.
const usm = "usm"

// NewEar compiles the part of a package that reads sound.
func NewEar(p *Package, b backend.Backend, o Options) (*Ear, error) {
	part := p.Audio()
	if part == nil {
		return nil, fmt.Errorf("the package has no part that reads sound: %w", tensor.ErrUnsupported)
	}
	exe, err := compile(p, part, b, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part.GraphFile, err)
	}
	// The engine cuts clips unless the graph has a mask as well.
	e := &Ear{pkg: p, exe: exe, state: exe.NewState(), most: cutFrames}
	switch {
	case p.Config.AudioType == usm:
		e.factor = 1 / float32(mnn.USMDivisor(p.Config.HiddenSize))
	case p.Config.AudioType == "conformer":
		e.most = distanceFrames
	case part.reads("attention_mask"):
		e.most = mostFrames
	}
	return e, nil
}

// A frame is 10 ms. cutFrames is what the engine leaves of a clip for a graph without a mask, mostFrames a bound of ours: what the library reads.
// distanceFrames is what the table of distances in the graph of a Conformer covers.
const (
	cutFrames      = 3000
	mostFrames     = 30000
	distanceFrames = 12000
	leastFrames    = 3
)

// Longest returns the seconds of the longest clip.
func (e *Ear) Longest() int { return e.most / 100 }

// Wave reads a clip of samples at [sound.Rate]. Clips that the engine would cut, and those that are too short for a row, are errors.
func (e *Ear) Wave(ctx context.Context, wave []float32) (Picture, error) {
	const perFrame = sound.Rate / 100
	switch n := len(wave) / perFrame; {
	case n > e.most:
		return Picture{}, fmt.Errorf("a clip of %.2f s is longer than the %d s that the model hears; cut it: %w",
			float64(len(wave))/sound.Rate, e.Longest(), tensor.ErrUnsupported)
	case n < leastFrames:
		return Picture{}, fmt.Errorf("a clip of %d samples at 16 kHz is too short: a token takes %d: %w",
			len(wave), leastFrames*perFrame, tensor.ErrUnsupported)
	}
	features, err := sound.Features(e.pkg.Config.AudioType, wave)
	if err != nil {
		return Picture{}, err
	}
	return e.Features(ctx, features)
}

// Features reads a clip from its features, [sound.Mels, frames].
func (e *Ear) Features(ctx context.Context, features []float32) (Picture, error) {
	e.state.Reset()
	frames := len(features) / sound.Mels
	if e.factor != 0 {
		each := make([]float32, len(features))
		for i, v := range features {
			each[i%frames*sound.Mels+i/frames] = v
		}
		features = each
	}
	rows, err := e.exe.Run(ctx, []backend.State{e.state}, backend.Call{Embeddings: features, Tokens: frames, All: true})
	if err != nil {
		return Picture{}, err
	}
	if h := e.pkg.Config.HiddenSize; len(rows) == 0 || len(rows)%h != 0 {
		return Picture{}, fmt.Errorf("a clip becomes %d values, not rows of %d: %w", len(rows), h, tensor.ErrCorrupt)
	}
	rows = slices.Clone(rows)
	if e.factor != 0 {
		kernel.Scale(rows, rows, e.factor)
	}
	return newClip(rows, len(rows)/e.pkg.Config.HiddenSize), nil
}

// Hear reads a clip of samples at [sound.Rate] as a prompt: its rows, and the tokens in place of which they are put.
func (e *Ear) Hear(ctx context.Context, wave []float32) (*Prompt, error) {
	heard, err := e.Wave(ctx, wave)
	if err != nil {
		return nil, err
	}
	return &Prompt{Tokens: slices.Repeat([]int32{e.pkg.Config.AudioPad}, heard.tokens()), Pictures: []Picture{heard}}, nil
}

// Open reads the clip in a file as a prompt, see [Ear.Hear].
func (e *Ear) Open(ctx context.Context, file string) (*Prompt, error) {
	wave, err := sound.Open(file)
	if err != nil {
		return nil, err
	}
	p, err := e.Hear(ctx, wave)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}
