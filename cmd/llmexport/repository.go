package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

// ggufAdvice is what to do instead of reading GGUF: its weights are quantized already.
const ggufAdvice = "name the original checkpoint, a directory or repository with config.json and *.safetensors"

// repository parses "ORG/NAME[@REVISION]", with or without hf:// before it.
func repository(ref string) (recipes.Model, error) {
	repo, revision, named := strings.Cut(strings.TrimPrefix(ref, "hf://"), "@")
	if strings.EqualFold(path.Ext(repo), ".gguf") {
		return recipes.Model{}, hint(exit.Usagef("%s: GGUF cannot be read", ref), ggufAdvice)
	}
	err := hub.CheckRepo(repo)
	if err == nil && !strings.Contains(repo, "/") {
		err = fmt.Errorf("a repository is ORG/NAME, not %q", repo)
	}
	if err == nil && named {
		err = hub.CheckRevision(revision)
	}
	if err != nil {
		return recipes.Model{}, meantHint(exit.Usagef("%v", err), ref)
	}
	return recipes.Model{Repo: repo, Revision: revision}, nil
}

// meantHint suggests the repository or registry that arg may refer to.
func meantHint(err error, ref string) error {
	meant := publish.Meant(ref)
	if meant == "" {
		return err
	}
	return hint(err, fmt.Sprintf("did you mean %s?", meant))
}
