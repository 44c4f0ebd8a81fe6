package main

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

// repository is the model that "ORG/NAME[@REVISION]" names, with hf:// before it or without.
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

// meantHint says which repository or registry is meant, if it is one.
func meantHint(err error, ref string) error {
	meant := publish.Meant(ref)
	if meant == "" {
		return err
	}
	return hint(err, fmt.Sprintf("did you mean %s?", meant))
}
