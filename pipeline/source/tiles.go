package source

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// tiles reads how a picture is cut into tiles.
func (p *Pictures) tiles(x *processor, t *arch.Tower, tok *tokenizer.Tokenizer) error {
	var e edges
	if json.Unmarshal(x.Tile, &e) == nil && e.Longest != nil && *e.Longest != t.Size {
		return fmt.Errorf("max_image_size %d is not image_size %d of vision_config: %w", *e.Longest, t.Size, tensor.ErrUnsupported)
	}
	longest := t.Tiles.Most
	e = edges{}
	if json.Unmarshal(x.Sizes, &e) == nil && e.Longest != nil {
		longest = *e.Longest
	}
	const most = 1 << 14 // pixels, more than any engine computes
	if longest < 1 || longest > most {
		return fmt.Errorf("size %d is not between 1 and %d: %w", longest, most, tensor.ErrUnsupported)
	}
	count := (longest + t.Size - 1) / t.Size
	p.Most = count * t.Size
	words := []string{t.Tiles.Whole}
	for i := range count * count {
		words = append(words, fmt.Sprintf("<row_%d_col_%d>", i/count+1, i%count+1))
	}
	for _, word := range words {
		id, ok := tok.ID(word)
		if !ok {
			return fmt.Errorf("tokenizer.json has no token %q, which the library puts before a part of a picture: %w", word, tensor.ErrUnsupported)
		}
		if word == t.Tiles.Whole {
			p.Whole = id
		}
	}
	if x.Split != nil && !*x.Split {
		p.Conditions = append(p.Conditions, "the library reads one view of a picture: pass no height and width")
		return nil
	}
	p.Conditions = append(p.Conditions, fmt.Sprintf("the library makes the longer edge of a picture %d pixels and both whole tiles; "+
		"the engine does not: pass such a height and width, for a picture of 3 to 4 %d and %d", longest, (3*longest/4+t.Size-1)/t.Size*t.Size, p.Most))
	if len(tok.Encode("\n\n", false)) < 2*len(tok.Encode("\n", false)) {
		p.Conditions = append(p.Conditions, "between tiles and the whole picture the engine puts two line ends, where the library's text has one token for both")
	}
	return nil
}
