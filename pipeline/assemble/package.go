// Package assemble lays out packages and makes their directories: [Planned] is the layout, [Weights] writes the weights of a
// plan, and [Package] adds everything else, verifies the package, and describes it in manifest, report and card.
package assemble

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/report"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
)

// Package makes the directory of a package, file by file, around weights that are already written.
type Package struct {
	*Planned
	// Version is that of the program.
	Version string
	Name    string
	Recipe  json.RawMessage // with all options
	Target  recipes.Target  // of the recipe
	// Weights and Inputs are the entries of the store with the weights and with the tokenizer.
	Weights, Inputs pipeline.Artifact
	// Closeness is what the recipe's methods promise about the error of weights.
	Closeness quant.Closeness
	// Calibration summarizes how codes were chosen, and Fits has the methods' reports; nil if codes depend on the weights only.
	Calibration *about.Calibration
	Fits        *verify.Fits
	// Warnings are those of calibration.
	Warnings []string
	// Keep finds the entry of the store of a name that depends on some inputs, or makes it.
	Keep func(ctx context.Context, name string, of []any, build pipeline.Build, keep ...string) (pipeline.Artifact, error)
	// Again, if set, is verify.Options.Progress of a second verification, with other run-time options.
	Again func(done, total int64)

	dir      string
	run      runConfig
	m        *manifest.Manifest
	compared *verify.Finding // of the weights, if their source was not kept
}

// roles are those of the files of a package other than those of its parts.
var roles = map[string]string{
	LLMConfigFile: manifest.RoleModel, TokenizerFile: manifest.RoleTokenizer, ConfigFile: roleConfig,
	about.CardName: "card", about.ReportName: "report", recipeFile: "recipe", about.PageName: "page", about.PictureName: "picture",
}

const (
	recipeFile = "recipe.json"
	roleConfig = "config"
)

// Make fills dir, which does not exist yet, and returns the manifest. Without options the package is not verified.
func (a *Package) Make(ctx context.Context, dir string, o *verify.Options) (*manifest.Manifest, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	a.dir, a.run = dir, a.runConfig()
	rec, err := ReadRecord(a.Weights)
	if err != nil {
		return nil, err
	}
	if err := a.collect(rec); err != nil {
		return nil, err
	}
	licenses, warnings, err := about.Licenses(a.Source.Dir)
	if err != nil {
		return nil, err
	}
	for _, n := range licenses {
		if err := disk.CopyFile(filepath.Join(a.Source.Dir, n), filepath.Join(dir, n)); err != nil {
			return nil, err
		}
	}
	if err := a.draft(ctx, rec); err != nil {
		return nil, err
	}
	if err := a.writeConfig(ctx); err != nil {
		return nil, err
	}
	res := &verify.Result{}
	if o != nil {
		if res, err = a.verify(ctx, *o); err != nil {
			return nil, err
		}
		a.m.Checks, a.m.Metrics = res.Checks, res.Metrics
		a.m.Verified = len(res.Failed()) == 0
		if o.Text != verify.BuiltIn && res.Divergence != nil {
			res.Divergence.Passages = nil // of a text that may not be meant for publication
		}
	}
	a.m.Conditions = conditions(a.Planned, a.run)
	if a.Calibration != nil && a.Source.Pictures != nil && !a.Calibration.Saw("pictures") {
		a.m.Conditions = append(a.m.Conditions, "the part that reads pictures is rounded to nearest, because calibration text has no pictures")
	}
	if a.Calibration != nil && a.Source.Sounds != nil && !a.Calibration.Saw("clips") {
		a.m.Conditions = append(a.m.Conditions, "the part that reads sound is rounded to nearest, because calibration text has no sound")
	}
	return a.m, a.finish(ctx, res, append(warnings, a.Warnings...))
}

