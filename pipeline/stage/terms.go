package stage

import (
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
)

// accessOf says who may read a repository, see manifest.Source.
func accessOf(gated string, private bool) string {
	switch {
	case private:
		return manifest.Private
	case gated != "":
		return manifest.Gated
	}
	return ""
}

// terms adds to src what the checkpoint in dir says of its licence.
func terms(dir, access string, src *manifest.Source) error {
	card, err := readOptional(dir, publish.CardName)
	if err != nil {
		return err
	}
	src.License, src.LicenseName = publish.Terms(card)
	src.Access = access
	return nil
}

// checkTerms refuses a job whose package may not go where it would, before anything is computed.
func checkTerms(job *pipeline.Job, dir, access string) error {
	var p Publish
	if err := job.Recipe.Stages["publish"].Decode(&p); err != nil {
		return err
	}
	places, err := p.places(job)
	if err != nil {
		return err
	}
	var src manifest.Source
	if err := terms(dir, access, &src); err != nil {
		return err
	}
	return entryError(job, publish.CheckSource(src, places))
}
