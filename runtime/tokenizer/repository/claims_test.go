package repository

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// TestClaims: a short file that claims to be a large one is refused by name, and without the memory for it.
func TestClaims(t *testing.T) {
	file := func(part, value string) func() error {
		b := tokenizertest.Patched(t, []byte(tokenizertest.Small), map[string]json.RawMessage{part: json.RawMessage(value)})
		return func() error { _, err := tokenizer.Load(b); return err }
	}
	split := func(regex string) func() error {
		return file("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"`+regex+`"},"behavior":"Isolated","invert":false}`)
	}
	mtok := func(s string) func() error {
		return func() error { _, err := engine.Open([]byte("430 4\n0 0 0\n\n" + s)); return err }
	}
	model := func(s string) func() error {
		return func() error { _, err := DefineSentencePiece([]byte(s)); return err }
	}
	tekken := func(from, to string) func() error {
		s := strings.Replace(tekkenText(), from, to, 1)
		return func() error { _, err := new(Config).Tekken([]byte(s)); return err }
	}
	const nodes = "\x00\x00" // no normalizer, no pre-tokenizer
	const hundredMillion = "\x00\xe1\xf5\x05"
	const empty = nodes + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x04" // BPE without tokens, decoder Fuse
	for name, c := range map[string]struct {
		read func() error
		is   error
		want string
	}{
		"id of a token":         {file("model", `{"type":"BPE","vocab":{"a":100000000},"merges":[]}`), tensor.ErrUnsupported, "with id 100000000 among 1 tokens"},
		"id of an added token":  {file("added_tokens", `[{"id":2000000000,"content":"<x>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`), tensor.ErrUnsupported, "with id 2000000000"},
		"repetitions":           {split(`a{100000000}`), tensor.ErrUnsupported, "100000000"},
		"nested repetitions":    {split(`(?:(?:a{100}){100}){100}`), tensor.ErrUnsupported, "that large"},
		"groups":                {split(strings.Repeat("(?:", 5000) + "a" + strings.Repeat(")", 5000)), tensor.ErrUnsupported, "nested"},
		"mtok: counts of ids":   {func() error { _, err := engine.Open([]byte("430 4\n100000000 0 0\n1\n")); return err }, tensor.ErrCorrupt, "ids are missing"},
		"mtok: normalizers":     {mtok("\x04" + hundredMillion), tensor.ErrCorrupt, "100000000 entries in 0 bytes"},
		"mtok: table":           {mtok("\x06" + hundredMillion + "x"), tensor.ErrCorrupt, "100000000 entries in 1 bytes"},
		"mtok: vocabulary":      {mtok(nodes + "\x00" + hundredMillion + "\x00\x00\x00\x00\x00\x00"), tensor.ErrCorrupt, "100000000 tokens and 0 merges in 0 bytes"},
		"mtok: pieces":          {mtok(nodes + "\x02" + hundredMillion + "\x00\x00\x00\x00\x00"), tensor.ErrCorrupt, "100000000 tokens"},
		"mtok: merges":          {mtok(nodes + "\x00\x00\x00\x00\x00\x00\x00" + hundredMillion), tensor.ErrCorrupt, "100000000 merges"},
		"mtok: added tokens":    {mtok(empty + hundredMillion), tensor.ErrCorrupt, "100000000 entries"},
		"mtok: template":        {mtok(empty + "\x00\x00\x00\x00" + hundredMillion), tensor.ErrCorrupt, "100000000 entries"},
		"model: field":          {model("\x0a\xff\xff\xff\xff\x0f"), tensor.ErrCorrupt, "ends early"},
		"model: endless number": {model("\x0a" + strings.Repeat("\xff", 1000)), tensor.ErrCorrupt, "field"},
		"tekken: vocabulary":    {tekken(`"default_vocab_size":286`, `"default_vocab_size":1000000000`), tensor.ErrCorrupt, "1000000000"},
		"tekken: special":       {tekken(`"default_num_special_tokens":25`, `"default_num_special_tokens":1000000000`), tensor.ErrCorrupt, "1000000000"},
		"tekken: rank":          {tekken(`"rank":7,`, `"rank":1000000000,`), tensor.ErrCorrupt, "1000000000"},
		"tiktoken: rank": {func() error {
			_, err := (&Config{Class: "QWenTokenizer"}).Tiktoken([]byte(tiktokenFile() + "eHl6 4000000000\n"))
			return err
		}, tensor.ErrCorrupt, "4000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.read()
			runtime.ReadMemStats(&after)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.300v, want %v with %q", err, c.is, c.want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
				t.Errorf("%d bytes allocated", got)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}
