package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

var mtokDir = flag.String("mtok", "", "write the .mtok of every tokenizer that has one into this folder, for testdata/engine.py")

// mtokOf writes a tokenizer with the options that a checkpoint would have.
func mtokOf(tok *Tokenizer) ([]byte, error) {
	b, _, err := mtokAndLosses(tok)
	return b, err
}

func mtokAndLosses(tok *Tokenizer) ([]byte, []string, error) {
	o := MTOKOptions{Special: tok.SpecialIDs(), Prefix: tok.PrefixIDs(), ChatTemplate: "{{ messages }}", EOS: "<|im_end|>"}
	if id, ok := tok.ID("<|im_end|>"); ok {
		o.Stop = []int32{id}
	}
	return tok.MTOK(o)
}

// engineGolden is what MNN gave for one tokenizer.mtok; see testdata/engine.py.
type engineGolden struct {
	SHA256 string   // of the file
	IDs    []string // digest of the ids of each text, empty for texts that the binding cuts
	Decode [][2]any // ids and their text
}

// TestEngineGolden compares an Engine with the real one, and its ids with those of tokenizer.json.
func TestEngineGolden(t *testing.T) {
	texts := tokenizertest.Corpus(t)
	var want map[string]engineGolden
	if *mtokDir == "" {
		tokenizertest.ReadJSON(t, "engine.json", &want)
	}
	var all map[string]golden
	tokenizertest.ReadJSON(t, "ids.json", &all)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if testing.Short() && i%2 != 0 {
			continue
		}
		g := all[name]
		t.Run(name, func(t *testing.T) {
			tok := mustLoad(t, tokenizertest.Patched(t, tokenizertest.Fixture(t, g.Base), g.Parts))
			b, losses, err := mtokAndLosses(tok)
			if err != nil {
				if !errors.Is(err, tensor.ErrUnsupported) {
					t.Fatal(err)
				}
				if _, ok := want[name]; ok {
					t.Fatalf("refused: %v", err)
				}
				t.Logf("refused: %v", err)
				return
			}
			if *mtokDir != "" {
				if err := os.WriteFile(filepath.Join(*mtokDir, name+".mtok"), b, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			w, ok := want[name]
			if !ok {
				t.Fatal("engine.json lacks it")
			}
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != w.SHA256 {
				t.Error("the file is not the one that the engine read: see testdata/engine.py")
			}
			e, err := engine.Open(b)
			if err != nil {
				t.Fatal(err)
			}
			compareEngine(t, e, w, texts)
			differ := 0
			for i, s := range texts {
				if tokenizertest.Digest(tokenizertest.JoinIDs(e.Encode(s)[len(e.Prefix()):])) == g.IDs[i] {
					continue
				}
				differ++
				if strings.Contains(s, "<tool>") && strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 && unicode.IsSpace(r) }) {
					continue // white space next to a token with lstrip and rstrip
				}
				if strings.Contains(strings.Join(losses, ""), "not cut off") || strings.Contains(s, "'ſ") {
					continue // the long s is no s to the engine, whatever the case
				}
				if !foldedApart(s) && (tok.normalizer == nil || nfc(s) == s && !strings.ContainsFunc(s, isTrailingJamo)) && tok.model.(*bpe).unreached() == 0 {
					t.Errorf("text %d, %.60q: other ids than tokenizer.json, for no reason among its losses", i, s)
				}
			}
			t.Logf("%d of %d texts have other ids than tokenizer.json; losses: %q", differ, len(texts), losses)
			if e.VocabSize() != tok.VocabSize() || e.ChatTemplate() != "{{ messages }}" || e.EOS() != "<|im_end|>" {
				t.Errorf("vocabulary %d, template %q, eos %q", e.VocabSize(), e.ChatTemplate(), e.EOS())
			}
			if diff := cmp.Diff(tok.PrefixIDs(), e.Prefix()); diff != "" {
				t.Error(diff)
			}
			again, err := marshalled(b)
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("marshalling gives other bytes, %v", err)
			}
		})
	}
}

// foldedApart reports whether s has a character that the engine's scanner takes for another class than others do:
// control characters that collide with its marks, line separators, code points younger than Unicode 15.
func foldedApart(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		if r >= 1 && r <= 7 || r == 0x85 || r == 0x2028 || r == 0x2029 || unicode.Is(chars.NumericOnly, r) {
			return true
		}
		for _, t := range chars.Younger {
			if unicode.Is(t, r) {
				return true
			}
		}
		return false
	})
}

