package stage

import (
	"errors"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
)

// access says who may read the repository of s, see manifest.Source.
func (f *Fetch) access(s *hub.Snapshot) string {
	switch {
	case f.Access != nil:
		return *f.Access
	case s.Private:
		return manifest.Private
	case s.Gated != "":
		return manifest.Gated
	case s.Repo != "" && !s.Listed:
		return manifest.Unknown
	}
	return ""
}

// terms adds to src what the checkpoint in dir says of its licence.
func terms(dir, access string, src *manifest.Source) error {
	card, err := readOptional(dir, about.CardName)
	if err != nil {
		return err
	}
	src.License, src.LicenseName = about.Terms(card)
	src.Access = access
	return nil
}

// checkTerms refuses a job whose package may not go where it would, before weights are fetched and anything is computed.
func (f *Fetch) checkTerms(job *pipeline.Job, s *hub.Snapshot) error {
	return entryError(job, f.ask(job, s))
}

// Terms says why running the job would stop before anything is made of s: what a place asks for; empty if nothing.
func (f *Fetch) Terms(job *pipeline.Job, s *hub.Snapshot) (string, error) {
	err := f.ask(job, s)
	if missing := (*publish.TermsError)(nil); errors.As(err, &missing) {
		return missing.Error(), nil
	}
	return "", entryError(job, err)
}

// ask is publish.CheckSource of a checkpoint whose small files are here.
func (f *Fetch) ask(job *pipeline.Job, s *hub.Snapshot) error {
	var p Publish
	if err := job.Recipe.Stages["publish"].Decode(&p); err != nil {
		return err
	}
	places, err := p.places(job)
	if err != nil {
		return err
	}
	src := manifest.Source{Hub: s.Source, Repo: s.Repo}
	if err := terms(s.Dir, f.access(s), &src); err != nil {
		return err
	}
	return publish.CheckSource(src, places)
}
