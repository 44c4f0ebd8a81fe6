package source

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Sounds are the facts of using an encoder of sound.
type Sounds struct {
	// Pad is the token in place of which rows are put.
	Pad int32
	// Start and End are the words that prompts have around a clip; empty without any.
	Start, End string
}

// extractor is what preprocessor_config.json or processor_config.json says about features. Absent fields have the defaults of the library.
type extractor struct {
	Mels      *float64 `json:"feature_size"`
	Rate      *float64 `json:"sampling_rate"`
	Hop       *float64 `json:"hop_length"`
	Points    *float64 `json:"n_fft"`
	Dither    *float64 `json:"dither"`
	Normalize *bool    `json:"do_normalize"`
	// Those of the Universal Speech Model.
	Length    *float64 `json:"frame_length"`
	LengthMS  *float64 `json:"frame_length_ms"`
	HopMS     *float64 `json:"hop_length_ms"`
	Transform *float64 `json:"fft_length"`
	Least     *float64 `json:"min_frequency"`
	Most      *float64 `json:"max_frequency"`
	Emphasis  *float64 `json:"preemphasis"`
	Factor    *float64 `json:"input_scale_factor"`
	Floor     *float64 `json:"mel_floor"`
	Overdrive *bool    `json:"fft_overdrive"`
	Mean      any      `json:"per_bin_mean"`
	Deviation any      `json:"per_bin_stddev"`
	Side      *string  `json:"padding_side"`
}

// number is a field and the value that the engine has.
type number struct {
	key  string
	got  *float64
	want float64
}

// check refuses features other than those that the engine computes.
func (x *extractor) check(features string) error {
	numbers := []number{{"feature_size", x.Mels, sound.Mels}, {"sampling_rate", x.Rate, sound.Rate}, {"hop_length", x.Hop, 160}}
	if features == arch.USMFeatures {
		numbers = append(numbers, number{"frame_length", x.Length, 320}, number{"frame_length_ms", x.LengthMS, 20}, number{"hop_length_ms", x.HopMS, 10},
			number{"fft_length", x.Transform, 512}, number{"min_frequency", x.Least, 0}, number{"max_frequency", x.Most, 8000},
			number{"preemphasis", x.Emphasis, 0}, number{"input_scale_factor", x.Factor, 1}, number{"mel_floor", x.Floor, 0.001})
	} else {
		numbers = append(numbers, number{"n_fft", x.Points, 400})
	}
	for _, f := range numbers {
		if f.got != nil && *f.got != f.want {
			return fmt.Errorf("%s %g, the engine has %g: %w", f.key, *f.got, f.want, tensor.ErrUnsupported)
		}
	}
	switch {
	case x.Dither != nil && *x.Dither != 0 || x.Normalize != nil && *x.Normalize:
		return fmt.Errorf("dither or do_normalize, which the engine does not have: %w", tensor.ErrUnsupported)
	case features == arch.USMFeatures && (x.Overdrive != nil && *x.Overdrive || x.Mean != nil || x.Deviation != nil):
		return fmt.Errorf("fft_overdrive, per_bin_mean or per_bin_stddev, which the engine does not have: %w", tensor.ErrUnsupported)
	case features == arch.USMFeatures && x.Side != nil && *x.Side != "right":
		return fmt.Errorf("padding_side %q: the engine puts nothing before a clip: %w", *x.Side, tensor.ErrUnsupported)
	}
	return nil
}

// readSounds reads how clips are prepared for an encoder of sound.
func readSounds(dir string, e *arch.Ear, tok *tokenizer.Tokenizer) (*Sounds, error) {
	s := &Sounds{Pad: int32(e.Pad), Start: e.Start, End: e.End}
	if _, ok := tok.Token(s.Pad); !ok {
		return nil, fmt.Errorf("config.json: the token of sound, %d, is not a token of tokenizer.json: %w", e.Pad, tensor.ErrCorrupt)
	}
	for _, word := range []string{s.Start, s.End} {
		if _, ok := tok.ID(word); !ok && word != "" {
			return nil, fmt.Errorf("tokenizer.json has no token %q, which the library puts around clips: %w", word, tensor.ErrUnsupported)
		}
	}
	if e.Features == arch.ConformerFeatures { // config.json has what is known of them
		return s, nil
	}
	for _, name := range processorNames {
		b, err := ReadOptional(dir, name)
		if err != nil || b == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		var x extractor
		outer := struct {
			*extractor
			Inner *extractor `json:"feature_extractor"`
		}{&x, &x}
		if err := json.Unmarshal(b, &outer); err != nil {
			return nil, fmt.Errorf("%s: %v: %w", name, err, tensor.ErrCorrupt)
		}
		if err := x.check(e.Features); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, nil
}
