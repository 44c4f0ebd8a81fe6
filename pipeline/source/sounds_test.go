package source

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Features that the engine does not compute are refused by the key that says so.
func TestExtractor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ features, file, wrong string }{
		{arch.WhisperFeatures, `{"feature_size": 128, "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "dither": 0.0}`, ""},
		{arch.WhisperFeatures, `{"n_fft": 512}`, "n_fft 512, the engine has 400"},
		{arch.WhisperFeatures, `{"feature_size": 80}`, "feature_size 80"},
		{arch.WhisperFeatures, `{"do_normalize": true}`, "do_normalize"},
		{arch.USMFeatures, `{"dither": 0.0, "feature_size": 128, "fft_length": 512, "fft_overdrive": false, "frame_length": 320, "hop_length": 160,
			"input_scale_factor": 1.0, "max_frequency": 8000.0, "mel_floor": 0.001, "min_frequency": 0.0, "padding_side": "right",
			"per_bin_mean": null, "per_bin_stddev": null, "preemphasis": 0.0, "sampling_rate": 16000}`, ""},
		{arch.USMFeatures, `{"frame_length_ms": 32.0}`, "frame_length_ms 32, the engine has 20"},
		{arch.USMFeatures, `{"preemphasis": 0.97}`, "preemphasis 0.97"},
		{arch.USMFeatures, `{"mel_floor": 1e-05}`, "mel_floor 1e-05"},
		{arch.USMFeatures, `{"fft_overdrive": true}`, "fft_overdrive"},
		{arch.USMFeatures, `{"per_bin_mean": [1.0]}`, "per_bin_mean"},
		{arch.USMFeatures, `{"padding_side": "left"}`, `padding_side "left"`},
	} {
		var x extractor
		if err := json.Unmarshal([]byte(c.file), &x); err != nil {
			t.Fatal(err)
		}
		err := x.check(c.features)
		if c.wrong == "" && err != nil || c.wrong != "" && (!errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.file, err, c.wrong)
		}
	}
}
