package tokenizer

import "encoding/json"

// byteLevelStage is the pre-tokenizer ByteLevel. What it yields are stand-ins, except to a model that takes bytes instead.
type byteLevelStage struct {
	prefixSpace, useRegex bool
	spell                 bool // yields stand-ins, not bytes; see Tokenizer.fit
}

func (p *byteLevelStage) split(in piece, yield func(piece)) {
	if p.spell {
		bytes := yield
		yield = func(p piece) { bytes(piece{toStandIns(p.text), p.first}) }
	}
	s := in.text
	if p.prefixSpace && s[0] != ' ' {
		s = " " + s
	}
	if !p.useRegex {
		yield(piece{s, in.first})
		return
	}
	t := classes()
	for i := 0; i < len(s); {
		end := scanGPT2(t, s, i)
		yield(piece{s[i:end], in.first && i == 0})
		i = end
	}
}

func readByteLevel(raw json.RawMessage, _ int) (preTokenizer, error) {
	c := struct {
		Type        string `json:"type"`
		PrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets bool   `json:"trim_offsets"`
		UseRegex    bool   `json:"use_regex"`
	}{UseRegex: true}
	err := setup("pre-tokenizer", "ByteLevel", raw, &c)
	return &byteLevelStage{prefixSpace: c.PrefixSpace, useRegex: c.UseRegex}, err
}
