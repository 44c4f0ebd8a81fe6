package source

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// slices finds the tokens around slices and around the numbers of pictures.
func (p *Pictures) slices(t *arch.Tower, tok *tokenizer.Tokenizer) error {
	for _, m := range []struct {
		words [2]string
		ids   *[2]int32
	}{{t.Slices.Slice, &p.Slice}, {t.Slices.Number, &p.Number}} {
		for i, word := range m.words {
			id, ok := tok.ID(word)
			if !ok {
				return fmt.Errorf("tokenizer.json has no token %q, which the library puts around a part of a picture: %w", word, tensor.ErrUnsupported)
			}
			m.ids[i] = id
		}
	}
	// The engine encodes a number on its own, the library between its marks.
	const number = "10"
	alone, within := tok.Encode(number, false), tok.Encode(t.Slices.Number[0]+number+t.Slices.Number[1], false)
	if !slices.Equal(within, slices.Concat([]int32{p.Number[0]}, alone, []int32{p.Number[1]})) {
		return fmt.Errorf("tokenizer.json: the number of a picture has other tokens between its marks than alone, as the engine writes it: %w", tensor.ErrUnsupported)
	}
	return nil
}

// views checks what is said about slices, which engines have built in.
func (p *Pictures) views(x *processor, t *arch.Tower) error {
	for _, c := range []struct {
		key  string
		got  *int
		want int
	}{{"max_slice_nums", x.Slices, 9}, {"scale_resolution", x.View, 448}, {"image_feature_size", x.Rows, t.Slices.Queries.Rows}} {
		if c.got != nil && *c.got != c.want {
			return fmt.Errorf("%s %d: engines have %d: %w", c.key, *c.got, c.want, tensor.ErrUnsupported)
		}
	}
	if x.Numbers != nil && !*x.Numbers {
		return fmt.Errorf("use_image_id: engines number pictures: %w", tensor.ErrUnsupported)
	}
	if x.SliceMode != nil && !*x.SliceMode {
		return fmt.Errorf("slice_mode: engines cut every picture into slices: %w", tensor.ErrUnsupported)
	}
	p.Conditions = append(p.Conditions, "the library makes no slices of a picture of at most 448 x 448 pixels and makes it larger; the engine leaves its "+
		"overview as it is and always makes a slice. The library writes a line end after each row of slices, the engine does not. The library takes "+
		"the size of a picture itself; the engine does not: pass its height and width")
	return nil
}
