package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// streamed decodes ids one by one.
func streamed(t testing.TB, s interface {
	Next(id int32) string
	Close() string
}, ids []int32, valid bool) string {
	var b strings.Builder
	for _, id := range ids {
		part := s.Next(id)
		if valid && !utf8.ValidString(part) {
			t.Fatalf("%v: %q is not whole characters", ids, part)
		}
		b.WriteString(part)
	}
	b.WriteString(s.Close())
	return b.String()
}

// TestStream: the parts of a stream are the text of the decoder, whatever the ids.
func TestStream(t *testing.T) {
	_, cases := tokenizertest.SmallCases(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i, c := range cases {
		tok := mustLoad(t, c.File)
		for range 50 {
			ids := make([]int32, rng.IntN(12))
			for k := range ids {
				ids[k] = rng.Int32N(int32(tok.VocabSize() + 2))
			}
			for _, skip := range []bool{false, true} {
				if got, want := streamed(t, tok.Stream(skip), ids, true), tok.Decode(ids, skip); got != want {
					t.Errorf("case %d, %v: %q, want %q", i, ids, got, want)
				}
			}
		}
	}
}

// TestStreamNext says what is certain, and when.
func TestStreamNext(t *testing.T) {
	sentencePiece := `{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`
	for name, c := range map[string]struct {
		decoder string
		tokens  []string
		want    []string // the last one is that of Close
	}{
		"prefix space":     {sentencePiece, []string{"▁a", "▁b"}, []string{"a", " b", ""}},
		"space by itself":  {sentencePiece, []string{"▁", "▁", "a"}, []string{"", " ", "a", ""}},
		"bytes":            {sentencePiece, []string{"a", "<0xC3>", "<0xA9>", "b"}, []string{"a", "", "", "éb", ""}},
		"broken bytes":     {sentencePiece, []string{"<0xC3>", "<0xC3>", "<0xA9>", "b"}, []string{"", "\ufffd\ufffd", "\ufffd", "b", ""}},
		"bytes at the end": {sentencePiece, []string{"<0xC3>", "<0xA9>"}, []string{"", "", "é"}},
		"half a character": {sentencePiece, []string{"a", "<0xC3>"}, []string{"a", "", "\ufffd"}},
		"byte level":       {`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}`, []string{"Ġa", "Ã", "©", "Ã", "b"}, []string{" a", "", "é", "", "\ufffdb", ""}},
		"byte level end":   {`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}`, []string{"Ġa", "Ã"}, []string{" a", "", "\ufffd"}},
		"no decoder":       {`null`, []string{"a", "b"}, []string{"a", " b", ""}},
		"Metaspace":        {`{"type":"Metaspace","replacement":"▁"}`, []string{"▁a", "▁b"}, []string{"a", " b", ""}},
		"suffix":           {`{"type":"BPEDecoder","suffix":"</w>"}`, []string{"a</w>", "b</w>"}, []string{"", "a ", "b"}},
		"stop":             {`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]}`, []string{"a", " ", " ", "b"}, []string{"a", "", " ", " b", ""}},
		"pattern in parts": {`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"aab"},"content":"x"}]}`, []string{"a", "a", "a", "b", "a"}, []string{"", "", "a", "x", "", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, err := decoders.read([]byte(c.decoder), maxNesting)
			if err != nil {
				t.Fatal(err)
			}
			tok := &Tokenizer{decoder: d}
			for _, token := range c.tokens {
				tok.tokens, tok.known, tok.special = append(tok.tokens, token), append(tok.known, true), append(tok.special, false)
			}
			s := tok.Stream(false)
			var got []string
			for id := range c.tokens {
				got = append(got, s.Next(int32(id)))
			}
			got = append(got, s.Close())
			if strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestEngineStream: whole characters, and the bytes of Decode.
func TestEngineStream(t *testing.T) {
	b, err := mtokOf(mustLoad(t, tokenizertest.Fixture(t, "qwen")))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range tokenizertest.Corpus(t)[:600] {
		ids := e.Encode(text)
		if got := streamed(t, e.Stream(), ids, utf8.ValidString(e.Decode(ids))); got != e.Decode(ids) {
			t.Errorf("%q: %q", text, got)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		ids := make([]int32, rng.IntN(12))
		for k := range ids {
			ids[k] = rng.Int32N(256) // bytes, mostly
		}
		if got := streamed(t, e.Stream(), ids, false); got != e.Decode(ids) {
			t.Errorf("%v: %q, want %q", ids, got, e.Decode(ids))
		}
	}
}

// FuzzStream decodes any ids with any of the small tokenizers.
func FuzzStream(f *testing.F) {
	_, cases := tokenizertest.SmallCases(f)
	var all []*Tokenizer
	for i, c := range cases {
		all = append(all, mustLoad(f, c.File))
		for _, ids := range c.Decode[:2] {
			seed := []byte{byte(i)}
			for _, id := range ids {
				seed = append(seed, byte(id))
			}
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		tok := all[int(in[0])%len(all)]
		var ids []int32
		for _, b := range in[1:] {
			ids = append(ids, int32(b)%int32(tok.VocabSize()+1))
		}
		if got, want := streamed(t, tok.Stream(true), ids, true), tok.Decode(ids, true); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestDecoderGrowth compares what decoders make of tokens with the bound that sequences of them are judged by.
func TestDecoderGrowth(t *testing.T) {
	t.Parallel()
	tokens := []string{"a", "", "\u00ff", "\u00ff\u0100", "  ", "<0xFF>", "\u2581a", "aaa", " do not", "é"}
	for _, raw := range []string{
		`{"type":"BPEDecoder","suffix":""}`, `{"type":"ByteFallback"}`, `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}`,
		`{"type":"CTC","pad_token":"","word_delimiter_token":"","cleanup":true}`, `{"type":"Fuse"}`, `{"type":"Metaspace","replacement":"a"}`,
		`{"type":"Replace","pattern":{"String":"a"},"content":"bbb"}`, `{"type":"Replace","pattern":{"Regex":"a?"},"content":"bbb"}`,
		`{"type":"Strip","content":"a","start":9223372036854775808,"stop":9223372036854775808}`, `{"type":"WordPiece","prefix":"a","cleanup":true}`,
		decoderList(4, `{"type":"Replace","pattern":{"String":"a"},"content":"aaaa"}`),
	} {
		d, _, err := decoders.read(json.RawMessage(raw), maxNesting)
		if err != nil {
			t.Fatal(raw, err)
		}
		factor := 1
		switch d := d.(type) {
		case grower:
			factor = d.growth()
		case decoderSequence:
			factor = maxGrowth
		}
		var out text
		in, limit := d.stream(&out), 0
		for _, token := range tokens {
			in.write(token, true)
			limit += factor * max(1, len(token))
		}
		if in.close(); len(out) > limit {
			t.Errorf("%s: %d bytes, want at most %d", raw, len(out), limit)
		}
	}
}
