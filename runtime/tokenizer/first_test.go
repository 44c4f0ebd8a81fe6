package tokenizer

import (
	"slices"
	"testing"
)

// TestFirst: a piece is the first of a text where its first byte came of the first character, as the library has it; so can be
// several.
func TestFirst(t *testing.T) {
	const (
		first  = `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":false}`
		spaces = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
		bytes  = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`
		each   = `{"type":"FixedLength","length":1}`
	)
	for name, c := range map[string]struct {
		normalizer, pre, added, text string
		want                         []string
	}{
		"space before":       {`null`, spaces + `,` + each + `,` + first, `[]`, "ab", []string{"_", "Ġ", "_", "a", "b"}},
		"bytes":              {`null`, bytes + `,` + each + `,` + first, `[]`, "éa", []string{"_", "Ã", "_", "©", "a"}},
		"bytes, not first":   {`null`, bytes + `,` + each + `,` + first, `[]`, "aé", []string{"_", "a", "Ã", "©"}},
		"metaspace before":   {`null`, `{"type":"Metaspace","replacement":"x","prepend_scheme":"always","split":false},` + each + `,` + first, `[]`, "ab", []string{"_", "x", "_", "a", "b"}},
		"normalizer":         {`{"type":"ByteLevel"}`, each + `,` + first, `[]`, "éa", []string{"_", "Ã", "_", "©", "a"}},
		"behind a token":     {`{"type":"ByteLevel"}`, each + `,` + first, `[{"id":6,"content":"x","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":false}]`, "xa", []string{"x", "a"}},
		"behind a raw token": {`null`, spaces + `,` + each + `,` + first, `[{"id":9,"content":"<x>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}]`, "<x>a", []string{"<x>", "Ġ", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			tok := mustLoad(t, []byte(`{"added_tokens":`+c.added+`,"normalizer":`+c.normalizer+`,"pre_tokenizer":{"type":"Sequence","pretokenizers":[`+c.pre+`]},
				"model":{"type":"BPE","merges":[],"vocab":{"_":0,"Ġ":1,"a":2,"b":3,"Ã":4,"©":5,"x":6,"Ć":7,"Ĥ":8}}}`))
			var got []string
			for _, id := range tok.Encode(c.text, false) {
				token, _ := tok.Token(id)
				got = append(got, token)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
