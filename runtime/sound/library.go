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
	var sines, cosines, window [frameLength]float64
	for k := range frameLength {
		sines[k], cosines[k] = kernel.Sincos(2 * math.Pi * float64(k) / frameLength)
		window[k] = 0.5 * (1 - cosines[k])
	}
	banks := libraryBanks()
	frames := len(wave) / hop
	out := make([]float32, mels*frames)
	top := math.Inf(-1)
	all := make([]float64, mels*frames)
	for i := range frames {
		var frame [frameLength]float64
		for k := range frame {
			if at := max(i*hop+k-frameLength/2, -(i*hop + k - frameLength/2)); at < len(wave) { // mirrored at the beginning
				frame[k] = float64(wave[at]) * window[k]
			}
		}
		var power [bins]float64
		for f := range power {
			var re, im float64
			for k, x := range frame {
				re, im = re+float64(x*cosines[f*k%frameLength]), im+float64(x*sines[f*k%frameLength])
			}
			power[f] = float64(re*re) + float64(im*im)
		}
		for m, bank := range banks {
			var sum float64
			for f, w := range bank {
				sum += float64(w * power[f])
			}
			v := math.Log10(max(sum, 1e-10))
			all[m*frames+i], top = v, max(top, v)
		}
	}
	for i, v := range all {
		out[i] = float32((max(v, top-8) + 4) / 4)
	}
	return out, nil
}

// libraryBanks are the triangles of the Slaney scale, in float64.
func libraryBanks() (banks [mels][bins]float64) {
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
		for f := range banks[m] {
			hz := float64(f) * Rate / 2 / (bins - 1)
			banks[m][f] = max(0, min((hz-left)/(centre-left), (right-hz)/(right-centre))) * 2 / (right - left)
		}
	}
	return banks
}
