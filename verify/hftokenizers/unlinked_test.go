//go:build !hf_tokenizers || !cgo

package hftokenizers

import (
	"errors"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestUnlinked(t *testing.T) {
	if tok, err := Open([]byte("{}")); tok != nil || Linked || !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("%v, linked %v, error %v", tok, Linked, err)
	}
}
