package source

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/repository"
)

// vocabularyFile is a file from which a tokenizer can be read.
type vocabularyFile struct {
	name string
	// define is nil for tokenizer.json, which is a definition itself.
	define func(dir string, c *repository.Config, b []byte) (*repository.Definition, error)
}

// vocabularyFiles are the known vocabulary files; the first one in a checkpoint is used.
var vocabularyFiles = []vocabularyFile{
	{"tokenizer.json", nil},
	{"tokenizer.model", defineModelFile},
	{"tiktoken.model", defined((*repository.Config).Tiktoken)},
	{"qwen.tiktoken", defined((*repository.Config).Tiktoken)},
	{"tekken.json", defined((*repository.Config).Tekken)},
	{"vocab.json", func(dir string, c *repository.Config, b []byte) (*repository.Definition, error) {
		merges, err := readSmall(dir, "merges.txt")
		if err != nil {
			return nil, err
		}
		return c.Merges(b, merges)
	}},
	{"vocab.txt", func(string, *repository.Config, []byte) (*repository.Definition, error) {
		return nil, fmt.Errorf("a vocabulary of WordPiece without tokenizer.json: %w", tensor.ErrUnsupported)
	}},
}

// defineModelFile reads a tokenizer.model, which is of SentencePiece or, in some repositories, of tiktoken. Only the former
// begins with a line feed, the key of its first field.
func defineModelFile(_ string, c *repository.Config, b []byte) (*repository.Definition, error) {
	if len(b) > 0 && b[0] != '\n' {
		return c.Tiktoken(b)
	}
	return c.SentencePiece(b)
}

func defined(define func(*repository.Config, []byte) (*repository.Definition, error)) func(string, *repository.Config, []byte) (*repository.Definition, error) {
	return func(_ string, c *repository.Config, b []byte) (*repository.Definition, error) { return define(c, b) }
}

func read(d *repository.Definition, err error) (*tokenizer.Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return d.Tokenizer()
}

// LoadTokenizer reads the tokenizer of the checkpoint in dir, as AutoTokenizer of transformers 5.23 does: from tokenizer.json or
// from another vocabulary, with the settings in the files next to it. Errors name the file.
func LoadTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	return fromVocabulary(dir, (*repository.Config).JSON, (*repository.Definition).Tokenizer)
}

// TokenizerJSON returns the tokenizer that LoadTokenizer reads as one tokenizer.json, for other programs.
func TokenizerJSON(dir string) ([]byte, error) {
	return fromVocabulary(dir, (*repository.Config).Complete, func(d *repository.Definition) ([]byte, error) { return d.JSON(), nil })
}

// fromVocabulary converts the vocabulary of the checkpoint in dir, by the first function if it is a tokenizer.json.
func fromVocabulary[T any](dir string, fromJSON func(*repository.Config, []byte) (T, error), from func(*repository.Definition) (T, error)) (T, error) {
	var none T
	for _, f := range vocabularyFiles {
		b, err := ReadOptional(dir, f.name)
		if err != nil {
			return none, err
		}
		if b == nil {
			continue
		}
		c, err := readTokenizerConfig(dir)
		if err != nil {
			return none, err
		}
		var v T
		if f.define == nil {
			v, err = fromJSON(c, b)
		} else {
			var d *repository.Definition
			if d, err = f.define(dir, c, b); err == nil {
				v, err = from(d)
			}
		}
		if err != nil {
			return none, fmt.Errorf("%s: %w", f.name, err)
		}
		return v, nil
	}
	return none, fmt.Errorf("%s has neither tokenizer.json nor another known vocabulary: %w", dir, tensor.ErrUnsupported)
}

// readTokenizerConfig reads the files next to the vocabulary.
func readTokenizerConfig(dir string) (*repository.Config, error) {
	var files repository.ConfigFiles
	for name, to := range map[string]*[]byte{
		"tokenizer_config.json": &files.TokenizerConfig, "special_tokens_map.json": &files.SpecialTokensMap,
		"added_tokens.json": &files.AddedTokens, "config.json": &files.Model,
	} {
		b, err := ReadOptional(dir, name)
		if err != nil {
			return nil, err
		}
		*to = b
	}
	return repository.ReadConfig(files)
}

// LoadTokenizerFile reads a vocabulary by its path, with the settings in the files next to it. A SentencePiece model gives
// the ids of its own library, for which these files do not matter.
func LoadTokenizerFile(path string) (*tokenizer.Tokenizer, error) {
	dir, base := filepath.Split(path)
	b, err := readSmall(dir, base)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("%s: empty: %w", path, tensor.ErrCorrupt)
	}
	c, err := readTokenizerConfig(dir)
	if err != nil {
		return nil, err
	}
	var t *tokenizer.Tokenizer
	switch {
	case strings.HasSuffix(base, ".json") && strings.Contains(base, "tekken"):
		t, err = read(c.Tekken(b))
	case strings.HasSuffix(base, ".json"):
		t, err = c.JSON(b)
	case b[0] == '\n':
		t, err = read(repository.DefineSentencePiece(b))
	case isBinary(b):
		err = fmt.Errorf("neither a SentencePiece model nor a text: %w", tensor.ErrCorrupt)
	default:
		t, err = read(c.Tiktoken(b))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// isBinary reports whether b cannot be the lines of a tiktoken vocabulary, whose reader would give a misleading error.
func isBinary(b []byte) bool {
	head := b[:min(len(b), 512)]
	return bytes.IndexByte(head, 0) >= 0 || !utf8.Valid(head)
}

// MTOK writes the tokenizer of a package; release is the oldest engine that must read it, such as "3.5".
func (f *Facts) MTOK(t *tokenizer.Tokenizer, release string) (file []byte, losses []string, err error) {
	return t.MTOK(tokenizer.MTOKOptions{
		Special: f.Special, Stop: f.Stop, Prefix: f.Prefix, ChatTemplate: f.PackagedTemplate, EOS: f.EOS, Release: release,
		Whole: f.Pooled,
	})
}

// PackagedTokenizer is the tokenizer.mtok for a package of t, with the facts in the files of dir, all of which are optional.
// It contains the source's chat template, not the one that the rewrite stage chooses; ids do not depend on it.
func PackagedTokenizer(dir string, t *tokenizer.Tokenizer) ([]byte, error) {
	f, err := readFacts(dir, t)
	if err != nil {
		return nil, err
	}
	f.PackagedTemplate = f.ChatTemplate
	b, _, err := f.MTOK(t, "")
	return b, err
}
