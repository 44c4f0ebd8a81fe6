package sound

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Rate is the number of samples per second that models of the Whisper kind take.
const Rate = 16000

// Mels is the number of features of a frame.
const Mels = 128

const (
	hop  = 160 // samples from frame to frame
	mels = Mels
)

// maxSamples bounds a wave: ten hours.
const maxSamples = 10 * 3600 * Rate

// Whisper returns the log-mel features of a wave at [Rate], [[Mels], frames] with a frame for each 160 samples: what the engine
// hands to an audio tower with `audio_type` whisper (`MNN::AUDIO::whisper_fbank`), bit for bit on x86-64 with FMA. The wave is
// mirrored at both ends, so at least 201 samples are needed; it is not padded to 30 s as transformers does.
func Whisper(wave []float32) (features []float32, frames int, err error) {
	if err := check(wave); err != nil {
		return nil, 0, err
	}
	// The engine computes one frame more than it keeps.
	frames = len(wave) / hop
	rows := frames + 1
	power := make([]float32, rows*bins)
	f, window, s := newFourier(), hann(), &spectrum{newComplexes(points), newComplexes(points)}
	frame := make([]float32, frameLength)
	for i := range rows {
		for k := range frame {
			frame[k] = mirrored(wave, i*hop+k-frameLength/2) * window[k]
		}
		f.power(power[i*bins:(i+1)*bins], frame, s)
	}
	mel := make([]float32, rows*mels)
	kernel.EngineMatMul(mel, power, melBanks(bins), rows, bins, mels, false, true)
	return logScale(mel[:frames*mels], frames), frames, nil
}

// check refuses waves that are too short or too long for features.
func check(wave []float32) error {
	switch {
	case len(wave) <= frameLength/2:
		return fmt.Errorf("a sound of %d samples is shorter than one frame: %w", len(wave), tensor.ErrUnsupported)
	case len(wave) > maxSamples:
		return fmt.Errorf("a sound of %d samples is longer than ten hours: %w", len(wave), tensor.ErrUnsupported)
	}
	return nil
}

// mirrored returns sample i of a wave that is reflected at both ends.
func mirrored(wave []float32, i int) float32 {
	if i < 0 {
		i = -i
	}
	if i >= len(wave) {
		i = 2*(len(wave)-1) - i
	}
	return wave[i]
}

// hann returns the engine's window. Both of its ends are 0, unlike those of WhisperFeatureExtractor, whose window is one sample longer.
func hann() []float32 {
	w := make([]float32, frameLength)
	for k := range w {
		_, cos := kernel.Sincos(2 * math.Pi * float64(k) / (frameLength - 1))
		w[k] = float32(0.5 * (1 - cos))
	}
	return w
}

// logScale turns [frames, mels] into [mels, frames] of (log10 + 4) / 4, at most 8 powers of ten below the largest.
func logScale(mel []float32, frames int) []float32 {
	for i, v := range mel {
		mel[i] = max(v, 1e-10)
	}
	kernel.EngineLog(mel, mel)
	ten := []float32{10}
	kernel.EngineLog(ten, ten)
	top := float32(math.Inf(-1))
	for i, v := range mel {
		mel[i] = v / ten[0]
		top = max(top, mel[i])
	}
	out := make([]float32, len(mel))
	for i, v := range mel {
		out[i%mels*frames+i/mels] = (max(v, top-8) + 4) / 4
	}
	return out
}

// melBanks returns the triangles of the Slaney scale, [mels, bins].
func melBanks(bins int) []float32 {
	const nyquist = Rate / 2
	high := hertzToMel(nyquist)
	step := high / (mels + 1)
	banks := make([]float32, mels*bins)
	for m := range mels {
		left, centre, right := melToHertz(step, m), melToHertz(step, m+1), melToHertz(step, m+2)
		norm := float32(2 / float64(right-left))
		for k := range bins {
			f, v := float32(k)*nyquist/float32(bins-1), float32(0)
			switch {
			case f >= left && f <= centre:
				v = (f - left) / (centre - left)
			case f > centre && f <= right:
				v = (right - f) / (right - centre)
			}
			banks[m*bins+k] = v * norm
		}
	}
	return banks
}

// The Slaney scale is linear up to 1000 Hz.
const (
	melHertz = float32(200.0 / 3.0)
	logHertz = float32(1000)
	logMel   = logHertz / melHertz
	logStep  = float32(0.06875177742094912)
)

func hertzToMel(f float32) float32 {
	if f < logHertz {
		return f / melHertz
	}
	v := []float32{f / logHertz}
	kernel.EngineLog(v, v)
	return logMel + v[0]/logStep
}

// melToHertz returns the frequency of count steps. Each product is rounded before it is part of a sum.
func melToHertz(step float32, count int) float32 {
	m := float32(step * float32(count))
	if m < logMel {
		return float32(melHertz * m)
	}
	return float32(logHertz * float32(kernel.Exp(float64(logStep*(m-logMel)))))
}