// TestForeign opens the file that MNN's own exporter wrote of the repository's tiny model, with its table for NFC.
func TestForeign(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "foreign.mtok"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]engineGolden
	tokenizertest.ReadJSON(t, "engine.json", &want)
	e, err := engine.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	compareEngine(t, e, want["foreign"], tokenizertest.Corpus(t))
	again, err := marshalled(b)
	if err != nil || !bytes.Equal(again, b) {
		t.Errorf("marshalling gives other bytes, %v", err)
	}
}

// marshalled reads a file and writes it.
func marshalled(b []byte) ([]byte, error) {
	m, err := mtok.Parse(b)
	if err != nil {
		return nil, err
	}
	return m.Marshal()
}

func compareEngine(t *testing.T, e *engine.Tokenizer, w engineGolden, texts []string) {
	t.Helper()
	bad, compared := 0, 0
	for i, s := range texts {
		if w.IDs[i] == "" {
			continue
		}
		compared++
		if ids := e.Encode(s); tokenizertest.Digest(tokenizertest.JoinIDs(ids)) != w.IDs[i] {
			if bad++; bad <= 3 {
				t.Errorf("text %d, %.60q: %v differs from the engine", i, s, ids[:min(len(ids), 40)])
			}
		}
	}
	t.Logf("%d of %d texts differ from the engine", bad, compared)
	if compared < 2000 {
		t.Errorf("only %d texts compared", compared)
	}
	for _, d := range w.Decode {
		var ids []int32
		for _, v := range d[0].([]any) {
			ids = append(ids, int32(v.(float64)))
		}
		if got := lossy(e.Decode(ids)); got != d[1] {
			t.Errorf("Decode(%v) = %q, want %q", ids, got, d[1])
		}
	}
}

// TestMTOKRefuses names what a tokenizer.mtok cannot say.
func TestMTOKRefuses(t *testing.T) {
	split := func(regex, behavior string) string {
		r, _ := json.Marshal(regex)
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(r) + `},"behavior":"` + behavior +
			`","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}`
	}
	for name, c := range map[string]struct{ part, value, want string }{
		"look-ahead":  {"pre_tokenizer", split(`a(?=b)`, "Isolated"), "positive look-ahead"},
		"mixed":       {"pre_tokenizer", split(`\p{L}|é`, "Isolated"), "outside ASCII"},
		"empty":       {"pre_tokenizer", split(`a*`, "Isolated"), "may be empty"},
		"line end":    {"pre_tokenizer", split(`a$`, "Isolated"), `'$'`},
		"digits":      {"pre_tokenizer", split(`\d+`, "Isolated"), `escape \d`},
		"group":       {"pre_tokenizer", split(`(?:a|ab)c`, "Isolated"), "after a group"},
		"lazy":        {"pre_tokenizer", split(`a+?b`, "Isolated"), "lazy"},
		"behavior":    {"pre_tokenizer", split(`ab`, "MergedWithNext"), "MergedWithNext"},
		"many nodes":  {"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]}`, "normalizers"},
		"single word": {"added_tokens", `[{"id":64,"content":"a","single_word":true,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`, "single_word"},
	} {
		t.Run(name, func(t *testing.T) {
			b := tokenizertest.Patched(t, tokenizertest.Fixture(t, "gpt2"), map[string]json.RawMessage{c.part: json.RawMessage(c.value)})
			_, err := mtokOf(mustLoad(t, b))
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func isTrailingJamo(r rune) bool { return r > hangulT && r < hangulT+hangulTs }

// TestRelease: what 3.5.0 misreads is not written for it.
func TestRelease(t *testing.T) {
	tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{"normalizer": json.RawMessage(`{"type":"Strip","strip_left":true,"strip_right":false}`)}))
	if _, _, err := tok.MTOK(MTOKOptions{Release: "3.5"}); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "since 3.6.0") {
		t.Errorf("for 3.5: %v", err)
	}
	b, _, err := tok.MTOK(MTOKOptions{Release: "3.6"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(b)
	if err != nil || e.Since() != "3.6.0" {
		t.Errorf("for 3.6: %v, since %s", err, e.Since())
	}
}

// TestUnigramScores: a sum of huge scores would not tell texts apart in the engine.
func TestUnigramScores(t *testing.T) {
	for score, ok := range map[string]bool{"-12.5": true, "-5e6": false} {
		tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{
			"model":         json.RawMessage(`{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[["<unk>",0],["a",-1],["b",` + score + `]]}`),
			"pre_tokenizer": json.RawMessage("null"), "decoder": json.RawMessage("null"),
		}))
		if _, _, err := tok.MTOK(MTOKOptions{}); (err == nil) != ok || err != nil && !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("score %s: %v", score, err)
		}
	}
}
