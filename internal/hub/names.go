package hub

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/fault"
)

var (
	repoPattern   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$`)
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func isCommit(s string) bool { return commitPattern.MatchString(s) }

// checkRepo requires ORG/NAME, or the NAME of the oldest repositories. A double hyphen would make two repositories share a
// cache directory.
func checkRepo(s string) error {
	if len(s) > 200 || !repoPattern.MatchString(s) || strings.Contains(s, "--") || strings.Contains(s, "..") {
		return fmt.Errorf("a repository is ORG/NAME, not %.200q", s)
	}
	return nil
}

// checkRevision rejects revisions that cannot be a path under refs.
func checkRevision(s string) error {
	if len(s) > 200 || !safePath(s) {
		return fmt.Errorf("revision %.200q is not a branch, tag or commit", s)
	}
	return nil
}

// safePath reports whether a slash-separated path stays inside the directory it is joined to, on every system: relative, without
// "..", and without characters that Windows reads as a separator, drive or stream.
func safePath(s string) bool {
	bad := func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`\:`, r) }
	return s != "." && fs.ValidPath(s) && filepath.IsLocal(filepath.FromSlash(s)) && !strings.ContainsFunc(s, bad)
}

// fixedNames are the files that programs look for without having read a list.
var fixedNames = slices.Concat([]string{"config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json",
	singleFile, indexFile}, slices.Concat(vocabularies...))

// MaxSize returns the largest accepted size of a checkpoint file other than weights, in bytes: of a tokenizer (large ones have
// 30 MB), of the index (which has a line for each tensor), and of all other files (no known one exceeds 1 MB).
func MaxSize(name string) int64 {
	switch {
	case vocabularyRank(name) < len(vocabularies):
		return 256 << 20
	case name == indexFile:
		return maxRecord
	}
	return 16 << 20
}

// checkSize rejects a file that is too large to be read.
func (f File) checkSize() error {
	if limit := MaxSize(f.Name); !isShard(f.Name) && f.Size > limit {
		return fmt.Errorf("%s has %d bytes, at most %d are read: %w", f.Name, f.Size, limit, fault.ErrCorrupt)
	}
	return nil
}

// wanted reports whether an export may read a file with this name.
func wanted(base string) bool {
	switch base {
	case "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
		"chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json", "README.md", indexFile,
		"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json":
		return true
	}
	if vocabularyRank(base) < len(vocabularies) {
		return true
	}
	if strings.HasSuffix(base, ".safetensors") {
		return !strings.HasPrefix(base, "consolidated") // the same weights again, under other names
	}
	return strings.HasPrefix(base, "LICENSE") || strings.HasPrefix(base, "NOTICE") || strings.HasPrefix(base, "USE_POLICY")
}

// vocabularies are the files that hold a tokenizer, in order of preference. A repository often has the same one in several forms.
var vocabularies = [][]string{
	{"tokenizer.json"}, {"tokenizer.model"}, {"tiktoken.model"}, {"qwen.tiktoken"}, {"tekken.json"}, {"vocab.json", "merges.txt"}, {"vocab.txt"},
}

// vocabularyRank is the index of a name in vocabularies, or its length if there is none.
func vocabularyRank(base string) int {
	for i, names := range vocabularies {
		if slices.Contains(names, base) {
			return i
		}
	}
	return len(vocabularies)
}

// withoutDuplicates keeps only the preferred vocabulary.
func withoutDuplicates[T any](files []T, name func(T) string) []T {
	best := len(vocabularies)
	for _, f := range files {
		best = min(best, vocabularyRank(name(f)))
	}
	return slices.DeleteFunc(files, func(f T) bool {
		rank := vocabularyRank(name(f))
		return rank > best && rank < len(vocabularies)
	})
}

// modulePattern matches the configuration of a module of sentence-transformers, and moduleWeights those of one that has some.
var (
	modulePattern = regexp.MustCompile(`^[0-9]+_[A-Za-z]+/config\.json$`)
	moduleWeights = regexp.MustCompile(`^[0-9]+_Dense/model\.safetensors$`)
)

// below reports whether a slash-separated path below the top level is wanted: an additional chat template, or a file of a module.
func below(path string) bool {
	return isTemplate(path) || modulePattern.MatchString(path) || moduleWeights.MatchString(path)
}

// templatesDir holds additional chat templates.
const templatesDir = "additional_chat_templates"

// isTemplate reports whether a slash-separated path names such a template.
func isTemplate(path string) bool {
	base, ok := strings.CutPrefix(path, templatesDir+"/")
	return ok && strings.HasSuffix(base, ".jinja") && safePath(path) && !strings.Contains(base, "/")
}

// pick reports whether to use a path that the hub lists. Other files in directories belong to other formats or to parts of a
// pipeline. A path that would leave the snapshot is an error if its last element is wanted, however the path is written; any
// other path is never used.
func pick(path string) (bool, error) {
	if below(path) {
		return true, nil
	}
	base := path[strings.LastIndexAny(path, `/\`)+1:]
	if !wanted(base) {
		return false, nil
	}
	if !safePath(path) {
		return false, fmt.Errorf("the hub lists the file name %.200q: %w", path, fault.ErrCorrupt)
	}
	return base == path, nil
}
