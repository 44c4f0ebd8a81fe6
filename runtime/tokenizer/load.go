package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Load reads the bytes of a tokenizer.json. The components that it knows are those of the tables normalizers,
// preTokenizers, models, postProcessors and decoders. Truncation and padding serve batches and are not applied.
//
// Any other component, and any unknown setting, is tensor.ErrUnsupported with its name; a file that contradicts itself
// is tensor.ErrCorrupt. Errors do not name the file.
func Load(b []byte) (*Tokenizer, error) { return LoadWith(b, LoadOptions{}) }

// LoadOptions are additions of other files to a tokenizer.json.
type LoadOptions struct {
	// Added are tokens to add after those of the file, in this order, as the library's method add_tokens does: a token
	// that exists takes over the settings given here, and stays special if it was. An ID of -1 leaves the number to the
	// library's rules; any other must agree with them.
	Added []AddedToken
	// Notes are texts for the user, see Tokenizer.Notes.
	Notes []string
}

type tokenizerFile struct {
	Version       json.RawMessage `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedFile     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// LoadWith is Load with additions from other files.
func LoadWith(b []byte, o LoadOptions) (*Tokenizer, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("not UTF-8: %w", tensor.ErrCorrupt)
	}
	var f tokenizerFile
	if err := strict("file", b, &f); err != nil {
		return nil, err
	}
	if len(f.Version) > 0 && string(f.Version) != `"1.0"` {
		return nil, unsupported("version", fmt.Sprintf("%.40s", f.Version))
	}
	if err := checkBatch(f.Truncation, f.Padding); err != nil {
		return nil, err
	}
	t := &Tokenizer{notes: o.Notes}
	var err error
	if t.normalizer, _, err = normalizers.read(f.Normalizer, maxNesting); err != nil {
		return nil, err
	}
	pre, ok, err := preTokenizers.read(f.PreTokenizer, maxNesting)
	if err != nil {
		return nil, err
	}
	if ok {
		t.preTokenizer = preTokenizerSequence{pre}.flat()
	}
	if t.model, err = readModel(f.Model, &t.vocabulary); err != nil {
		return nil, err
	}
	if err := t.readAdded(f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.addTokens(o.Added); err != nil {
		return nil, err
	}
	if err := t.indexAdded(); err != nil {
		return nil, err
	}
	if err := t.readPostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	if t.decoder, _, err = decoders.read(f.Decoder, maxNesting); err != nil {
		return nil, err
	}
	if err := t.fit(); err != nil {
		return nil, err
	}
	return t, nil
}

// untypedModel is the type that the library infers from the settings.
func untypedModel(raw json.RawMessage) string {
	found := map[string][]byte{"merges": nil, "vocab": nil, "continuing_subword_prefix": nil, "max_input_chars_per_word": nil}
	cutMembers(raw, found)
	vocab := found["vocab"]
	switch {
	case found["merges"] != nil:
		return "BPE"
	case len(vocab) > 0 && vocab[0] == '[':
		return "Unigram"
	case found["continuing_subword_prefix"] != nil && found["max_input_chars_per_word"] != nil:
		return "WordPiece"
	}
	return "WordLevel"
}

// readModel reads the model by its type, which files written before 2021 lack.
func readModel(raw json.RawMessage, v *vocabulary) (model, error) {
	var c struct {
		Type json.RawMessage `json:"type"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, fmt.Errorf("no model: %w", tensor.ErrCorrupt)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("model: %v: %w", err, tensor.ErrCorrupt)
	}
	name := ""
	if c.Type == nil {
		name = untypedModel(raw)
	} else if err := json.Unmarshal(c.Type, &name); err != nil {
		return nil, fmt.Errorf("model: type: %v: %w", err, tensor.ErrCorrupt)
	}
	read, ok := models[name]
	if !ok {
		return nil, unsupported("model", fmt.Sprintf("%q", name))
	}
	return read(raw, v)
}
