package stage

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

// Verify assembles the package, runs it, compares it with the source, and writes manifest, report and card. A limit
// that is missed ends the job before anything is published.
type Verify struct {
	// Enabled false publishes the package as not verified.
	Enabled    bool       `json:"enabled" jsonschema_description:"Run and compare the package; false publishes it as not verified."`
	Perplexity Perplexity `json:"perplexity" jsonschema_description:"How and on what perplexity is measured."`
	KL         Limit      `json:"kl" jsonschema_description:"Largest mean KL divergence from the source, in nats."`
	Layers     Limit      `json:"layers" jsonschema_description:"Largest relative error of the hidden state after a layer."`
	Weights    Limit      `json:"weights" jsonschema_description:"Largest error of an op's outputs that a method which watches the model may report of a matrix, relative and squared."`
	Tokenizer  Tokenizer  `json:"tokenizer" jsonschema_description:"Shares of strings whose ids may differ in the engine."`
	Golden     string     `json:"golden,omitempty" jsonschema_description:"JSON file with outputs that were recorded elsewhere and must be reproduced."`
}

// Perplexity configures the measurement of perplexity.
type Perplexity struct {
	Text      Text     `json:"text" jsonschema_description:"Evaluation text: builtin, or a file with its digest."`
	Window    int      `json:"window" jsonschema:"minimum=8" jsonschema_description:"Tokens of a fresh context."`
	Windows   int      `json:"windows" jsonschema:"minimum=0" jsonschema_description:"Number of contexts, spread over the text; 0 is all that the text has."`
	Decode    int      `json:"decode" jsonschema:"minimum=0" jsonschema_description:"Last tokens of a context that are also fed one by one."`
	MaxRatio  *float64 `json:"max_ratio,omitempty" jsonschema_description:"Largest perplexity relative to the source; by bit width if absent."`
	MaxSource *float64 `json:"max_source,omitempty" jsonschema_description:"Perplexity of the source above which the checkpoint is absurd; a quarter of the vocabulary if absent."`
}

// Limit is a largest acceptable value.
type Limit struct {
	Max *float64 `json:"max,omitempty" jsonschema_description:"Limit; by bit width if absent."`
}

// Tokenizer limits, and how many strings are compared.
type Tokenizer struct {
	MaxPlain float64 `json:"max_plain" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Share of plain strings."`
	MaxHard  float64 `json:"max_hard" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Share of hard strings."`
	Strings  int     `json:"strings,omitempty" jsonschema:"minimum=0" jsonschema_description:"Strings that are compared, spread evenly over those that there are; 0 is all of them."`
}

// NewVerify returns the defaults.
func NewVerify() *Verify {
	l, _ := verify.DefaultLimits(4)
	return &Verify{
		Enabled:    true,
		Perplexity: Perplexity{Window: 512, Windows: 4, Decode: 32},
		Tokenizer:  Tokenizer{MaxPlain: l.TokenizerPlain, MaxHard: l.TokenizerHard},
	}
}

// String implements [pipeline.Stage].
func (*Verify) String() string { return "verify" }

// Validate implements [pipeline.Validator].
func (v *Verify) Validate(_ context.Context, r *Run) error {
	p := v.Perplexity
	return check(r.Recipe.Stages["verify"],
		rule{p.Window < 8, "perplexity.window", "must be 8 or more"},
		rule{p.Windows < 0, "perplexity.windows", "must not be negative"},
		rule{p.Decode < 0, "perplexity.decode", "must not be negative"},
		rule{p.MaxRatio != nil && !(*p.MaxRatio > 0), "perplexity.max_ratio", "must be more than 0"},
		rule{p.MaxSource != nil && !(*p.MaxSource > 1), "perplexity.max_source", "must be more than 1"},
		rule{v.KL.Max != nil && !(*v.KL.Max >= 0), "kl.max", "must not be negative"},
		rule{v.Layers.Max != nil && !(*v.Layers.Max >= 0), "layers.max", "must not be negative"},
		rule{v.Weights.Max != nil && !(*v.Weights.Max > 0), "weights.max", "must be more than 0"},
		rule{v.Tokenizer.Strings < 0, "tokenizer.strings", "must not be negative"},
		rule{!(v.Tokenizer.MaxPlain >= 0 && v.Tokenizer.MaxPlain <= 1), "tokenizer.max_plain", "must be between 0 and 1"},
		rule{!(v.Tokenizer.MaxHard >= 0 && v.Tokenizer.MaxHard <= 1), "tokenizer.max_hard", "must be between 0 and 1"},
	)
}

