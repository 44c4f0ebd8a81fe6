package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
	"github.com/llmexport/llmexport/verify/reference"
)

// Verify assembles the package, runs it, compares it with the source, and writes manifest, report and card. A limit
// that is missed ends the job before anything is published.
type Verify struct {
	// Enabled false publishes an unverified package, which says so.
	Enabled    bool       `json:"enabled" jsonschema_description:"Run and compare the package; false publishes it as not verified."`
	Perplexity Perplexity `json:"perplexity" jsonschema_description:"How and on what perplexity is measured."`
	KL         Limit      `json:"kl" jsonschema_description:"Largest mean KL divergence from the source, in nats."`
	Layers     Limit      `json:"layers" jsonschema_description:"Largest relative error of the hidden state behind a layer."`
	Weights    Limit      `json:"weights" jsonschema_description:"Largest error of an op's outputs that a method which watches the model may report of a matrix, relative and squared."`
	Tokenizer  Tokenizer  `json:"tokenizer" jsonschema_description:"Shares of strings whose ids may differ in the engine."`
	Golden     string     `json:"golden,omitempty" jsonschema_description:"JSON file with outputs that were recorded elsewhere and must be reproduced."`
}

// Perplexity says what is measured.
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

// String implements pipeline.Stage.
func (*Verify) String() string { return "verify" }

// Validate implements pipeline.Validator.
func (v *Verify) Validate(job *pipeline.Job) error {
	sec := job.Recipe.Stages["verify"]
	p := v.Perplexity
	for _, c := range []struct {
		bad bool
		key string
		msg string
	}{
		{p.Window < 8, "perplexity.window", "must be 8 or more"},
		{p.Windows < 0, "perplexity.windows", "must not be negative"},
		{p.Decode < 0, "perplexity.decode", "must not be negative"},
		{p.MaxRatio != nil && !(*p.MaxRatio > 0), "perplexity.max_ratio", "must be more than 0"},
		{p.MaxSource != nil && !(*p.MaxSource > 1), "perplexity.max_source", "must be more than 1"},
		{v.KL.Max != nil && !(*v.KL.Max >= 0), "kl.max", "must not be negative"},
		{v.Layers.Max != nil && !(*v.Layers.Max >= 0), "layers.max", "must not be negative"},
		{v.Weights.Max != nil && !(*v.Weights.Max > 0), "weights.max", "must be more than 0"},
		{v.Tokenizer.Strings < 0, "tokenizer.strings", "must not be negative"},
		{!(v.Tokenizer.MaxPlain >= 0 && v.Tokenizer.MaxPlain <= 1), "tokenizer.max_plain", "must be between 0 and 1"},
		{!(v.Tokenizer.MaxHard >= 0 && v.Tokenizer.MaxHard <= 1), "tokenizer.max_hard", "must be between 0 and 1"},
	} {
		if c.bad {
			return sec.Errorf(c.key, "%s", c.msg)
		}
	}
	return nil
}

// verifyShare is the part of the limit, as a divisor, that an evaluation plans with: the rest is for what it does not count.
const verifyShare = 2

