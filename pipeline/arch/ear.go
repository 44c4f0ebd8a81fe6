package arch

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Ear is a transformer that reads sound, with a projector. Its rows take the place of token embeddings. It reads the log-mel features of
// a clip, [Mels, frames]: a frame for each 10 ms.
//
//	x = GELU(First · three frames)     for each frame; before the first there are zeros, after the last silence, and zeros after Frames
//	x = GELU(Second · three states)    for every other state, with those around it
//	x = x + Positions, then the layers
//	x = mean of two states             for each pair; an odd one at the end is left out
//	rows = Out · PostNorm(x)
type Ear struct {
	// ModelType is the checkpoint's word for the transformer.
	ModelType string
	// Mels is the number of features of a frame, Frames the largest number of frames.
	Mels, Frames int
	// Piece, if not 0, is the even number of frames of a piece. Then each piece is convolved and attends alone, with zeros on both sides and
	// positions of its own, which are [Ear.Sinusoids].
	Piece int

	Hidden        int
	First, Second Linear // [Hidden, Mels*3] and [Hidden, Hidden*3]: three values of a channel follow one another
	Positions     Weight // [Frames/2, Hidden]; without tensor if there are pieces
	Layers        []Layer
	PostNorm      *Norm
	Out           Linear

	// Pad is the id in place of which rows are put. Start and End are the words that prompts have around a clip.
	Pad        int
	Start, End string
	// Before and After are what the checkpoint's library writes before and after a clip in a conversation; {n} is its number.
	Before, After string
}

// States returns the number of states of a clip within the layers.
func (*Ear) States(frames int) int { return (frames + 1) / 2 }

// Rows returns the number of rows that a clip becomes.
func (e *Ear) Rows(frames int) int { return e.States(frames) / 2 }

// Sinusoids are the positions of the states of a piece, [Piece/2, Hidden].
func (e *Ear) Sinusoids() []float32 {
	half := e.Hidden / 2
	out := make([]float32, e.Piece/2*e.Hidden)
	for t := range e.Piece / 2 {
		for k := range half {
			angle := float64(float32(t) * float32(kernel.Exp(-math.Ln10*4/float64(half-1)*float64(k))))
			sin, cos := kernel.Sincos(angle)
			out[t*e.Hidden+k], out[t*e.Hidden+half+k] = float32(sin), float32(cos)
		}
	}
	return out
}

// weights calls f with every slot that needs a tensor.
func (e *Ear) weights(f func(Weight)) {
	e.First.weights(f)
	e.Second.weights(f)
	some(f, e.Positions)
	for _, layer := range e.Layers {
		layer.weights(f)
	}
	e.PostNorm.vectors(f)
	e.Out.weights(f)
}