// collect links the files of other entries into the directory, and writes the recipe.
func (a *Package) collect(rec *Record) error {
	from := map[string]pipeline.Artifact{TokenizerFile: a.Inputs}
	for name := range rec.Files {
		from[name] = a.Weights
	}
	for name, entry := range from {
		if err := link(filepath.Join(entry.Path, name), filepath.Join(a.dir, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(a.dir, recipeFile), append(slices.Clone(a.Recipe), '\n'), 0o666)
}

// draft returns the manifest without measurements; its file list grows with the directory.
func (a *Package) draft(ctx context.Context, rec *Record) (err error) {
	src := a.Source
	backends := slices.Clone(a.Target.Backends)
	slices.Sort(backends)
	a.m = &manifest.Manifest{
		Version: manifest.Version, Name: a.Name,
		Tool:          manifest.Tool{Name: "llmexport", Version: a.Version},
		MinimumEngine: a.Planned.Target.Minimum,
		Target:        manifest.Target{Engine: a.Target.Engine, Backends: backends},
		Source:        manifest.Source{Hub: src.Hub, Repo: src.Repo, Revision: src.Revision, Access: src.Access},
		Recipe:        a.Recipe,
		Threads:       threads(a.Plan),
		IgnoredKeys:   slices.Clone(src.Decoder.Ignored),
	}
	if a.m.Source.License, a.m.Source.LicenseName, err = source.Terms(src.Dir); err != nil {
		return err
	}
	if p := src.Decoder.Pooling; p != nil {
		if a.m.Task = manifest.Embed; p.Pairs {
			a.m.Task = manifest.Rerank
		}
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
		a.m.Files = append(a.m.Files, manifest.File{Name: name, Size: info.Size(), SHA256: sum, Role: a.role(name)})
	}
	return a.list(ctx)
}

// role returns the role of a file of the package.
func (a *Package) role(name string) string {
	for _, part := range a.Plan.Parts {
		switch name {
		case part.Lowered.GraphFile():
			return manifest.RoleGraph
		case part.Lowered.WeightFile():
			return manifest.RoleWeights
		}
	}
	if about.IsLicense(name) {
		return "license"
	}
	if isDeviceConfig(name) {
		return roleConfig
	}
	return roles[name]
}

// threads lists safe and unsafe counts per pack width, up to those of phones and desktops.
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

// list adds the directory's files to the manifest.
func (a *Package) list(ctx context.Context) error {
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
		if !ok || a.role(e.Name()) == roleConfig {
			if f, err = manifest.HashFile(ctx, filepath.Join(a.dir, e.Name())); err != nil {
				return err
			}
			f.Role = a.role(f.Name)
		}
		a.m.Files = append(a.m.Files, f)
	}
	a.m.Sort()
	return nil
}

// writeConfig writes config.json with the digest of the files that determine the model's answers.
func (a *Package) writeConfig(ctx context.Context) error {
	if err := a.list(ctx); err != nil {
		return err
	}
	b, err := a.run.json(a.m.Content())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, ConfigFile), b, 0o666); err != nil {
		return err
	}
	if err := a.writeDeviceConfigs(); err != nil {
		return err
	}
	return a.list(ctx)
}

// verify runs the checks. If activations are too large for fp16, the package gets a higher precision and is checked again; if
// int8 activations cost too much, it gets activations in blocks, and keeps them if they are better. Nothing else changes.
func (a *Package) verify(ctx context.Context, o verify.Options) (*verify.Result, error) {
	res, err := a.runVerify(ctx, o)
	if err != nil {
		return nil, err
	}
	if slices.Contains(res.Failed(), "activations") && a.run.atLeast("normal") {
		zerolog.Ctx(ctx).Warn().Str("precision", a.run.Precision).Msg("activations exceed the range of fp16: the package is written with a higher precision")
		if res, err = a.again(ctx, o); err != nil {
			return nil, err
		}
	}
	cost, tolerated := activationCost(res)
	if a.run.DynamicOption != 0 || cost <= tolerated {
		return res, nil
	}
	before := a.run
	a.run.DynamicOption, a.run.measured = 2, true
	second, err := a.again(ctx, o)
	if err != nil {
		return nil, err
	}
	// At decode the engine rounds zero points of blocks, which can cost more than it gains.
	decode := second.Metrics["kl_decode"].Value <= float64(1.5*res.Metrics["kl_decode"].Value)+1e-3
	if better, _ := activationCost(second); better < cost && decode {
		zerolog.Ctx(ctx).Info().Float64("before", cost).Float64("after", better).
			Msg("int8 activations cost too much for whole rows: the package is written with dynamic_option 2")
		return second, nil
	}
	a.run = before
	return res, a.writeConfig(ctx)
}

