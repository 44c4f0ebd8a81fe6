package stage

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

// Verify assembles the package, runs it, compares it with the source, and writes manifest, report and card. If a limit is
// exceeded, the job ends before anything is published.
type Verify struct {
	// Enabled false publishes an unverified package, which says so.
	Enabled bool `json:"enabled" jsonschema_description:"Run and compare the package; false publishes it as not verified."`
	verify.Checks
}

// NewVerify returns the defaults.
func NewVerify() *Verify {
	return &Verify{Enabled: true, Checks: verify.NewChecks()}
}

// String implements [pipeline.Stage].
func (*Verify) String() string { return "verify" }

// Validate implements [pipeline.Validator].
func (v *Verify) Validate(_ context.Context, r *Run) error {
	var errs []error
	for _, c := range v.Checks.Known() {
		o, ok := c.(verify.Validator)
		if !ok {
			continue
		}
		if key, problem := o.Validate(); problem != "" {
			errs = append(errs, r.Recipe.Stages["verify"].Errorf(c.String()+"."+key, "%s", problem))
		}
	}
	return recipes.Join(errs...)
}

// What is reported of a verification, and of a second one. Before the first window, the checks of weights and of the tokenizer are
// reported when they are done, by their names.
const (
	checkedWeights, checkedTokenizer = "weights", "tokenizer"
	firstWindows, secondWindows      = "windows", "windows, once more"
)

// options resolves texts, goldens and limits.
func (v *Verify) options(r *recipes.Recipe, l *pipeline.Limits, bits int) (verify.Options, error) {
	sec := r.Stages["verify"]
	o := verify.Options{
		Window: v.Perplexity.Window, Windows: v.Perplexity.Windows, DecodeTokens: v.Perplexity.Decode, Bits: bits, Checks: v.Checks,
		Threads: l.Threads, Memory: l.Memory / assemble.VerifyShare,
		Progress: func(done, total int64) { l.Report("verify", firstWindows, done, total) },
		Checked: func(name string) {
			if name == checkedWeights || name == checkedTokenizer {
				l.Report("verify", name, 1, 1)
			}
		},
	}
	var err error
	if o.Text, o.TextName, err = v.Perplexity.Text.Read(r.Resolve); err != nil {
		return o, sec.Errorf("perplexity.text", "%v", err)
	}
	o.TextSHA256 = digest.Of([]byte(o.Text)).Hex()
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
	r.Verdict, err = r.entry(ctx, "package", of, func(p *pipeline.Partial) (digest.Digest, error) {
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
	return failure(pkg, src, r.unfolded)
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
		Again: func(done, total int64) { r.Limits.Report("verify", secondWindows, done, total) },
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
