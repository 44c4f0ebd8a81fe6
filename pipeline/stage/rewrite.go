package stage

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Rewrite describes the model, lowers it once to see that the target can hold it, and converts the tokenizer.
type Rewrite struct {
	Template ChatTemplate `json:"template" jsonschema_description:"Which chat template the package carries."`
}

// String implements pipeline.Stage.
func (*Rewrite) String() string { return "rewrite" }

// TokenizerFile is the tokenizer's name in a package.
const TokenizerFile = "tokenizer.mtok"

const factsFile = "facts.json"

// Run implements pipeline.Stage.
func (w *Rewrite) Run(ctx context.Context, job *pipeline.Job) (err error) {
	defer func() {
		if err != nil {
			aheadOf(job).stop()
		}
	}()
	checkpoint, err := job.Artifacts.One(pipeline.Checkpoint)
	if err != nil {
		return err
	}
	src, err := openSource(ctx, job)
	if err != nil {
		return err
	}
	defer src.Close()
	if _, err := lowered(job, src.Decoder); err != nil {
		return err
	}
	d := src.Decoder
	zerolog.Ctx(ctx).Info().Str("family", d.Family).Int("layers", len(d.Layers)).Int("hidden", d.Hidden).Int("vocab", d.Vocab).
		Bool("tied", d.Tied).Int("tensors", len(d.Claimed)).Msg("described")
	for _, k := range d.Ignored {
		zerolog.Ctx(ctx).Warn().Str("key", k).Msg("config key ignored, as the recipe asks")
	}
	for _, n := range d.Notes {
		zerolog.Ctx(ctx).Warn().Msg(n)
	}
	if err := src.chooseTemplate(ctx, job, w.Template); err != nil {
		return err
	}
	for _, w := range src.Facts.Warnings {
		zerolog.Ctx(ctx).Info().Msg("tokenizer: " + w)
	}
	key, err := pipeline.Key("rewrite", checkpoint.Digest, job.Recipe.Target, job.Recipe.Model.IgnoreConfig, src.Facts.ChatTemplate, src.Facts.PackagedTemplate, w.Template.Simplify)
	if err != nil {
		return err
	}
	a, err := made(ctx, job, "rewrite", key, func(p *pipeline.Partial) (manifest.Digest, error) {
		b, losses, err := src.Facts.mtok(src.Tokenizer, job.Recipe.Target.Engine)
		if err != nil {
			return "", err
		}
		for _, l := range losses {
			zerolog.Ctx(ctx).Info().Msg("tokenizer: " + l)
		}
		src.Facts.Warnings = append(src.Facts.Warnings, losses...)
		facts, err := json.Marshal(src.Facts)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(p.Dir, factsFile), facts, 0o666); err != nil {
			return "", err
		}
		return manifest.DigestOf(append(facts, b...)), os.WriteFile(filepath.Join(p.Dir, TokenizerFile), b, 0o666)
	})
	if err != nil {
		return err
	}
	a.Kind = pipeline.Inputs
	job.Artifacts.Add(a)
	return nil
}