// again checks the package with its present configuration.
func (a *Package) again(ctx context.Context, o verify.Options) (*verify.Result, error) {
	if err := a.writeConfig(ctx); err != nil {
		return nil, err
	}
	if a.Again != nil {
		o.Progress, o.Checked = a.Again, nil
	}
	return a.runVerify(ctx, o)
}

// activationCost returns the divergence in nats, or distance, that int8 activations add to the package, and the tolerated part of it: a tenth
// of the cost of the weights plus an imperceptible amount.
func activationCost(r *verify.Result) (cost, tolerated float64) {
	name := "kl"
	for _, other := range []string{"cosine_distance", "score_error"} { // of models that turn texts into vectors
		if _, ok := r.Metrics[other]; ok {
			name = other
		}
	}
	float := r.Metrics[name+"_float"].Value
	return r.Metrics[name].Value - float, float64(0.1*float) + 2e-4
}

func (a *Package) runVerify(ctx context.Context, o verify.Options) (*verify.Result, error) {
	s, err := Subject(a.dir, a.m, a.Source, a.Closeness, a.Kept != nil, o)
	if err != nil {
		return nil, err
	}
	defer s.Package.Close()
	s.Weights, s.Fits, s.Recall = a.compared, a.Fits, a.recall(o)
	if a.m.Goldens == nil && s.Package.Task() == runtime.Generate {
		if a.m.Goldens, err = verify.Record(ctx, s, "llmexport runtime, float32, packaged weights"); err != nil {
			return nil, err
		}
	}
	return verify.Run(ctx, s)
}

// parityFile holds the result of a comparison of tokenizers.
const parityFile = "parity.json"

// recall caches the result of comparing tokenizers for variants of a recipe and later runs, by the digests of the packaged
// tokenizer and of all files of the source other than weights.
func (a *Package) recall(o verify.Options) func(context.Context, func() verify.Parity) (verify.Parity, error) {
	return func(ctx context.Context, measure func() verify.Parity) (p verify.Parity, err error) {
		packaged, err := manifest.HashFile(ctx, filepath.Join(a.dir, TokenizerFile))
		if err != nil {
			return p, err
		}
		parts := []any{packaged.SHA256, o.TextSHA256, o.Checks.Tokenizer.Strings}
		for _, f := range a.Source.Files {
			if !strings.HasSuffix(f.Name, ".safetensors") {
				parts = append(parts, f.Name, f.SHA256)
			}
		}
		quiet := zerolog.Ctx(ctx).Level(zerolog.WarnLevel)
		kept, err := a.Keep(quiet.WithContext(ctx), "parity", parts, func(entry *pipeline.Partial) (digest.Digest, error) {
			return entry.WriteJSON(parityFile, measure())
		})
		if err != nil {
			return p, err
		}
		return p, kept.ReadJSON(parityFile, &p)
	}
}

// finish writes report, card and manifest.
func (a *Package) finish(ctx context.Context, res *verify.Result, warnings []string) error {
	original, err := source.ReadOptional(a.Source.Dir, about.CardName)
	if err != nil {
		return err
	}
	r := a.report(res)
	r.Warnings = warnings
	picture := report.Picture(r)
	in := about.CardInput{Manifest: a.m, SourceCard: original, Report: r}
	if picture != nil {
		in.Picture = about.PictureName
	}
	card, notes, err := about.Card(in)
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, notes...)
	data, err := r.PackageJSON()
	if err != nil {
		return err
	}
	page, err := report.Package(r)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{about.CardName: card, about.ReportName: data, about.PageName: page, about.PictureName: picture} {
		if data == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(a.dir, name), data, 0o666); err != nil {
			return err
		}
	}
	if err := a.list(ctx); err != nil {
		return err
	}
	sealed, digest, err := a.m.Seal()
	if err != nil {
		return err
	}
	a.m.Digest = digest
	return os.WriteFile(filepath.Join(a.dir, manifest.FileName), sealed, 0o666)
}

// link makes a hard link where the file system can, else a copy.
func link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return disk.CopyFile(from, to)
}