// options resolves texts, goldens and limits.
func (v *Verify) options(job *pipeline.Job, bits int) (verify.Options, error) {
	sec := job.Recipe.Stages["verify"]
	o := verify.Options{
		Window: v.Perplexity.Window, Windows: v.Perplexity.Windows, DecodeTokens: v.Perplexity.Decode, TokenizerStrings: v.Tokenizer.Strings,
		Threads: job.Limits.Threads, Memory: job.Limits.Memory / verifyShare,
		Progress: func(done, total int64) { job.Limits.Report("verify", "windows", done, total) },
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
	if o.Text, o.TextName, err = v.Perplexity.Text.read(job.Recipe); err != nil {
		return o, sec.Errorf("perplexity.text", "%v", err)
	}
	o.TextSHA256 = manifest.DigestOf([]byte(o.Text)).Hex()
	if v.Golden != "" {
		b, err := os.ReadFile(job.Recipe.Resolve(v.Golden))
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

// FailedError says which checks a package failed; the exit code of such a run is its own.
type FailedError struct {
	Checks []string
	// Details has a sentence per check.
	Details []string
	// Dir holds the package all the same, Source the checkpoint where its weights were kept.
	Dir, Source string
}

func (e *FailedError) Error() string {
	text := fmt.Sprintf("%s failed, nothing was published\n  %s\nthe package is in %s: `llmexport verify %s", strings.Join(e.Checks, ", "), strings.Join(e.Details, "\n  "), e.Dir, shellWord(e.Dir))
	if e.Source != "" {
		text += " --source " + shellWord(e.Source)
	}
	return text + fmt.Sprintf("` looks at it again, `llmexport publish %s PLACE` publishes it as it is, not verified; a run with other limits makes nothing else anew", shellWord(e.Dir))
}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%=,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// Run implements pipeline.Stage.
func (v *Verify) Run(ctx context.Context, job *pipeline.Job) error {
	weights, err := job.Artifacts.One(pipeline.Weights)
	if err != nil {
		return err
	}
	inputs, err := job.Artifacts.One(pipeline.Inputs)
	if err != nil {
		return err
	}
	checkpoint, err := job.Artifacts.One(pipeline.Checkpoint)
	if err != nil {
		return err
	}
	stages, err := New(job.Recipe)
	if err != nil {
		return err
	}
	q := Find[*Quantize](stages)
	var rec weightsRecord
	if err := readJSON(filepath.Join(weights.Path, recordFile), &rec); err != nil {
		return err
	}
	o, err := v.options(job, bodyBits(rec.Tensors))
	if err != nil {
		return err
	}
	src, err := openSource(ctx, job)
	if err != nil {
		return err
	}
	defer src.Close()
	// A branch or tag may move; the package names the commit it was made from.
	resolved := *job.Recipe
	if src.Revision != "" {
		resolved.Model.Revision = src.Revision
	}
	// A file lies beside the recipe only; the package is compared with what it was made from.
	if c := &Find[*Rewrite](stages).Template; c.Path != "" {
		c.Path, c.Text = "", src.Facts.ChatTemplate
	}
	recipe, err := EffectiveRecipe(&resolved, stages)
	if err != nil {
		return err
	}
	key, err := pipeline.Key("verify", weights.Name, weights.Digest, inputs.Digest, checkpoint.Digest, src.Hub, src.Repo, src.Revision, src.Access, job.Recipe.Name, string(recipe), o.TextSHA256, o.Goldens)
	if err != nil {
		return err
	}
	a, err := made(ctx, job, "package", key, func(p *pipeline.Partial) (manifest.Digest, error) {
		if v.Enabled {
			if err := src.openTokenizer(); err != nil {
				return "", err
			}
		}
		pl, err := q.Plan(job, src)
		if err != nil {
			return "", err
		}
		as := &assembly{job: job, planned: pl, recipe: recipe, dir: filepath.Join(p.Dir, filesDir), run: pl.runConfig()}
		digest, err := as.make(ctx, v, o, weights.Path, inputs.Path)
		if err == nil {
			for _, f := range as.m.Files {
				p.Knows(path.Join(filesDir, f.Name), f.SHA256)
			}
		}
		return digest, err
	})
	if err != nil {
		return err
	}
	a.Kind = pipeline.Verdict
	job.Artifacts.Add(a)
	pkg, err := place.Open(filepath.Join(a.Path, filesDir))
	if err != nil {
		return err
	}
	if !v.Enabled {
		zerolog.Ctx(ctx).Warn().Msg("not verified: the recipe or the command line switched verification off")
		return nil
	}
	failed := FailedError{Dir: filepath.Join(a.Path, filesDir)}
	if src.heads == nil {
		failed.Source = src.Dir
	}
	for _, c := range pkg.Manifest.Checks {
		if c.Failed() {
			failed.Checks = append(failed.Checks, c.Name)
			failed.Details = append(failed.Details, c.Name+": "+c.Detail)
		}
	}
	if len(failed.Checks) > 0 {
		return &failed
	}
	return nil
}

// subject opens the package in dir, and compares it with src if that is not nil. The caller closes the package.
func subject(dir string, m *manifest.Manifest, src *Source, o verify.Options) (*verify.Subject, error) {
	pkg, err := runtime.Open(dir)
	if err != nil {
		return nil, err
	}
	if most := pkg.Config.MaxPositions; most > 0 { // what lies behind them is not defined
		o.Window = min(o.Window, most)
	}
	q := quantizeOfManifest(m)
	s := &verify.Subject{Package: pkg, Manifest: m, Options: o, Closeness: closeness(q)}
	if src == nil {
		return s, nil
	}
	if s.Source, err = src.subject(o); err != nil {
		pkg.Close()
		return nil, err
	}
	if q != nil && q.keeps(src) {
		s.Exact = map[string]bool{}
		for _, name := range src.Quantized.Names() {
			s.Exact[name] = true
		}
	}
	return s, nil
}

// subject is the source as packages are compared with it.
func (s *Source) subject(o verify.Options) (*verify.Source, error) {
	var ref *reference.Model // none without weights
	if s.heads == nil {
		var err error
		if ref, err = reference.New(s.Decoder, s.Weights, reference.Options{Threads: o.Threads, Memory: o.Memory}); err != nil {
			return nil, err
		}
		if d := verification(ref, o.Window); d.bytes+smallestHeap(s.Decoder) > verifyShare*o.Memory {
			return nil, &MemoryError{d.what, d.bytes + smallestHeap(s.Decoder), verifyShare * o.Memory}
		}
	}
	f := s.Facts
	return &verify.Source{
		Decoder: s.Decoder, Tensors: s.Weights, Tokenizer: s.Tokenizer, Reference: ref,
		TokenizerJSON: func() ([]byte, error) { return TokenizerJSON(s.Dir) },
		Facts:         verify.TokenizerFacts{Stop: f.Stop, Special: f.Special, Prefix: f.Prefix, ChatTemplate: f.ChatTemplate, BOS: f.BOS, EOS: f.EOS, Simplified: f.Simplified},
	}, nil
}

// quantizeOfManifest are the options of the recipe that a manifest carries; nil if there is none.
func quantizeOfManifest(m *manifest.Manifest) *Quantize {
	if m == nil || m.Recipe == nil {
		return nil
	}
	r, err := recipes.Load(m.Recipe, manifest.FileName, Sections())
	if err != nil {
		return nil
	}
	q := NewQuantize()
	if r.Stages["quantize"].Decode(q) != nil {
		return nil
	}
	return q
}

// closeness is what the methods of a recipe promise; without one weights count as rounded.
func closeness(q *Quantize) quant.Closeness {
	if q != nil {
		if chain, err := quant.NewChain(q.Method); err == nil {
			return chain.Closeness()
		}
	}
	return quant.RTN{}.Closeness()
}

// VerifyPackage checks the package in dir, against the checkpoint in source if that is not empty, which must be the one that
// the manifest names: see [OtherSourceError]. Files are compared with the manifest before they are parsed. Packages without
// a manifest, those of other tools, get the checks that need none.
func VerifyPackage(ctx context.Context, dir, source string, o verify.Options) (*verify.Result, error) {
	m, err := manifestOf(dir)
	if err != nil {
		return nil, err
	}
	if m != nil { // before any of them is parsed
		err := m.VerifyFiles(ctx, dir)
		if is := (*manifest.DamagedError)(nil); errors.As(err, &is) {
			return verify.Damaged(err), nil
		}
		if err != nil {
			return nil, err
		}
	}
	var src *Source
	if source != "" {
		if err := checkSource(ctx, source, m); err != nil {
			return nil, err
		}
		if src, err = OpenSource(source, ignoredKeys(m)); err != nil {
			return nil, err
		}
		defer src.Close()
		if err := src.ofManifest(m); err != nil {
			return nil, err
		}
	}
	s, err := subject(dir, m, src, o)
	if err != nil {
		return nil, err
	}
	defer s.Package.Close()
	s.Compared = m != nil
	if s.Fits, err = packagedFits(dir); err != nil {
		return nil, err
	}
	return verify.Run(ctx, s)
}

// manifestOf is nil for a package without a manifest.
func manifestOf(dir string) (*manifest.Manifest, error) {
	m, err := manifest.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// OptionsOf are the windows and limits of a package's own recipe, or the defaults for the mean width of its
// matrices; 16 bits, with the strictest limits, when nothing says so. Files that the recipe names are not in the
// package: the built-in text stands in for its text.
func OptionsOf(m *manifest.Manifest, limits pipeline.Limits) (verify.Options, error) {
	v, bits := NewVerify(), bodyBits(nil)
	if m != nil {
		bits = bodyBits(m.Tensors)
	}
	job := &pipeline.Job{Recipe: &recipes.Recipe{}, Limits: limits}
	if m != nil && m.Recipe != nil {
		r, err := recipes.Load(m.Recipe, manifest.FileName, Sections())
		if err != nil {
			return verify.Options{}, err
		}
		job.Recipe = r
		if err := r.Stages["verify"].Decode(v); err != nil {
			return verify.Options{}, err
		}
	}
	v.Perplexity.Text, v.Golden = Text{}, ""
	return v.options(job, bits)
}

// bodyBits is the mean width of matrices, rounded down to one that has limits; 16 if there are none. Among others a matrix
// in 16 bits counts as 8, which leave hardly more noise: a few small ones do not make the limits those of more bits.
func bodyBits(list []manifest.Tensor) int {
	sum, count, coded := 0, 0, false
	for _, t := range list {
		if s, err := quant.ParseSpec(t.Spec); err == nil { // else a norm
			sum, count, coded = sum+min(s.Bits, 8), count+1, coded || s.Bits != 16
		}
	}
	for _, bits := range []int{8, 6, 5, 4, 3, 2} {
		if coded && sum >= bits*count {
			return bits
		}
	}
	return 16
}

func ignoredKeys(m *manifest.Manifest) []string {
	if m == nil {
		return nil
	}
	return m.IgnoredKeys
}
