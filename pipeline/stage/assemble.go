package stage

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

// assembly makes the directory of a package, file by file, around weights that are already written.
type assembly struct {
	job     *pipeline.Job
	planned *Planned
	recipe  json.RawMessage
	dir     string
	run     runConfig

	m        *manifest.Manifest
	compared *verify.Finding // of the weights, if their source was not kept
}

// roles says what a file of a package is for.
var roles = map[string]string{
	GraphFile: manifest.RoleGraph, WeightFile: manifest.RoleWeights, LLMConfigFile: manifest.RoleModel, TokenizerFile: manifest.RoleTokenizer,
	ConfigFile:     "config",
	about.CardName: "card", about.ReportName: "report", recipeFile: "recipe",
}

const recipeFile = "recipe.json"

// make fills the directory, which does not exist yet, and returns the manifest's digest.
func (a *assembly) make(ctx context.Context, v *Verify, o verify.Options, weights, inputs string) (manifest.Digest, error) {
	if err := os.MkdirAll(a.dir, 0o777); err != nil {
		return "", err
	}
	src := a.planned.Source
	for _, f := range []struct{ from, name string }{
		{weights, GraphFile}, {weights, WeightFile}, {weights, LLMConfigFile}, {inputs, TokenizerFile},
	} {
		if err := link(filepath.Join(f.from, f.name), filepath.Join(a.dir, f.name)); err != nil {
			return "", err
		}
	}
	licenses, warnings, err := about.Licenses(src.Dir)
	if err != nil {
		return "", err
	}
	for _, n := range licenses {
		if err := copyFile(filepath.Join(src.Dir, n), filepath.Join(a.dir, n)); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, recipeFile), append(slices.Clone(a.recipe), '\n'), 0o666); err != nil {
		return "", err
	}
	if err := a.draft(ctx, weights); err != nil {
		return "", err
	}
	if err := a.writeConfig(ctx); err != nil {
		return "", err
	}
	var measured []about.Measure
	var checks []about.Measure
	if v.Enabled {
		res, err := a.verify(ctx, o)
		if err != nil {
			return "", err
		}
		checks, measured = measures(res)
		a.m.Checks, a.m.Metrics = res.Checks, res.Metrics
		a.m.Verified = len(res.Failed()) == 0
	}
	a.m.Conditions = conditions(a.planned, a.run)
	if _, err := a.job.Artifacts.One(pipeline.Calibration); err == nil {
		all, _, err := openCorpus(a.job)
		if err != nil {
			return "", err
		}
		warnings = append(warnings, all.Warnings...)
	}
	return a.finish(ctx, checks, measured, append(warnings, src.Facts.Warnings...))
}

// draft is the manifest without measurements; its file list grows with the directory.
func (a *assembly) draft(ctx context.Context, weights string) error {
	var rec weightsRecord
	if err := readJSON(filepath.Join(weights, recordFile), &rec); err != nil {
		return err
	}
	src, r := a.planned.Source, a.job.Recipe
	backends := slices.Clone(r.Target.Backends)
	slices.Sort(backends)
	a.m = &manifest.Manifest{
		Version: manifest.Version, Name: r.Name,
		Tool:          manifest.Tool{Name: "llmexport", Version: Version},
		MinimumEngine: a.planned.Target.Minimum,
		Target:        manifest.Target{Engine: r.Target.Engine, Backends: backends},
		Source:        manifest.Source{Hub: src.Hub, Repo: src.Repo, Revision: src.Revision},
		Recipe:        a.recipe,
		Threads:       threads(a.planned.Plan),
		IgnoredKeys:   slices.Clone(src.Decoder.Ignored),
	}
	if err := terms(src.Dir, src.Access, &a.m.Source); err != nil {
		return err
	}
	for _, f := range src.Files {
		a.m.Source.Files = append(a.m.Source.Files, manifest.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
	}
	a.m.Tensors, a.compared = rec.Tensors, rec.Compared
	for name, sum := range rec.Files {
		info, err := os.Stat(filepath.Join(a.dir, name))
		if err != nil {
			return err
		}
		a.m.Files = append(a.m.Files, manifest.File{Name: name, Size: info.Size(), SHA256: sum, Role: roles[name]})
	}
	return a.list(ctx)
}

// Version of the program, set by the release build.
var Version = "dev"

// threads lists safe and unsafe counts per pack width, up to what phones and desktops have.
func threads(p *plan.Plan) []manifest.Threads {
	const most = 16
	var list []manifest.Threads
	for _, pack := range plan.PackWidths {
		t := manifest.Threads{Pack: pack}
		unsafe := p.UnsafeThreads(pack)
		for n := 1; n <= most; n++ {
			if slices.Contains(unsafe, n) {
				t.Unsafe = append(t.Unsafe, n)
			} else {
				t.Safe = append(t.Safe, n)
			}
		}
		list = append(list, t)
	}
	return list
}

// list takes the directory's files into the manifest.
func (a *assembly) list(ctx context.Context) error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	known := map[string]manifest.File{}
	for _, f := range a.m.Files {
		known[f.Name] = f
	}
	a.m.Files = nil
	for _, e := range entries {
		if e.Name() == manifest.FileName {
			continue
		}
		f, ok := known[e.Name()]
		// Large files do not change once they are linked.
		if !ok || e.Name() == ConfigFile {
			if f, err = manifest.HashFile(ctx, filepath.Join(a.dir, e.Name())); err != nil {
				return err
			}
			f.Role = roles[f.Name]
			if about.IsLicense(f.Name) {
				f.Role = "license"
			}
		}
		a.m.Files = append(a.m.Files, f)
	}
	a.m.Sort()
	return nil
}

