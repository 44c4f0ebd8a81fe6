package sound

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// LibraryWhisper returns what WhisperFeatureExtractor of transformers makes of a wave, [[Mels], frames], for the frames that [Whisper] has. There
// is silence after the wave, and the window is one sample longer than the engine's. The bounds are those of Whisper.
func LibraryWhisper(wave []float32) ([]float32, error) {
	if err := check(wave); err != nil {
		return nil, err
	}
	l := newLibrary(frameLength, bins)
	top := math.Inf(-1)
	all := l.energies(len(wave)/hop, func(i, k int) float64 {
		at := max(i*hop+k-frameLength/2, -(i*hop + k - frameLength/2)) // mirrored at the beginning
		if at >= len(wave) {
			return 0
		}
		return float64(wave[at]) * (0.5 * (1 - l.cosines[k]))
	})
	for i, v := range all {
		all[i] = math.Log10(max(v, 1e-10))
		top = max(top, all[i])
	}
	out := make([]float32, len(all))
	for i, v := range all {
		out[i] = float32((max(v, top-8) + 4) / 4)
	}
	return out, nil
}

// library computes features in float64.
type library struct {
	sines, cosines []float64 // of all points of the transform
	banks          [mels][]float64
}

func newLibrary(points, bins int) *library {
	l := &library{make([]float64, points), make([]float64, points), libraryBanks(bins)}
	for k := range points {
		l.sines[k], l.cosines[k] = kernel.Sincos(2 * math.Pi * float64(k) / float64(points))
	}
	return l
}

// energies returns those of frames, [mels, frames]; sample returns windowed sample k of frame i. The frame is in the middle of the points.
func (l *library) energies(frames int, sample func(i, k int) float64) []float64 {
	points := len(l.sines)
	first := (points - frameLength) / 2
	out := make([]float64, mels*frames)
	power := make([]float64, len(l.banks[0]))
	var frame [frameLength]float64
	for i := range frames {
		for k := range frame {
			frame[k] = sample(i, k)
		}
		for f := range power {
			var re, im float64
			for k, x := range frame {
				at := f * (first + k) % points
				re, im = re+float64(x*l.cosines[at]), im+float64(x*l.sines[at])
			}
			power[f] = float64(re*re) + float64(im*im)
		}
		for m, bank := range l.banks {
			for f, w := range bank {
				out[m*frames+i] += float64(w * power[f])
			}
		}
	}
	return out
}

// libraryBanks are the triangles of the Slaney scale, in float64.
func libraryBanks(bins int) (banks [mels][]float64) {
	const hertz, edge = 200.0 / 3, 15 // linear up to 15 steps, which are 1000 Hz
	step := math.Log(6.4) / 27
	high := edge + math.Log(Rate/2/1000.0)/step
	at := func(i int) float64 {
		m := high * float64(i) / (mels + 1)
		if m < edge {
			return hertz * m
		}
		return 1000 * math.Exp(step*(m-edge))
	}
	for m := range banks {
		left, centre, right := at(m), at(m+1), at(m+2)
		banks[m] = make([]float64, bins)
		for f := range banks[m] {
			hz := float64(f) * Rate / 2 / float64(bins-1)
			banks[m][f] = max(0, min((hz-left)/(centre-left), (right-hz)/(right-centre))) * 2 / (right - left)
		}
	}
	return banks
}
