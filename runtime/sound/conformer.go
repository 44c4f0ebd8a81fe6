package sound

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The transform of Conformers has 512 points, of which the window covers frameLength in the middle.
const (
	conformerBits   = 9
	conformerPoints = 1 << conformerBits
	conformerBins   = conformerPoints/2 + 1
	emphasis        = float32(0.97)
)

// Conformer returns the log-mel features of a wave at [Rate], [[Mels], frames] with a frame for each 160 samples: what the engine hands to an
// audio tower with `audio_type` conformer (`MNN::AUDIO::conformer_fbank`), bit for bit on x86-64 with FMA. Each feature is normalised over
// the clip, which has at least 2 frames.
func Conformer(wave []float32) (features []float32, frames int, err error) {
	if err := checkNormalised(wave); err != nil {
		return nil, 0, err
	}
	frames = len(wave) / hop
	rows := frames + 1 // the engine computes one frame more than it keeps
	steep := make([]float32, len(wave))
	for i, x := range wave {
		before := float32(0)
		if i > 0 {
			before = wave[i-1]
		}
		steep[i] = x - float32(emphasis*before)
	}
	f, window := newRadix2(conformerBits), hann()
	in, out := newComplexes(conformerPoints), newComplexes(conformerPoints)
	power := make([]float32, rows*conformerBins)
	for i := range rows {
		clear(in.re)
		for k, w := range window {
			if at := i*hop + k - frameLength/2; at >= 0 && at < len(steep) {
				in.re[(conformerPoints-frameLength)/2+k] = steep[at] * w
			}
		}
		f.transform(out, in)
		for k := range conformerBins {
			power[i*conformerBins+k] = float32(out.re[k]*out.re[k]) + float32(out.im[k]*out.im[k])
		}
	}
	mel := make([]float32, rows*mels)
	kernel.EngineMatMul(mel, power, melBanks(conformerBins), rows, conformerBins, mels, false, true)
	mel = mel[:frames*mels]
	for i := range mel {
		mel[i] += 5.96046e-8
	}
	kernel.EngineLog(mel, mel)
	return normalised(mel, frames), frames, nil
}

// checkNormalised is check for features that have a variance.
func checkNormalised(wave []float32) error {
	if err := check(wave); err != nil || len(wave) >= 2*hop {
		return err
	}
	return fmt.Errorf("a sound of %d samples is shorter than two frames: %w", len(wave), tensor.ErrUnsupported)
}

// normalised turns [frames, mels] into [mels, frames] of mean 0 and about variance 1.
func normalised(mel []float32, frames int) []float32 {
	out := make([]float32, len(mel))
	for m := range mels {
		row := out[m*frames : (m+1)*frames]
		var sum, squares float32
		for i := range row {
			row[i] = mel[i*mels+m]
			sum += row[i]
		}
		mean := float32(sum * (1 / float32(frames))) // not fused with what follows
		for i := range row {
			row[i] -= mean
			squares += float32(row[i] * row[i])
		}
		deviation := float32(math.Sqrt(float64(float32(squares*(1/float32(frames-1))) + 1e-5)))
		for i := range row {
			row[i] /= deviation
		}
	}
	return out
}

// LibraryConformer returns what NeMo's preprocessor, as LFM2-Audio sets it, makes of a wave, [[Mels], frames], for the frames that [Conformer]
// has. It adds 1e-5 to deviations, and the engine to variances.
func LibraryConformer(wave []float32) ([]float32, error) {
	if err := checkNormalised(wave); err != nil {
		return nil, err
	}
	window := hann() // that of torch with both ends 0
	frames := len(wave) / hop
	all := newLibrary(conformerPoints, conformerBins).energies(frames, func(i, k int) float64 {
		at := i*hop + k - frameLength/2
		if at < 0 || at >= len(wave) {
			return 0
		}
		x := float64(wave[at])
		if at > 0 {
			x -= float64(0.97 * float64(wave[at-1]))
		}
		return x * float64(window[k])
	})
	out := make([]float32, len(all))
	for m := range mels {
		row := all[m*frames : (m+1)*frames]
		var sum, squares float64
		for i, x := range row {
			row[i] = kernel.Log(x + 1.0/(1<<24))
			sum += row[i]
		}
		mean := sum / float64(frames)
		for i, x := range row {
			row[i] = x - mean
			squares += float64(row[i] * row[i])
		}
		deviation := math.Sqrt(squares/float64(frames-1)) + 1e-5
		for i, x := range row {
			out[m*frames+i] = float32(x / deviation)
		}
	}
	return out, nil
}
