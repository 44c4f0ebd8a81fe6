package main

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

// repository parses "ORG/NAME[@REVISION]", with or without hf:// before it.
func repository(ref string) (recipes.Model, error) {
	repo, revision, named := strings.Cut(strings.TrimPrefix(ref, "hf://"), "@")
	err := hub.CheckRepo(repo)
	if err == nil && named {
		err = hub.CheckRevision(revision)
	}
	if err != nil {
		return recipes.Model{}, meantHint(usagef("%v", err), ref)
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
