package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Load reads the bytes of a tokenizer.json: byte-level BPE with the normalizers NFC and Sequence, the
// pre-tokenizers ByteLevel, Split, Digits and Sequence, the post-processors ByteLevel, TemplateProcessing
// (its form for a single text) and Sequence, the decoders ByteLevel, Fuse and Sequence. Truncation and padding
// serve batches and are not applied.
//
// Any other component, and any setting unknown here, is tensor.ErrUnsupported with its name; a file that
// contradicts itself is tensor.ErrCorrupt.
func Load(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := load(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

type tokenizerFile struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedFile     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

type addedFile struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func load(b []byte) (*Tokenizer, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("not UTF-8: %w", tensor.ErrCorrupt)
	}
	var f tokenizerFile
	if err := strict("file", b, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	var err error
	if t.nfc, err = readNormalizer(f.Normalizer, maxNesting); err != nil {
		return nil, err
	}
	if t.stages, err = readPreTokenizer(f.PreTokenizer, maxNesting); err != nil {
		return nil, err
	}
	if err := checkByteLevel(t.stages); err != nil {
		return nil, err
	}
	if err := t.readModel(f.Model); err != nil {
		return nil, err
	}
	if err := t.readAdded(f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.readPostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	var d decoderState
	if err := d.read(f.Decoder, maxNesting); err != nil {
		return nil, err
	}
	if !d.byteLevel {
		return nil, unsupported("decoder", "without ByteLevel")
	}
	t.text = make([]string, len(t.tokens))
	for id, token := range t.tokens {
		text, ok := fromStandIns(token)
		if !ok {
			text = token
		}
		t.text[id] = text
	}
	// The library decodes such a token to the form that it looks for.
	for _, a := range t.added {
		if content := nfc(a.Content); t.nfc && a.Normalized && content != a.Content {
			text, ok := fromStandIns(content)
			if !ok {
				text = content
			}
			t.text[a.ID] = text
		}
	}
	return t, nil
}

// maxNesting is how deep a Sequence may lie inside another.
const maxNesting = 8

func unsupported(kind, what string) error {
	return fmt.Errorf("%s %s: %w", kind, what, tensor.ErrUnsupported)
}

// strict decodes one JSON value. A key that v lacks is not supported: it might change the ids.
func strict(what string, b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = fmt.Errorf("data behind the value")
	}
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return unsupported(what, "with "+strings.TrimPrefix(err.Error(), "json: unknown "))
	}
	return fmt.Errorf("%s: %v: %w", what, err, tensor.ErrCorrupt)
}

// componentType reads the type of a component; it is empty for null and for a component that is missing.
func componentType(kind string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var c struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("%s: %v: %w", kind, err, tensor.ErrCorrupt)
	}
	if c.Type == nil || *c.Type == "" {
		return "", fmt.Errorf("%s has no type: %w", kind, tensor.ErrCorrupt)
	}
	return *c.Type, nil
}

// setup decodes the settings of a component into v.
func setup(kind, name string, raw json.RawMessage, v any) error {
	return strict(fmt.Sprintf("%s %q", kind, name), raw, v)
}

// readNormalizer reports whether the text is to be composed.
func readNormalizer(raw json.RawMessage, depth int) (bool, error) {
	const kind = "normalizer"
	name, err := componentType(kind, raw)
	if err != nil {
		return false, err
	}
	switch name {
	case "":
		return false, nil
	case "NFC":
		var c struct {
			Type string `json:"type"`
		}
		return true, setup(kind, name, raw, &c)
	case "Sequence":
		var c struct {
			Type        string            `json:"type"`
			Normalizers []json.RawMessage `json:"normalizers"`
		}
		if err := setup(kind, name, raw, &c); err != nil {
			return false, err
		}
		if depth == 0 {
			return false, unsupported(kind, "nested so deep")
		}
		any := false
		for _, n := range c.Normalizers {
			nfc, err := readNormalizer(n, depth-1)
			if err != nil {
				return false, err
			}
			any = any || nfc
		}
		return any, nil
	}
	return false, unsupported(kind, fmt.Sprintf("%q", name))
}

// decoderState is what has been seen of the decoder so far.
type decoderState struct{ byteLevel bool }

func (d *decoderState) read(raw json.RawMessage, depth int) error {
	const kind = "decoder"
	name, err := componentType(kind, raw)
	if err != nil {
		return err
	}
	switch {
	case name == "":
		return unsupported(kind, "null")
	case name == "ByteLevel" && !d.byteLevel:
		var c struct {
			Type        string `json:"type"`
			PrefixSpace bool   `json:"add_prefix_space"`
			TrimOffsets bool   `json:"trim_offsets"`
			UseRegex    bool   `json:"use_regex"`
		}
		d.byteLevel = true
		return setup(kind, name, raw, &c)
	case name == "Fuse" && d.byteLevel:
		// Behind ByteLevel there is one string left, and nothing to fuse.
		var c struct {
			Type string `json:"type"`
		}
		return setup(kind, name, raw, &c)
	case name == "Sequence":
		var c struct {
			Type     string            `json:"type"`
			Decoders []json.RawMessage `json:"decoders"`
		}
		if err := setup(kind, name, raw, &c); err != nil {
			return err
		}
		if depth == 0 {
			return unsupported(kind, "nested so deep")
		}
		for _, r := range c.Decoders {
			if err := d.read(r, depth-1); err != nil {
				return err
			}
		}
		return nil
	}
	return unsupported(kind, fmt.Sprintf("%q", name))
}
