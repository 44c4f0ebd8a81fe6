package sound

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The window of the Universal Speech Model covers the first usmLength of the points of the transform, which are those of Conformers. Before
// the wave are usmBefore samples of zeros.
const (
	usmLength = 320
	usmBefore = usmLength / 2
	usmFloor  = float32(0.001)
)

// USM returns the log-mel features of a wave at [Rate], [[Mels], frames] with a frame for each 160 samples: what the engine hands to an audio
// tower with `audio_type` usm (`MNN::AUDIO::usm_fbank`), bit for bit on x86-64 with FMA, but for the order: the engine has frames one after
// the other. A frame is counted when the whole transform is within the wave, which has at least 352 samples.
func USM(wave []float32) (features []float32, frames int, err error) {
	if frames, err = usmFrames(wave); err != nil {
		return nil, 0, err
	}
	f, window := newRadix2(conformerBits), make([]float32, usmLength)
	for k := range window {
		_, cos := kernel.Sincos(2 * math.Pi * float64(k) / usmLength)
		window[k] = float32(0.5 * (1 - cos))
	}
	in, out := newComplexes(conformerPoints), newComplexes(conformerPoints)
	magnitudes := make([]float32, frames*conformerBins)
	for i := range frames {
		for k, w := range window {
			in.re[k] = 0
			if at := i*hop + k - usmBefore; at >= 0 {
				in.re[k] = wave[at] * w
			}
		}
		f.transform(out, in)
		for k := range conformerBins {
			magnitudes[i*conformerBins+k] = float32(math.Sqrt(float64(float32(out.re[k]*out.re[k]) + float32(out.im[k]*out.im[k]))))
		}
	}
	mel := make([]float32, frames*mels)
	kernel.EngineMatMul(mel, magnitudes, usmBanks(), frames, conformerBins, mels, false, true)
	for i := range mel {
		mel[i] += usmFloor
	}
	kernel.EngineLog(mel, mel)
	features = make([]float32, len(mel))
	for i, v := range mel {
		features[i%mels*frames+i/mels] = v
	}
	return features, frames, nil
}

// usmFrames returns the number of frames of a wave.
func usmFrames(wave []float32) (int, error) {
	if err := check(wave); err != nil {
		return 0, err
	}
	if len(wave)+usmBefore < conformerPoints {
		return 0, fmt.Errorf("a sound of %d samples is shorter than one frame: %w", len(wave), tensor.ErrUnsupported)
	}
	return (len(wave)+usmBefore-conformerPoints)/hop + 1, nil
}

// usmBanks returns the triangles of the scale of HTK, [mels, conformerBins], in the engine's float32.
func usmBanks() []float32 {
	const nyquist = Rate / 2
	high := float32(2840.0232) // 2595 log10(1 + nyquist/700), each step rounded
	step := high / (mels + 1)
	at := func(i int) float32 {
		return float32(700 * (kernel.Exp(math.Ln10*(float64(float32(step*float32(i)))/2595)) - 1))
	}
	banks := make([]float32, mels*conformerBins)
	for m := range mels {
		left, centre, right := at(m), at(m+1), at(m+2)
		for k := range conformerBins {
			f, v := float32(float32(k)*nyquist/(conformerBins-1)), float32(0)
			switch {
			case f >= left && f <= centre:
				v = (f - left) / (centre - left)
			case f > centre && f <= right:
				v = (right - f) / (right - centre)
			}
			banks[m*conformerBins+k] = v
		}
	}
	return banks
}

// LibraryUSM returns what Gemma4AudioFeatureExtractor of transformers makes of a wave, [[Mels], frames], for the frames that [USM] has; it would
// have one or two more.
func LibraryUSM(wave []float32) ([]float32, error) {
	n, err := usmFrames(wave)
	if err != nil {
		return nil, err
	}
	l := newLibrary(conformerPoints, conformerBins)
	high := 2595 * math.Log10(1+Rate/2/700.0)
	hertz := func(i int) float64 { return float64(700 * (kernel.Exp(math.Ln10*high*float64(i)/(mels+1)/2595) - 1)) }
	var banks [mels][conformerBins]float64
	for m := range banks {
		left, centre, right := hertz(m), hertz(m+1), hertz(m+2)
		for f := range banks[m] {
			hz := float64(float64(f) * Rate / conformerPoints)
			banks[m][f] = max(0, min((hz-left)/(centre-left), (right-hz)/(right-centre)))
		}
	}
	var window [usmLength]float64
	for k := range window {
		_, cos := kernel.Sincos(2 * math.Pi * float64(k) / usmLength)
		window[k] = 0.5 * (1 - cos)
	}
	out, magnitudes := make([]float32, mels*n), make([]float64, conformerBins)
	for i := range n {
		for f := range magnitudes {
			var re, im float64
			for k := range usmLength {
				at := i*hop + k - usmBefore
				if at < 0 {
					continue
				}
				x, turn := float64(wave[at])*window[k], f*k%conformerPoints
				re, im = re+float64(x*l.cosines[turn]), im+float64(x*l.sines[turn])
			}
			magnitudes[f] = math.Sqrt(float64(re*re) + float64(im*im))
		}
		for m := range mels {
			sum := 0.001
			for f, v := range magnitudes {
				sum += float64(banks[m][f] * v)
			}
			out[m*n+i] = float32(kernel.Log(sum))
		}
	}
	return out, nil
}
