package sound

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// kind is a kind of features.
type kind struct {
	engine  func(wave []float32) ([]float32, int, error)
	library func(wave []float32) ([]float32, error)
}

// kinds are those that the engine computes for a value of audio_type.
var kinds = map[string]kind{
	"whisper": {Whisper, LibraryWhisper}, "conformer": {Conformer, LibraryConformer}, "usm": {USM, LibraryUSM},
}

// Known reports whether there are features for a value of audio_type.
func Known(audioType string) bool { return kinds[audioType].engine != nil }

// Features returns the features that the engine computes of a wave for a value of audio_type, [[Mels], frames].
func Features(audioType string, wave []float32) ([]float32, error) {
	if !Known(audioType) {
		return nil, unknown(audioType)
	}
	features, _, err := kinds[audioType].engine(wave)
	return features, err
}

// Library is Features for those of the library that the models were made with.
func Library(audioType string, wave []float32) ([]float32, error) {
	if !Known(audioType) {
		return nil, unknown(audioType)
	}
	return kinds[audioType].library(wave)
}

func unknown(audioType string) error {
	return fmt.Errorf("features of audio_type %q: %w", audioType, tensor.ErrUnsupported)
}
