package tokenizer

import (
	"encoding/json"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// byteLevelStage is the pre-tokenizer ByteLevel.
type byteLevelStage struct {
	prefixSpace, useRegex bool
	// spell makes it yield stand-ins, one character for each byte. Without it, a model takes the bytes themselves, which is
	// faster, and possible if no further step reads them. See fit.
	spell bool
}

func (p *byteLevelStage) split(in piece, yield func(piece)) {
	if p.prefixSpace && in.text[0] != ' ' {
		in = piece(prepend(" ").normalize(aligned(in)))
	}
	if !p.useRegex {
		yield(p.spelled(in))
		return
	}
	s := in.text
	t := chars.Classes()
	for i := 0; i < len(s); {
		end := regex.ScanGPT2(t, s, i)
		yield(p.spelled(in.part(i, end)))
		i = end
	}
}

func (p *byteLevelStage) spelled(in piece) piece {
	if p.spell {
		in = piece(byteLevelNormalizer{}.normalize(aligned(in)))
	}
	return in
}

func readByteLevel(raw json.RawMessage, _ int) (preTokenizer, error) {
	c, err := byteLevelSettings("pre-tokenizer", raw)
	return &byteLevelStage{prefixSpace: c.PrefixSpace, useRegex: c.UseRegex}, err
}

// byteLevelFile is the JSON of a ByteLevel: of a pre-tokenizer, for which alone it counts, a post-processor or a decoder.
type byteLevelFile struct {
	Type        string `json:"type"`
	PrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets bool   `json:"trim_offsets"`
	UseRegex    bool   `json:"use_regex"`
}

func byteLevelSettings(kind string, raw json.RawMessage) (byteLevelFile, error) {
	c := byteLevelFile{UseRegex: true}
	return c, setup(kind, "ByteLevel", raw, &c)
}
