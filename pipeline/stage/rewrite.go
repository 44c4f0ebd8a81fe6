package stage

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
)

// Rewrite describes the model, checks that the target can hold it, and converts the tokenizer and its chat template.
type Rewrite struct {
	Template ChatTemplate `json:"template" jsonschema_description:"Which chat template the package carries."`
}

// String implements [pipeline.Stage].
func (*Rewrite) String() string { return "rewrite" }

// factsFile holds the facts of the source with the chosen template.
const factsFile = "facts.json"

// Run implements [pipeline.Stage].
func (w *Rewrite) Run(ctx context.Context, r *Run) error {
	src, err := r.Source(ctx)
	if err != nil {
		return err
	}
	if r.planned == nil { // else it has been lowered
		if _, err := r.lowered(src.Model); err != nil {
			return err
		}
	}
	log, d := zerolog.Ctx(ctx), src.Decoder
	log.Info().Str("family", d.Family).Int("layers", len(d.Layers)).Int("hidden", d.Hidden).Int("vocab", d.Vocab).
		Bool("tied", d.Tied).Int("tensors", len(d.Claimed)).Msg("described")
	for _, k := range d.Ignored {
		log.Warn().Str("key", k).Msg("config key ignored because of the recipe")
	}
	for _, n := range d.Notes {
		log.Warn().Msg(n)
	}
	if src.Facts.Pooled {
		if w.Template != (ChatTemplate{}) {
			return r.Recipe.Stages["rewrite"].Errorf("template", "the model turns texts into vectors and has no chat template")
		}
	} else if err := w.Template.pack(ctx, r, src); err != nil {
		return err
	}
	facts := &src.Facts
	for _, w := range facts.Warnings {
		log.Debug().Msg("tokenizer: " + w)
	}
	of := inputs{
		r.Checkpoint.Digest, r.Recipe.Target, r.Recipe.Model.IgnoreConfig, facts.ChatTemplate, facts.PackagedTemplate, w.Template.Simplify,
	}
	r.Inputs, err = r.entry(ctx, "rewrite", of, func(p *pipeline.Partial) (digest.Digest, error) {
		file, losses, err := facts.MTOK(src.Tokenizer, r.Recipe.Target.Engine)
		if err != nil {
			return "", err
		}
		for _, l := range losses {
			log.Debug().Msg("tokenizer: " + l)
		}
		facts.Warnings = append(facts.Warnings, losses...)
		b, err := json.Marshal(facts)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(p.Dir, factsFile), b, 0o666); err != nil {
			return "", err
		}
		return digest.Of(append(b, file...)), os.WriteFile(filepath.Join(p.Dir, assemble.TokenizerFile), file, 0o666)
	})
	if err != nil {
		return err
	}
	src.Facts = source.Facts{} // reset, as in a run that finds the entry
	return r.Inputs.ReadJSON(factsFile, &src.Facts)
}