// writeConfig writes config.json with the digest of the files that determine what the model answers.
func (a *assembly) writeConfig(ctx context.Context) error {
	if err := a.list(ctx); err != nil {
		return err
	}
	b, err := a.run.json(a.planned.Target, a.m.Content())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, ConfigFile), b, 0o666); err != nil {
		return err
	}
	return a.list(ctx)
}

// verify runs the checks. When activations turn out too large for fp16, the package asks for more precision and is
// judged again as it then is; when int8 activations cost too much, it asks for those of blocks, and keeps them if they
// are better. Nothing else of it changes.
func (a *assembly) verify(ctx context.Context, o verify.Options) (*verify.Result, error) {
	res, err := a.runVerify(ctx, o)
	if err != nil {
		return nil, err
	}
	if slices.Contains(res.Failed(), "activations") && a.run.atLeast("normal") {
		zerolog.Ctx(ctx).Warn().Str("precision", a.run.precision).Msg("activations exceed what fp16 holds: the package is written with a higher precision")
		if res, err = a.again(ctx, o); err != nil {
			return nil, err
		}
	}
	cost, tolerated := activationCost(res)
	if a.run.dynamicOption != 0 || cost <= tolerated {
		return res, nil
	}
	before := a.run
	a.run.dynamicOption, a.run.measured = 2, true
	second, err := a.again(ctx, o)
	if err != nil {
		return nil, err
	}
	// At decode the engine rounds zero points of blocks, which can cost more than it gains.
	decode := second.Metrics["kl_decode"].Value <= 1.5*res.Metrics["kl_decode"].Value+1e-3
	if better, _ := activationCost(second); better < cost && decode {
		zerolog.Ctx(ctx).Info().Float64("before", cost).Float64("after", better).Msg("int8 activations cost too much for whole rows: the package is written with dynamic_option 2")
		return second, nil
	}
	a.run = before
	return res, a.writeConfig(ctx)
}

// again judges the package with what was changed of its configuration.
func (a *assembly) again(ctx context.Context, o verify.Options) (*verify.Result, error) {
	if err := a.writeConfig(ctx); err != nil {
		return nil, err
	}
	return a.runVerify(ctx, o)
}

// activationCost is the divergence in nats that int8 activations add to the package, and what of it is tolerated: a
// tenth of what the weights cost, and a little that nobody sees.
func activationCost(r *verify.Result) (cost, tolerated float64) {
	float := r.Metrics["kl_float"].Value
	return r.Metrics["kl"].Value - float, 0.1*float + 2e-4
}

func (a *assembly) runVerify(ctx context.Context, o verify.Options) (*verify.Result, error) {
	s, err := subject(a.dir, a.m, a.planned.Source, o)
	if err != nil {
		return nil, err
	}
	defer s.Package.Close()
	s.Weights, s.Recall = a.compared, a.recall(o)
	if _, err := a.job.Artifacts.One(pipeline.Codes); err == nil {
		if s.Fits, err = a.fits(); err != nil {
			return nil, err
		}
	}
	if a.m.Goldens == nil {
		if a.m.Goldens, err = verify.Record(ctx, s, "llmexport runtime, float32, packaged weights"); err != nil {
			return nil, err
		}
	}
	return verify.Run(ctx, s)
}

// parityFile is what is kept of a comparison of tokenizers.
const parityFile = "parity.json"

// recall keeps what comparing tokenizers gave under the digests of the packaged tokenizer and of all files of the source
// that are no weights, for variants of a recipe and later runs.
func (a *assembly) recall(o verify.Options) func(context.Context, func() verify.Parity) (verify.Parity, error) {
	return func(ctx context.Context, measure func() verify.Parity) (p verify.Parity, err error) {
		packaged, err := manifest.HashFile(ctx, filepath.Join(a.dir, TokenizerFile))
		if err != nil {
			return p, err
		}
		parts := []any{packaged.SHA256, o.TextSHA256, o.TokenizerStrings}
		for _, f := range a.planned.Source.Files {
			if !strings.HasSuffix(f.Name, ".safetensors") {
				parts = append(parts, f.Name, f.SHA256)
			}
		}
		key, err := pipeline.Key("parity", parts...)
		if err != nil {
			return p, err
		}
		quiet := zerolog.Ctx(ctx).Level(zerolog.WarnLevel)
		kept, err := made(quiet.WithContext(ctx), a.job, "parity", key, func(entry *pipeline.Partial) (manifest.Digest, error) {
			b, err := json.Marshal(measure())
			if err != nil {
				return "", err
			}
			return manifest.DigestOf(b), os.WriteFile(filepath.Join(entry.Dir, parityFile), b, 0o666)
		})
		if err != nil {
			return p, err
		}
		return p, readJSON(filepath.Join(kept.Path, parityFile), &p)
	}
}

