package stage

import (
	"errors"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Reasons why trying again cannot help.
const (
	FinalRecipe      = "recipe"      // a mistake in the recipe, the options or the references
	FinalVerdict     = "verdict"     // the package failed verification, or its signature is not usable
	FinalUnsupported = "unsupported" // this version cannot make a package of the model
)

// Final returns the reason why the same run would fail again on any machine; it is empty if trying again may help.
func Final(err error) string {
	var (
		memory   *assemble.MemoryError
		failed   *FailedError
		unsigned *SignatureError
		recipe   *recipes.Error
		ref      *place.RefError
		span     *SpanError
		other    *source.OtherError
	)
	switch {
	case errors.As(err, &memory):
		return FinalRecipe
	case errors.As(err, &failed), errors.As(err, &unsigned):
		return FinalVerdict
	case errors.As(err, &recipe), errors.As(err, &ref), errors.As(err, &span), errors.As(err, &other):
		return FinalRecipe
	case errors.Is(err, tensor.ErrUnsupported):
		return FinalUnsupported
	}
	return ""
}
