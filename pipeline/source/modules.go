package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// The files of sentence-transformers at the top of a checkpoint.
const (
	modulesFile    = "modules.json"
	wordsFile      = "sentence_bert_config.json"         // of the module Transformer
	sentenceConfig = "config_sentence_transformers.json" // of the whole
)

// readModules reads the modules of the checkpoint in dir; nil if it has no modules.json.
func readModules(dir string) ([]arch.Module, error) {
	b, err := ReadOptional(dir, modulesFile)
	if err != nil || b == nil {
		return nil, err
	}
	var list []struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s: %v: %w", modulesFile, err, tensor.ErrCorrupt)
	}
	modules := make([]arch.Module, 0, len(list))
	for _, m := range list {
		x := arch.Module{Type: m.Type, Path: m.Path}
		if m.Path != "" {
			if !filepath.IsLocal(m.Path) {
				return nil, fmt.Errorf("%s: path %q leaves the checkpoint: %w", modulesFile, m.Path, tensor.ErrCorrupt)
			}
			if x.Config, err = ReadOptional(dir, path.Join(m.Path, "config.json")); err != nil {
				return nil, err
			}
		}
		modules = append(modules, x)
	}
	return modules, nil
}

// weighted lists the directories of modules with weights of their own.
func weighted(modules []arch.Module) (dirs []string) {
	for _, m := range modules {
		if m.Weighted() {
			dirs = append(dirs, m.Path)
		}
	}
	return dirs
}

// readUse reads how sentence-transformers uses the checkpoint in dir: sentences for the user, and tensor.ErrUnsupported if a text
// is changed in a way that the engine cannot repeat.
func readUse(dir string) (notes []string, err error) {
	var words struct {
		Most  int  `json:"max_seq_length"`
		Lower bool `json:"do_lower_case"`
	}
	var all struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	for name, to := range map[string]any{wordsFile: &words, sentenceConfig: &all} {
		b, err := ReadOptional(dir, name)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		if err := json.Unmarshal(b, to); err != nil {
			return nil, fmt.Errorf("%s: %v: %w", name, err, tensor.ErrCorrupt)
		}
	}
	switch {
	case words.Lower:
		return nil, fmt.Errorf("%s: do_lower_case is not supported: %w", wordsFile, tensor.ErrUnsupported)
	case all.Default != nil:
		return nil, fmt.Errorf("%s: default_prompt_name %.100q is not supported, only null: %w", sentenceConfig, *all.Default, tensor.ErrUnsupported)
	case words.Most > 0:
		notes = append(notes, fmt.Sprintf("sentence-transformers reads the first %d tokens of a text only; the engine reads all", words.Most))
	}
	for _, name := range slices.Sorted(maps.Keys(all.Prompts)) {
		if prompt := all.Prompts[name]; prompt != "" {
			notes = append(notes, fmt.Sprintf("the model expects %q before a text of the kind %q", prompt, name))
		}
	}
	return notes, nil
}

// PackSentence makes the facts those of a model that turns a whole text into a vector. The packaged template puts what the
// tokenizer appends after a text, because the engine's tokenizer appends nothing. A reranker of pairs gets neither template nor
// prefix: the engine itself puts ids around a query and a document, which the tokenizer must have.
func (f *Facts) PackSentence(t *tokenizer.Tokenizer, pairs bool) error {
	f.Pooled, f.ChatTemplate, f.PackagedTemplate, f.Templates = true, "", "", map[string]string{}
	prefix, suffix := t.PrefixIDs(), t.SuffixIDs()
	if pairs {
		f.Prefix = nil
		if !slices.Equal(prefix, []int32{pairBegin}) || !slices.Equal(suffix, []int32{pairEnd}) || t.VocabSize() <= pairMark {
			return fmt.Errorf("the tokenizer puts ids %v and %v around a text; the engine's reranker has %d and %d built in: %w",
				prefix, suffix, pairBegin, pairEnd, tensor.ErrUnsupported)
		}
		return nil
	}
	after := ""
	for _, id := range suffix {
		token, _ := t.Token(id)
		if !slices.ContainsFunc(t.AddedTokens(), func(a tokenizer.AddedToken) bool { return a.ID == id && !a.LStrip && !a.SingleWord }) {
			return fmt.Errorf("the tokenizer appends %q to a text, which is no added token, so the engine cannot: %w", token, tensor.ErrUnsupported)
		}
		after += token
	}
	f.PackagedTemplate = "{% for message in messages %}{{ message['content'] }}{% endfor %}{{ " + syntax.Quote(after) + " }}"
	return nil
}

// The ids that the engine's reranker for pairs has built in.
const (
	pairBegin = 0
	pairEnd   = 2
	pairMark  = 6
)