// finish writes report, card and manifest.
func (a *assembly) finish(ctx context.Context, checks, metrics []about.Measure, warnings []string) (manifest.Digest, error) {
	card, err := readOptional(a.planned.Source.Dir, about.CardName)
	if err != nil {
		return "", err
	}
	calibration, err := a.calibration()
	if err != nil {
		return "", err
	}
	if calibration != nil {
		rows := calibrationRows(calibration)
		for _, r := range rows {
			if a.m.Metrics == nil {
				a.m.Metrics = map[string]manifest.Metric{}
			}
			a.m.Metrics[r.Name] = manifest.Metric{Value: *r.Value}
		}
		metrics = append(metrics, rows...)
	}
	text, cardWarnings, err := about.Card(about.CardInput{Manifest: a.m, SourceCard: card, Metrics: append(slices.Clone(metrics), checks...)})
	if err != nil {
		return "", err
	}
	report := about.Report{
		Name: a.m.Name, Hub: a.m.Source.Hub, Repo: a.m.Source.Repo, Revision: a.m.Source.Revision, Target: a.m.Target, MinimumEngine: a.m.MinimumEngine,
		Verified: a.m.Verified, Specs: about.Specs(a.m.Tensors), PackageBytes: a.m.Bytes(),
		DeviceBytes: a.planned.Memory().Total(DeviceContext), Checks: checks, Metrics: metrics,
		Calibration: calibration, Warnings: append(warnings, cardWarnings...),
	}
	b, err := report.PackageJSON()
	if err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{about.CardName: text, about.ReportName: b} {
		if err := os.WriteFile(filepath.Join(a.dir, name), data, 0o666); err != nil {
			return "", err
		}
	}
	if err := a.list(ctx); err != nil {
		return "", err
	}
	data, digest, err := a.m.Seal()
	if err != nil {
		return "", err
	}
	return digest, os.WriteFile(filepath.Join(a.dir, manifest.FileName), data, 0o666)
}

// EffectiveRecipe is the recipe with its defaults as JSON, without what leaves the package's bytes alone: limits,
// publishing places, servers of the hub, and the directories of this machine in which files lie.
func EffectiveRecipe(r *recipes.Recipe, stages []pipeline.Stage) (json.RawMessage, error) {
	c := *r
	if c.Model.Path != "" {
		dir, err := filepath.Abs(r.Resolve(c.Model.Path))
		if err != nil {
			return nil, err
		}
		c.Model.Path = filepath.Base(dir)
	}
	c.Limits = recipes.DefaultLimits()
	c.Variants = nil
	c.Stages = map[string]recipes.Section{}
	sections := Decoded(stages)
	delete(sections, "publish")
	delete(sections, "fetch")
	f, kept := Find[*Fetch](stages), map[string]any{}
	if c.Model.Repo != "" && f.Source == hub.ModelScope {
		kept["source"] = f.Source
	}
	if !f.Keep && Find[*Verify](stages).Enabled { // what can be verified depends on it
		kept["keep"] = false
	}
	if len(kept) > 0 {
		sections["fetch"] = kept
	}
	if w, ok := sections["rewrite"].(*Rewrite); ok {
		c := *w
		c.Template.Path = lastElement(c.Template.Path)
		sections["rewrite"] = &c
		if c == (Rewrite{}) {
			delete(sections, "rewrite")
		}
	}
	if q, ok := sections["quantize"].(*Quantize); ok && !q.calibrated() {
		delete(sections, "calibrate")
	}
	if v, ok := sections["calibrate"].(*Calibrate); ok {
		w := *v
		w.Data = slices.Clone(v.Data)
		for i := range w.Data {
			w.Data[i].Path = lastElement(w.Data[i].Path)
		}
		sections["calibrate"] = &w
	}
	if v, ok := sections["verify"].(*Verify); ok {
		w := *v
		w.Perplexity.Text.Path, w.Golden = lastElement(w.Perplexity.Text.Path), lastElement(w.Golden)
		sections["verify"] = &w
	}
	return recipes.EffectiveJSON(&c, sections)
}

func lastElement(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(filepath.FromSlash(path))
}

// link makes a hard link where the file system can, else a copy.
func link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