// options resolves texts, goldens and limits.
func (v *Verify) options(r *recipes.Recipe, l *pipeline.Limits, bits int) (verify.Options, error) {
	sec := r.Stages["verify"]
	o := verify.Options{
		Window: v.Perplexity.Window, Windows: v.Perplexity.Windows, DecodeTokens: v.Perplexity.Decode, TokenizerStrings: v.Tokenizer.Strings,
		Threads: l.Threads, Memory: l.Memory / assemble.VerifyShare,
		Progress: func(done, total int64) { l.Report("verify", "windows", done, total) },
	}
	var err error
	if o.Limits, err = verify.DefaultLimits(bits); err != nil {
		return o, err
	}
	o.Limits.TokenizerPlain, o.Limits.TokenizerHard = v.Tokenizer.MaxPlain, v.Tokenizer.MaxHard
	set := func(dst *float64, v *float64) {
		if v != nil {
			*dst = *v
		}
	}
	if set(&o.Limits.KL, v.KL.Max); v.KL.Max != nil {
		o.Limits.KLNoise = 0
	}
	if set(&o.Limits.LayerError, v.Layers.Max); v.Layers.Max != nil {
		o.Limits.LayerNoise = 0
	}
	set(&o.Limits.OutputError, v.Weights.Max)
	set(&o.Limits.PerplexityRatio, v.Perplexity.MaxRatio)
	set(&o.Limits.SourcePerplexity, v.Perplexity.MaxSource)
	if o.Text, o.TextName, err = v.Perplexity.Text.read(r); err != nil {
		return o, sec.Errorf("perplexity.text", "%v", err)
	}
	o.TextSHA256 = manifest.DigestOf([]byte(o.Text)).Hex()
	if v.Golden != "" {
		b, err := os.ReadFile(r.Resolve(v.Golden))
		if err != nil {
			return o, sec.Errorf("golden", "%v", err)
		}
		if o.Goldens, err = verify.ParseGoldens(b); err != nil {
			return o, sec.Errorf("golden", "%v", err)
		}
	}
	return o, nil
}

// filesDir is the directory of a package in its entry of the store.
const filesDir = "files"

// Package is the directory of the package that the verify stage has made.
func (r *Run) Package() string { return filepath.Join(r.Verdict.Path, filesDir) }

// Run implements [pipeline.Stage].
func (v *Verify) Run(ctx context.Context, r *Run) error {
	src, err := r.Source(ctx)
	if err != nil {
		return err
	}
	rec, err := assemble.ReadRecord(r.Weights)
	if err != nil {
		return err
	}
	o, err := v.options(r.Recipe, &r.Limits, bodyBits(rec.Tensors))
	if err != nil {
		return err
	}
	recipe, err := r.recorded(src)
	if err != nil {
		return err
	}
	of := inputs{
		Version, r.Weights.Name, r.Weights.Digest, r.Inputs.Digest, r.Checkpoint.Digest,
		src.Hub, src.Repo, src.Revision, src.Access, r.Recipe.Name, string(recipe), o.TextSHA256, o.Goldens,
	}
	r.Verdict, err = r.entry(ctx, "package", of, func(p *pipeline.Partial) (manifest.Digest, error) {
		pkg, err := r.assembly(ctx, recipe)
		if err != nil {
			return "", err
		}
		checks := &o
		if !v.Enabled {
			checks = nil
		}
		m, err := pkg.Make(ctx, filepath.Join(p.Dir, filesDir), checks)
		if err != nil {
			return "", err
		}
		for _, f := range m.Files {
			p.Knows(path.Join(filesDir, f.Name), f.SHA256)
		}
		return m.Digest, nil
	})
	if err != nil {
		return err
	}
	pkg, err := place.Open(r.Package())
	if err != nil {
		return err
	}
	if !v.Enabled {
		zerolog.Ctx(ctx).Warn().Msg("not verified: the recipe or the command line switched verification off")
		return nil
	}
	return failure(pkg, src)
}

// assembly is the package of a run, before its directory is made.
func (r *Run) assembly(ctx context.Context, recipe json.RawMessage) (*assemble.Package, error) {
	pl, err := r.Planned(ctx)
	if err != nil {
		return nil, err
	}
	a := &assemble.Package{
		Planned: pl, Version: Version, Name: r.Recipe.Name, Recipe: recipe, Target: r.Recipe.Target,
		Weights: r.Weights, Inputs: r.Inputs, Closeness: r.Quantize.closeness(), Keep: r.entry,
	}
	if r.Calibration.Made() {
		all, err := openCorpus(r.Calibration)
		if err != nil {
			return nil, err
		}
		a.Warnings = all.Warnings
	}
	if r.Codes.Made() {
		x, err := openCodes(r.Codes, pl.Source)
		if err != nil {
			return nil, err
		}
		if a.Calibration, a.Fits, err = x.summary(pl.Allocation); err != nil {
			return nil, err
		}
	}
	return a, nil
}
