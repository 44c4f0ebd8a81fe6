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
//
// With Subsampling, which is that of Conformers, there are neither positions nor means, and every state after the layers becomes a row:
//
//	x = Subsampling(features), then the layers
//	rows = Out · GELU(Between · PostNorm(x)), or with BetweenNorm Out · BetweenNorm(Between · x)
type Ear struct {
	// ModelType is the checkpoint's word for the transformer.
	ModelType string
	// Features is the engine's word for features, [WhisperFeatures], [ConformerFeatures] or [USMFeatures].
	Features string
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

	Subsampling *Subsampling // or nil
	Between     Linear       // of an ear with Subsampling, else without tensor
	BetweenNorm *Norm        // or nil

	// Scale multiplies rows; 0 stands for 1. It undoes what the text model multiplies token rows by.
	Scale float64
	// Tail, if it has a tensor, are the columns that rows have after those of the stream, see [Tower].
	Tail Weight

	// Pad is the id in place of which rows are put. Start and End are the words that prompts have around a clip; empty without any.
	Pad        int
	Start, End string
	// Before and After are what the checkpoint's library writes before and after a clip in a conversation; {n} is its number.
	Before, After string
}

// The kinds of features, audio_type of llm_config.json.
const (
	WhisperFeatures   = "whisper"
	ConformerFeatures = "conformer"
	USMFeatures       = "usm"
)

// Subsampling makes states of features: convolutions of the plane [frames, Mels] and one frame of zeros after it, one after the other, and a
// linear layer of what is left of a frame.
//
//	x = Scale · Out · (Convolutions(features), [states, channels*Mels/Factor] in the order [channel, feature])
type Subsampling struct {
	Convolutions []Convolution // of kernels of 3 or 1 with steps of 2 or 1
	Out          Linear
	Scale        float64 // 0 stands for 1
	// LastTwice: the frame after the last is the last once more, because the engine has one frame fewer than the library.
	LastTwice bool
	// ByFeature: the order is [feature, channel].
	ByFeature bool
}

// Size returns the edge of the result for an edge of the plane.
func (s *Subsampling) Size(n int) int {
	for i := range s.Convolutions {
		n = s.Convolutions[i].Out(n)
	}
	return n
}

// States returns the number of states of a clip within the layers.
func (e *Ear) States(frames int) int {
	if e.Subsampling != nil {
		return e.Subsampling.Size(frames + 1)
	}
	return (frames + 1) / 2
}

// Rows returns the number of rows that a clip becomes.
func (e *Ear) Rows(frames int) int {
	if e.Subsampling != nil {
		return e.States(frames)
	}
	return e.States(frames) / 2
}

// Distances are the vectors s of [Relative], [2*states-1, Hidden], for the distances from states-1 down to 1-states of the longest clip.
func (e *Ear) Distances() []float32 {
	n := e.States(e.Frames)
	out := make([]float32, 0, (2*n-1)*e.Hidden)
	rates := RelativeRates(e.Hidden)
	for d := n - 1; d > -n; d-- {
		for _, rate := range rates {
			sin, cos := kernel.Sincos(float64(float32(d) * float32(rate)))
			out = append(out, float32(sin), float32(cos))
		}
	}
	return out
}

// RelativeRates are the radians by which the pairs of the vectors of [Relative] turn from a distance to the next.
func RelativeRates(hidden int) []float64 {
	rates := make([]float64, hidden/2)
	for n := range rates {
		rates[n] = kernel.Exp(-4 * math.Ln10 * float64(2*n) / float64(hidden))
	}
	return rates
}

// Sinusoids are the positions of the states of a piece, [Piece/2, Hidden].
func (e *Ear) Sinusoids() []float32 {
	out := make([]float32, e.Piece/2*e.Hidden)
	for t := range e.Piece / 2 {
		sinusoids(out[t*e.Hidden:(t+1)*e.Hidden], t)
	}
	return out
}

// weights calls f with every slot that needs a tensor.
func (e *Ear) weights(f func(Weight)) {
	if s := e.Subsampling; s != nil {
		for i := range s.Convolutions {
			s.Convolutions[i].weights(f)
		}
		s.Out.weights(f)
		e.Between.weights(f)
		e.BetweenNorm.vectors(f)
	} else {
		e.First.weights(f)
		e.Second.weights(f)
	}
	some(f, e.Positions, e.Tail)
	for _, layer := range e.Layers {
		layer.weights(f)
	}
	e.PostNorm.vectors(f)
	e.Out.weights(f)
}
