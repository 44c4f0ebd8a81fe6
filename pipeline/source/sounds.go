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
	Mels      *int     `json:"feature_size"`
	Rate      *int     `json:"sampling_rate"`
	Hop       *int     `json:"hop_length"`
	Frame     *int     `json:"n_fft"`
	Dither    *float64 `json:"dither"`
	Normalize *bool    `json:"do_normalize"`
}

// check refuses features other than those that the engine computes.
func (x *extractor) check() error {
	for _, f := range []struct {
		key  string
		got  *int
		want int
	}{{"feature_size", x.Mels, sound.Mels}, {"sampling_rate", x.Rate, sound.Rate}, {"hop_length", x.Hop, 160}, {"n_fft", x.Frame, 400}} {
		if f.got != nil && *f.got != f.want {
			return fmt.Errorf("%s %d, the engine has %d: %w", f.key, *f.got, f.want, tensor.ErrUnsupported)
		}
	}
	if x.Dither != nil && *x.Dither != 0 || x.Normalize != nil && *x.Normalize {
		return fmt.Errorf("dither or do_normalize, which the engine does not have: %w", tensor.ErrUnsupported)
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
	if e.Features != arch.WhisperFeatures { // config.json has what is known of them
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
		if err := x.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, nil
}
