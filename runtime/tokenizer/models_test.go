package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// TestModels compares small tokenizers of every kind with the Python library.
func TestModels(t *testing.T) {
	texts, cases := tokenizertest.SmallCases(t)
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tok := mustLoad(t, c.File)
			var ids, special []string
			for _, s := range texts {
				ids = append(ids, tokenizertest.JoinIDs(tok.Encode(s, false)))
				special = append(special, tokenizertest.JoinIDs(tok.Encode(s, true)))
			}
			if tokenizertest.Digest(strings.Join(ids, ";")) != c.IDs {
				t.Errorf("ids differ (models.py show %d) of %s", i, c.File)
			}
			if tokenizertest.Digest(strings.Join(special, ";")) != c.Special {
				t.Error("ids with special tokens differ")
			}
			var decoded []string
			for _, ids := range c.Decode {
				decoded = append(decoded, tok.Decode(ids, false)+"\x00"+tok.Decode(ids, true))
			}
			if tokenizertest.Digest(strings.Join(decoded, "\x00")) != c.Texts {
				t.Errorf("decoded texts differ (models.py show %d) of %s", i, c.File)
			}
		})
	}
}

func TestModelsRefuse(t *testing.T) {
	const unigram, decoder, post = `{"type":"Unigram","unk_id":0,"vocab":`, "decoder", "post_processor"
	template := func(single, special string) string {
		return `{"type":"TemplateProcessing","single":[` + single + `],"pair":[],"special_tokens":{` + special + `}}`
	}
	const a, x = `{"Sequence":{"id":"A","type_id":0}}`, `{"SpecialToken":{"id":"x","type_id":0}}`
	const xToken = `"x":{"id":"x","ids":[0],"tokens":["x"]}`
	for name, c := range map[string]struct {
		part, value string
		is          error
		want        string
	}{
		"no type":               {"model", `{"vocab":[]}`, tensor.ErrUnsupported, `model "Unigram" without unk_id`},
		"unigram without unk":   {"model", `{"type":"Unigram","vocab":[["a",0]]}`, tensor.ErrUnsupported, "without unk_id"},
		"unigram without vocab": {"model", `{"type":"Unigram","unk_id":0}`, tensor.ErrCorrupt, "no vocab"},
		"empty unigram":         {"model", unigram + `[]}`, tensor.ErrCorrupt, "unk_id 0 of 0 tokens"},
		"unk_id":                {"model", `{"type":"Unigram","unk_id":1,"vocab":[["a",0]]}`, tensor.ErrCorrupt, "unk_id 1 of 1 tokens"},
		"score is a text":       {"model", unigram + `[["a","0"]]}`, tensor.ErrCorrupt, `score of token "a"`},
		"score is null":         {"model", unigram + `[["a",null]]}`, tensor.ErrCorrupt, `score of token "a"`},
		"score is infinite":     {"model", unigram + `[["a",-1e999]]}`, tensor.ErrCorrupt, "too large"},
		"score is missing":      {"model", unigram + `[["a"]]}`, tensor.ErrCorrupt, "not a token with a score"},
		"score and more":        {"model", unigram + `[["a",0,0]]}`, tensor.ErrCorrupt, "not a token with a score"},
		"token is a number":     {"model", unigram + `[[0,0]]}`, tensor.ErrCorrupt, "not a token with a score"},
		"long piece":            {"model", unigram + `[["a",0],["` + strings.Repeat("a", 5000) + `",0]]}`, tensor.ErrUnsupported, "a token of 5000 bytes"},
		"WordPiece":             {"model", `{"type":"WordPiece","vocab":{}}`, tensor.ErrCorrupt, "lacks a setting"},
		"WordPiece without unk": {"model", `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"","max_input_chars_per_word":9,"vocab":{"a":0}}`, tensor.ErrUnsupported, `unk_token "u"`},
		"long word piece": {"model", `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"","max_input_chars_per_word":9,"vocab":{"u":0,"` + strings.Repeat("a", 5000) + `":1}}`,
			tensor.ErrUnsupported, "a token of 5000 bytes"},
		"negative length":       {"model", `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"","max_input_chars_per_word":-1,"vocab":{"u":0}}`, tensor.ErrCorrupt, "model"},
		"WordLevel":             {"model", `{"type":"WordLevel","vocab":{}}`, tensor.ErrCorrupt, "lacks a setting"},
		"WordLevel without unk": {"model", `{"type":"WordLevel","unk_token":"u","vocab":{}}`, tensor.ErrUnsupported, `unk_token "u"`},
		"decoder":               {decoder, `{"type":"Colour"}`, tensor.ErrUnsupported, `decoder "Colour"`},
		"decoder setting":       {decoder, `{"type":"Fuse","colour":1}`, tensor.ErrUnsupported, `"colour"`},
		"Replace":               {decoder, `{"type":"Replace","pattern":{},"content":""}`, tensor.ErrCorrupt, "no pattern"},
		"Replace nothing":       {decoder, `{"type":"Replace","pattern":{"String":""},"content":""}`, tensor.ErrUnsupported, "of the empty text"},
		"Replace regex":         {decoder, `{"type":"Replace","pattern":{"Regex":"(a"},"content":""}`, tensor.ErrCorrupt, `decoder "Replace"`},
		"Strip":                 {decoder, `{"type":"Strip","content":"ab","start":1,"stop":0}`, tensor.ErrCorrupt, `"ab" is not one character`},
		"Metaspace":             {decoder, `{"type":"Metaspace","replacement":""}`, tensor.ErrCorrupt, "is not one character"},
		"prepend_scheme":        {decoder, `{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`, tensor.ErrCorrupt, `prepend_scheme "last"`},
		"prepend_scheme both":   {decoder, `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false}`, tensor.ErrCorrupt, "contradicts"},
		"deep decoder":          {decoder, strings.Repeat(`{"type":"Sequence","decoders":[`, 20) + strings.Repeat(`]}`, 20), tensor.ErrUnsupported, "nested so deep"},
		"BertProcessing":        {post, `{"type":"BertProcessing","sep":["a",0]}`, tensor.ErrCorrupt, "lacks a token"},
		"Bert id":               {post, `{"type":"BertProcessing","sep":["a",0],"cls":["a",7]}`, tensor.ErrUnsupported, "id 7, which is not a token"},
		"Bert token":            {post, `{"type":"BertProcessing","sep":["a",0,0],"cls":["a",0]}`, tensor.ErrCorrupt, "a token of 3 parts"},
		"Roberta id":            {post, `{"type":"RobertaProcessing","sep":["a",4294967295],"cls":["a",0]}`, tensor.ErrCorrupt, "post-processor"},
		"two texts":             {post, template(a+","+a, ""), tensor.ErrUnsupported, "more than one text"},
		"text B":                {post, template(`{"Sequence":{"id":"B","type_id":0}}`, ""), tensor.ErrUnsupported, "more than one text"},
		"template id":           {post, template(a+","+x, `"x":{"id":"x","ids":[9],"tokens":["x"]}`), tensor.ErrUnsupported, "id 9, which is not a token"},
		"behind a template": {post, `{"type":"Sequence","processors":[` + template(x+","+a, xToken) + `,{"type":"BertProcessing","sep":["a",0],"cls":["a",0]}]}`,
			tensor.ErrUnsupported, `after "TemplateProcessing"`},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{c.part: json.RawMessage(c.value)}))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || tok != nil {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// hostileModels are files whose models have what costs most in each, without a pre-tokenizer.
func hostileModels(t testing.TB) map[string][]byte {
	run := strings.Repeat("a", 512)
	var unigram, pieces, merges, tokens []string
	for i := range 300 {
		unigram = append(unigram, fmt.Sprintf(`["%s",-1]`, run[:i+1]))
		pieces = append(pieces, fmt.Sprintf(`"%s":%d`, run[:i+1], i+1))
	}
	for i := range 10 {
		tokens = append(tokens, fmt.Sprintf(`"%s":%d`, run[:1<<i], i))
		if i > 0 {
			merges = append(merges, fmt.Sprintf(`["%[1]s","%[1]s"]`, run[:1<<(i-1)]))
		}
	}
	// Every merge of a and b in all orders, and a merge of a token with itself.
	cyclic := `{"type":"BPE","vocab":{"a":0,"b":1,"aa":2,"ab":3,"ba":4,"bb":5,"":6},"merges":[["",""],["a",""],["a","a"],["a","b"],["b","a"],["b","b"],["a","a"],["","b"]]}`
	out := map[string][]byte{}
	for name, model := range map[string]string{
		"unigram":   `{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],` + strings.Join(unigram, ",") + `]}`,
		"wordpiece": `{"type":"WordPiece","unk_token":"<unk>","continuing_subword_prefix":"","max_input_chars_per_word":10000000,"vocab":{"<unk>":0,` + strings.Join(pieces, ",") + `}}`,
		"bpe":       `{"type":"BPE","vocab":{` + strings.Join(tokens, ",") + `},"merges":[` + strings.Join(merges, ",") + `]}`,
		"cyclic":    cyclic,
		"fallback":  `{"type":"BPE","byte_fallback":true,"unk_token":"a","fuse_unk":true,"vocab":{"a":0,"<0x20>":1},"merges":[]}`,
		"one":       `{"type":"BPE","unk_token":"","vocab":{"":0},"merges":[]}`,
	} {
		out[name] = tokenizertest.Patched(t, []byte(tokenizertest.Small),
			map[string]json.RawMessage{"pre_tokenizer": json.RawMessage("null"), "decoder": json.RawMessage("null"),
				"model": json.RawMessage(model)})
	}
	return out
}

// TestHostileModels bounds the time for a word of half a megabyte.
func TestHostileModels(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const size, limit = 1 << 19, 30 * time.Second // far above the second or so that it takes
	for name, file := range hostileModels(t) {
		tok := mustLoad(t, file)
		for _, unit := range []string{"a", "ab", "\u00e9"} {
			text := strings.Repeat(unit, size/len(unit))
			took := tokenizertest.Took(func() { tok.Decode(tok.Encode(text, false), false) })
			if took > limit {
				t.Errorf("%s: %q took %v", name, unit, took)
			} else {
				t.Logf("%s: %q took %v", name, unit, took)
			}
		}
	}
}

// TestLoadMemory holds what Load allocates to a multiple of the file, also for tokens of a megabyte.
func TestLoadMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	long := strings.Repeat("a", 1<<20)
	var many, list []string
	for i := range 50000 {
		many = append(many, fmt.Sprintf(`"%x":%d`, i, i))
		list = append(list, fmt.Sprintf(`["%x",-%d.5]`, i, i))
	}
	for name, model := range map[string]string{
		"long token":    `{"type":"BPE","vocab":{"a":0,"` + long + `":1},"merges":[]}`,
		"long merge":    `{"type":"BPE","vocab":{"a":0},"merges":["` + long + `"]}`,
		"long key":      `{"type":"BPE","vocab":{},"merges":[],"` + long + `":1}`,
		"long piece":    `{"type":"Unigram","unk_id":0,"vocab":[["` + long + `",0]]}`,
		"long unk":      `{"type":"WordLevel","unk_token":"` + long + `","vocab":{}}`,
		"many":          `{"type":"BPE","vocab":{` + strings.Join(many, ",") + `},"merges":[]}`,
		"many words":    `{"type":"WordPiece","unk_token":"0","continuing_subword_prefix":"","max_input_chars_per_word":9,"vocab":{` + strings.Join(many, ",") + `}}`,
		"many pieces":   `{"type":"Unigram","unk_id":0,"vocab":[` + strings.Join(list, ",") + `]}`,
		"many brackets": `{"type":"Unigram","unk_id":0,"vocab":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
	} {
		file := tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{"model": json.RawMessage(model),
			"pre_tokenizer": json.RawMessage("null")})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load(file)
		runtime.ReadMemStats(&after)
		// Maps, tries and the tables of ids take some thirty times a token of a few bytes.
		const fixed, factor = 1 << 20, 40
		if got, want := int(after.TotalAlloc-before.TotalAlloc), fixed+factor*len(file); got > want {
			t.Errorf("%s: %d bytes for a file of %d", name, got, len(file))
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
	}
}

// TestSerdeFloat holds numbers to what the library reads, of which many differ from those of a parser that rounds once.
func TestSerdeFloat(t *testing.T) {
	var file struct{ Numbers [][2]string }
	tokenizertest.ReadJSON(t, "models.json", &file)
	twice := 0
	for _, n := range file.Numbers {
		want, err := strconv.ParseFloat(n[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := serdeFloat([]byte(n[0])); err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s is %v, %v, want %v", n[0], got, err, want)
		}
		if once, _ := strconv.ParseFloat(n[0], 64); once != want {
			twice++
		}
	}
	if twice < 20 {
		t.Errorf("only %d numbers that are rounded twice", twice)
	}
	for _, in := range []string{"1e999", "-", "null", `"1"`, "1e309", "99999999999e300"} {
		if f, err := serdeFloat([]byte(in)); err == nil {
			t.Errorf("%s is %v", in, f)
		}
	}
}
