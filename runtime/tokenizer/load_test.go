package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

func TestLoadRefuses(t *testing.T) {
	model := func(rest string) string { return `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[]` + rest + `}` }
	added := func(id, content string) string {
		return `[{"id":` + id + `,"content":"` + content + `","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`
	}
	split := func(regex string) string {
		r, _ := json.Marshal(regex)
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(r) + `},"behavior":"Isolated","invert":false},{"type":"ByteLevel"}]}`
	}
	for name, c := range map[string]struct {
		part, value string
		is          error
		want        string
	}{
		"Precompiled":         {"normalizer", `{"type":"Precompiled","precompiled_charsmap":""}`, tensor.ErrCorrupt, `normalizer "Precompiled": table of replacements: too short`},
		"nested normalizer":   {"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Titlecase"}]}`, tensor.ErrUnsupported, `normalizer "Titlecase"`},
		"dropout":             {"model", model(`,"dropout":0.1`), tensor.ErrUnsupported, "dropout"},
		"unk":                 {"model", model(`,"unk_token":"x"`), tensor.ErrUnsupported, `unk_token "x"`},
		"no vocab":            {"model", `{"type":"BPE","merges":[]}`, tensor.ErrCorrupt, "no vocab"},
		"prefix is longer":    {"model", `{"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`, tensor.ErrCorrupt, "merge 0"},
		"unknown setting":     {"model", model(`,"shape":1`), tensor.ErrUnsupported, `"shape"`},
		"unknown part":        {"colour", `1`, tensor.ErrUnsupported, `"colour"`},
		"back reference":      {"pre_tokenizer", split(`(a)\1`), tensor.ErrUnsupported, "back reference"},
		"recursion":           {"pre_tokenizer", split(`(a)\g<1>`), tensor.ErrUnsupported, "call of a group"},
		"condition":           {"pre_tokenizer", split(`(a)?(?(1)b)`), tensor.ErrUnsupported, "condition"},
		"range of classes":    {"pre_tokenizer", split(`[\d-z]`), tensor.ErrCorrupt, "begins with a class"},
		"ligature":            {"pre_tokenizer", split(`(?i:ss)`), tensor.ErrUnsupported, "fold to a single one"},
		"open group":          {"pre_tokenizer", split(`(a`), tensor.ErrCorrupt, "without end"},
		"open class":          {"pre_tokenizer", split(`[a`), tensor.ErrCorrupt, "without end"},
		"added id":            {"added_tokens", added("9", "<x>"), tensor.ErrUnsupported, "3 is next"},
		"added id differs":    {"added_tokens", added("1", "a"), tensor.ErrCorrupt, "but 0 in the vocabulary"},
		"added lacks":         {"added_tokens", `[{"id":3,"content":"<x>"}]`, tensor.ErrCorrupt, "added token 0 lacks"},
		"merge of no token":   {"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`, tensor.ErrCorrupt, "merge 0"},
		"merge of three":      {"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b a"]}`, tensor.ErrCorrupt, "3 parts"},
		"no merges":           {"model", `{"type":"BPE","vocab":{"a":0,"b":1}}`, tensor.ErrCorrupt, "no merges"},
		"same id twice":       {"model", `{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}`, tensor.ErrCorrupt, "id 0 is both"},
		"huge id":             {"model", `{"type":"BPE","vocab":{"a":4294967295},"merges":[]}`, tensor.ErrUnsupported, "4294967295"},
		"negative id":         {"model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, tensor.ErrCorrupt, "model"},
		"no model":            {"model", `null`, tensor.ErrCorrupt, "no model"},
		"version":             {"version", `"2.0"`, tensor.ErrUnsupported, `version "2.0"`},
		"truncation":          {"truncation", `{"max_length":5,"strategy":"LongestFirst"}`, tensor.ErrCorrupt, "truncation lacks a setting"},
		"truncation strategy": {"truncation", `{"max_length":5,"strategy":"None","stride":0}`, tensor.ErrCorrupt, "truncation lacks a setting"},
		"padding":             {"padding", `{"strategy":"BatchLongest","direction":"Up","pad_id":0,"pad_type_id":0,"pad_token":"x"}`, tensor.ErrCorrupt, "padding lacks a setting"},
		"padding strategy":    {"padding", `{"strategy":{},"direction":"Left","pad_id":0,"pad_type_id":0,"pad_token":"x"}`, tensor.ErrUnsupported, "padding with strategy {}"},
		"folded field":        {"normalizer", `{"type":"NFC","TYPE":"NFD"}`, tensor.ErrUnsupported, `"TYPE"`},
		"folded part":         {"Normalizer", `null`, tensor.ErrUnsupported, `"Normalizer"`},
		"decoder lacks":       {"decoder", `{"type":"ByteLevel"}`, tensor.ErrCorrupt, "lacks a setting"},
		"processor lacks":     {"post_processor", `{"type":"ByteLevel","add_prefix_space":true}`, tensor.ErrCorrupt, "lacks a setting"},
		"processor's id":      {"post_processor", `{"type":"BertProcessing","sep":["a",0],"cls":["x",9]}`, tensor.ErrUnsupported, "id 9"},
		"CTC lacks":           {"decoder", `{"type":"CTC","pad_token":"a","word_delimiter_token":"b"}`, tensor.ErrCorrupt, "lacks a setting, cleanup"},
		"Digits lacks":        {"pre_tokenizer", `{"type":"Digits","individual_digits":null}`, tensor.ErrCorrupt, "lacks a setting, individual_digits"},
		"Punctuation null":    {"pre_tokenizer", `{"type":"Punctuation","behavior":null}`, tensor.ErrCorrupt, "lacks a setting, behavior"},
		"template lacks":      {"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}}`, tensor.ErrCorrupt, "lacks a setting, pair"},
		"sequence of null":    {"normalizer", `{"type":"Sequence","normalizers":null}`, tensor.ErrCorrupt, "normalizers is not a list"},
		"two patterns":        {"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"a","REGEX":"b"},"behavior":"Removed","invert":false}`, tensor.ErrCorrupt, "a pattern of 2 members"},
		"folded pattern":      {"normalizer", `{"type":"Replace","pattern":{"regex":"a"},"content":"b"}`, tensor.ErrCorrupt, "pattern"},
		"many decoders":       {"decoder", decoderList(65, `{"type":"Fuse"}`), tensor.ErrUnsupported, "of 65 decoders"},
		"nested decoders":     {"decoder", decoderList(9, decoderList(8, `{"type":"ByteFallback"}`)), tensor.ErrUnsupported, "of 72 decoders"},
		"deep decoders":       {"decoder", strings.Repeat(`{"type":"Sequence","decoders":[`, 9) + strings.Repeat("]}", 9), tensor.ErrUnsupported, "nested so deep"},
		"growing decoders":    {"decoder", decoderList(9, `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`), tensor.ErrUnsupported, "more than 256 bytes of one"},
		"growing regex":       {"decoder", decoderList(3, `{"type":"Replace","pattern":{"Regex":"a"},"content":"aaaaaaa"}`), tensor.ErrUnsupported, "more than 256 bytes of one"},
		"one large decoder":   {"decoder", `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", 257) + `"}`, tensor.ErrUnsupported, "content of 257 bytes"},
		"empty delimiters":    {"decoder", decoderList(9, `{"type":"CTC","pad_token":"a","word_delimiter_token":"","cleanup":true}`), tensor.ErrUnsupported, "more than 256 bytes of one"},
		"empty suffixes":      {"decoder", decoderList(9, `{"type":"BPEDecoder","suffix":""}`), tensor.ErrUnsupported, "more than 256 bytes of one"},
		"null in sequence":    {"decoder", `{"type":"Sequence","decoders":[null]}`, tensor.ErrCorrupt, "a member is null"},
		"template null":       {"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[null],"special_tokens":{}}`, tensor.ErrCorrupt, "neither a text nor a token"},
		"template text":       {"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"","type_id":0}}],"special_tokens":{}}`, tensor.ErrCorrupt, "neither A nor B"},
		"no length":           {"pre_tokenizer", `{"type":"FixedLength","length":0}`, tensor.ErrUnsupported, "of no length"},
		"template type":       {"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],"pair":[],"special_tokens":{}}`, tensor.ErrCorrupt, "no type_id"},
		"template token's":    {"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"a":{"id":"a","ids":[0]}}}`, tensor.ErrCorrupt, "a token lacks"},
		"optional assertion":  {"pre_tokenizer", split(`(?:a|^)?b`), tensor.ErrCorrupt, "quantifier of an assertion"},
		"group of assertion":  {"pre_tokenizer", split(`((?!a)){1,3}`), tensor.ErrUnsupported, "what can be empty"},
		"no type":             {"post_processor", `{"add_prefix_space":true,"trim_offsets":true}`, tensor.ErrUnsupported, "post-processor without a type"},
		"type is no text":     {"decoder", `{"type":{}}`, tensor.ErrUnsupported, "decoder without a type"},
		"template without it": {"post_processor", `{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}}`, tensor.ErrUnsupported, "without the text"},
		"template token":      {"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`, tensor.ErrCorrupt, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{c.part: json.RawMessage(c.value)}))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || tok != nil {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for _, b := range []string{"", "{", "[]", "null x", tokenizertest.Small + "{}", tokenizertest.Small[:len(tokenizertest.Small)/2], "{\"version\":\"\xff\"}"} {
		if _, err := Load([]byte(b)); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%.20q: %v", b, err)
		}
	}
}

// TestLoadTakes what serves batches, and what may be missing.
func TestLoadTakes(t *testing.T) {
	for _, c := range []struct{ part, value string }{
		{"truncation", `{"max_length":5,"strategy":"OnlySecond","stride":1}`},
		{"truncation", `{"direction":"Left","max_length":0,"strategy":"LongestFirst","stride":0}`},
		{"padding", `{"strategy":"BatchLongest","direction":"Left","pad_id":0,"pad_type_id":0,"pad_token":"x"}`},
		{"padding", `{"strategy":{"Fixed":20},"direction":"Right","pad_to_multiple_of":8,"pad_id":0,"pad_type_id":0,"pad_token":"x"}`},
	} {
		mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{c.part: json.RawMessage(c.value)}))
	}
	mustLoad(t, []byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`))
}

func TestAccessors(t *testing.T) {
	tok := mustLoad(t, tokenizertest.Fixture(t, "llama3"))
	id, ok := tok.ID("<|begin_of_text|>")
	if !ok || !slices.Equal(tok.PrefixIDs(), []int32{id}) || len(tok.suffix) != 0 {
		t.Errorf("bos is %d, %v; prefix %v, suffix %v", id, ok, tok.PrefixIDs(), tok.suffix)
	}
	if s, ok := tok.Token(id); s != "<|begin_of_text|>" || !ok {
		t.Errorf("Token(%d) = %q, %v", id, s, ok)
	}
	for _, id := range []int32{-1, int32(tok.VocabSize())} {
		if s, ok := tok.Token(id); ok {
			t.Errorf("Token(%d) = %q", id, s)
		}
	}
	if a := tok.AddedTokens(); len(a) != 4 || a[3].ID != id || !a[3].Special {
		t.Errorf("added tokens %v", a)
	}
	if got := tok.Decode(append(tok.Encode("a b", true), -5, 1<<30), true); got != "a b" {
		t.Errorf("decoded to %q", got)
	}
	if got, want := tok.Encode("a\xffb\xe2\x82", false), tok.Encode("a\ufffdb\ufffd", false); !slices.Equal(got, want) {
		t.Errorf("bytes that are not UTF-8: %v, want %v", got, want)
	}
}

func TestSingleWord(t *testing.T) {
	tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{"added_tokens": json.RawMessage(
		`[{"id":3,"content":"b a","single_word":true,"lstrip":false,"rstrip":false,"normalized":true,"special":false}]`)}))
	for text, want := range map[string][]int32{
		"b a": {3}, "(b a)": {3}, "ab a": {2, 0}, "b ab": {1, 2}, "b a b a": {3, 3}, "éb a": {1, 0}, "b a_": {1, 0}, "b a\u200d": {1, 0}, "b a\u0301": {1, 0},
	} {
		// Characters other than a and b are unknown to this vocabulary and vanish.
		if got := tok.Encode(text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// prose is a long English text.
var prose = filepath.Join("..", "..", "verify", "text.txt")

// proseDigest is that of the ids of [prose].
const proseDigest = "68241c22"

// TestProse compares a long text as a whole; the count and the digest are those of the library tokenizers 0.23.3.
func TestProse(t *testing.T) {
	b, err := os.ReadFile(prose)
	if err != nil {
		t.Fatal(err)
	}
	tok := mustLoad(t, tokenizertest.Fixture(t, "tiny-qwen3"))
	ids := tok.Encode(string(b), false)
	if len(ids) != 14226 {
		t.Errorf("%d ids", len(ids))
	}
	if got := tokenizertest.Digest(tokenizertest.JoinIDs(ids)); got != proseDigest {
		t.Errorf("digest %s", got)
	}
	if tok.Decode(ids, false) != string(b) {
		t.Error("decoded text differs")
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := mustLoad(b, tokenizertest.Fixture(b, "tiny-qwen3"))
	for name, text := range benchTexts(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, false)
			}
		})
	}
}

func BenchmarkEngineEncode(b *testing.B) {
	file, err := mtokOf(mustLoad(b, tokenizertest.Fixture(b, "tiny-qwen3")))
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range benchTexts(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				e.Encode(text)
			}
		})
	}
}

// benchTexts are the corpus, where few words come back, and English prose.
func benchTexts(b *testing.B) map[string]string {
	out := map[string]string{"corpus": strings.Join(tokenizertest.Corpus(b), "\n")}
	text, err := os.ReadFile(prose)
	if err != nil {
		b.Fatal(err)
	}
	out["prose"] = string(text)
	return out
}

func BenchmarkLoad(b *testing.B) {
	file := tokenizertest.Fixture(b, "tiny-qwen3")
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Load(file); err != nil {
			b.Fatal(err)
		}
	}
}

// decoderList is a Sequence of n decoders.
func decoderList(n int, decoder string) string {
	return `{"type":"Sequence","decoders":[` + strings.TrimSuffix(strings.Repeat(decoder+",", n), ",") + "]}"
}

// Nothing follows the value, a stray bracket neither.
func TestStrictEnds(t *testing.T) {
	for text, good := range map[string]bool{"{}": true, " {} \n": true, "{}}": false, "{}]": false, "{}{}": false, "{},": false} {
		if err := strict("file", []byte(text), &struct{}{}); (err == nil) != good || err != nil && !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
