// Package verify decides whether a package is a faithful copy of its source. A [Check] makes one claim and can
// fail; the table in checks.go lists them. [Run] evaluates the package once, on its own runtime and, where the
// source is available, against the [Reference], and applies every check to the result.
//
// [Options] determine the measurements and are recorded with the numbers: text, window, positions scored.
// Perplexity is exp of the mean negative log-likelihood per token, KL divergence the mean over tokens of
// KL(reference to package), in nats.
package verify

import (
	"context"
	"fmt"
	"maps"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// Subject is a package under examination.
type Subject struct {
	Package *runtime.Package
	// Manifest lists the package's files and tensors. While a package is being made it has no measurements yet.
	Manifest *manifest.Manifest
	// Compared reports that the files matched the manifest before they were opened.
	Compared bool
	// Source is nil when only the package is available; checks that need it are skipped.
	Source  *Source
	Options Options
	// Closeness is the guarantee of the package's methods for its weights, and Fits holds their records, or
	// is nil.
	Closeness quant.Closeness
	Fits      *Fits
	// Exact are checkpoint tensors whose packaged weights must equal the source's: their codes were copied.
	Exact map[string]bool
	// Recall, if set, wraps the measurement of the check tokenizer: it may return the result of an earlier run with the same
	// bytes.
	Recall func(ctx context.Context, measure func() Parity) (Parity, error)
	// Weights is the finding of the weights check, if they were compared while they were written.
	Weights *Finding

	// faithful reports that the checks weights and graph have passed.
	faithful bool
	eval     *Evaluation
	halved   *halfRun
	vectors  *vectors
	encoded  encoded
	parts    *parts
	sessions map[backend.Mode]*runtime.Session // shared by all checks, one after another
}

// Finding is the verdict of a check.
type Finding struct {
	Passed  bool
	Skipped bool
	// Detail describes the result in a sentence, Value in numbers.
	Detail string
	Value  map[string]float64
	// Headline is the number that tables show; nil if there is none.
	Headline *Headline
	// A fatal finding makes measuring impossible: all later checks except those of names alone are skipped.
	Fatal bool
	// Matrices are the matrices with the largest errors, if the check measured them.
	Matrices []about.OpError
}

// Headline is the number of a finding that tables show.
type Headline struct {
	Value float64
	Unit  string
	// Limit is the largest acceptable value; nil if none is shown.
	Limit *float64
}

// Check is one claim about a package. A check with options is a field of [Checks], and a [Validator] if they can be wrong.
type Check interface {
	String() string
	// Check returns an error if the check could not be carried out.
	Check(ctx context.Context, s *Subject) (Finding, error)
	// Hint returns a sentence about fixing a package that fails the check, from the numbers of the finding.
	Hint(value map[string]float64) string
}

// Validator is a check whose options can be wrong.
type Validator interface {
	// Validate returns the key of the first wrong option and the reason, or two empty strings.
	Validate() (key, problem string)
}

// ours is the hint of checks that fail only because of a bug.
const ours = "no recipe setting fixes this: it is a bug in llmexport; please report it with the recipe and the checkpoint's config.json"

// say returns f with a sentence, in the form in which checks return it.
func (f Finding) say(format string, args ...any) (Finding, error) {
	f.Detail = fmt.Sprintf(format, args...)
	return f, nil
}

func pass(value map[string]float64, format string, args ...any) (Finding, error) {
	return Finding{Passed: true, Value: value}.say(format, args...)
}

func fail(value map[string]float64, format string, args ...any) (Finding, error) {
	return Finding{Value: value}.say(format, args...)
}

func skip(format string, args ...any) (Finding, error) {
	return Finding{Skipped: true}.say(format, args...)
}

// atMost passes a value up to limit and fails others, NaN included. Tables show both; value gets the limit.
func atMost(v, limit float64, unit string, value map[string]float64, format string, args ...any) (Finding, error) {
	value["limit"] = limit
	return Finding{Passed: v <= limit, Headline: &Headline{v, unit, &limit}, Value: value}.say(format, args...)
}

// The details of checks that cannot compare.
const (
	needsSource   = "needs the source checkpoint"
	needsWeights  = "needs the weights of the source, which were not kept"
	needsManifest = "needs a manifest, which maps each tensor of the source to the package"
)

// comparable reports whether the package can be compared tensor by tensor with its source, and if not, the reason.
// Packages of other tools have no manifest, and other names in their graphs.
func (s *Subject) comparable() (reason string, ok bool) {
	switch {
	case s.Source == nil:
		return needsSource, false
	case s.Manifest == nil:
		return needsManifest, false
	}
	return "", true
}

// float returns the source if its weights can be read, and otherwise the reason.
func (s *Subject) float() (src *Source, reason string) {
	switch {
	case s.Source == nil:
		return nil, needsSource
	case s.Source.Reference == nil:
		return nil, needsWeights
	}
	return s.Source, ""
}

// Result is the result of Run.
type Result struct {
	Checks     []manifest.Check
	Metrics    map[string]manifest.Metric
	Evaluation *Evaluation
	// Matrices are the matrices with the largest errors of their weights, the largest first.
	Matrices []about.OpError
	// Divergence describes the package's distance from its source; nil if it was not compared with weights of a source.
	Divergence *about.Divergence

	headlines []*Headline // of Checks
}

// add appends what a check has found.
func (r *Result) add(c Check, f Finding) {
	// A broken package produces NaN and infinities, which are not JSON; the detail still shows them.
	maps.DeleteFunc(f.Value, func(_ string, v float64) bool { return !finite(v) })
	r.Checks = append(r.Checks, manifest.Check{Name: c.String(), Passed: f.Passed, Skipped: f.Skipped, Detail: f.Detail, Value: f.Value})
	r.headlines = append(r.headlines, f.Headline)
	r.Matrices = append(r.Matrices, f.Matrices...)
}

// Failed lists the names of the checks that failed.
func (r *Result) Failed() []string {
	var names []string
	for _, c := range r.Checks {
		if c.Failed() {
			names = append(names, c.Name)
		}
	}
	return names
}

// Run evaluates the package and applies every check. Checks that do not depend on each other's outcome all run,
// so that a report shows everything; when the package's bytes are already wrong the expensive ones are skipped.
func Run(ctx context.Context, s *Subject) (*Result, error) {
	r, fatal, passed := &Result{}, "", map[string]bool{}
	for _, c := range s.Options.Checks.of(s.Package) {
		name := c.String()
		if _, names := c.(interface{ namesOnly() }); fatal != "" && !names {
			r.add(c, Finding{Skipped: true, Detail: fatal + " failed"})
			continue
		}
		f, err := c.Check(ctx, s)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			// A check that cannot be carried out counts as failed: the package did not run.
			f = Finding{Detail: err.Error()}
		}
		r.add(c, f)
		if s.Options.Checked != nil {
			s.Options.Checked(name)
		}
		zerolog.Ctx(ctx).Debug().Str("check", name).Bool("passed", f.Passed).Bool("skipped", f.Skipped).Msg(f.Detail)
		passed[name] = f.Passed
		s.faithful = passed[new(Weights).String()] && passed[graph{}.String()]
		if f.Fatal {
			fatal = name
		}
	}
	if s.vectors != nil {
		r.Metrics = s.vectors.metrics()
	}
	r.Evaluation = s.eval
	if s.eval != nil {
		r.Metrics = s.eval.Metrics()
		s.halved.metrics(r.Metrics)
		r.Divergence = s.eval.divergence(&s.Options, s.Package.Tokenizer)
		maps.DeleteFunc(r.Metrics, func(_ string, m manifest.Metric) bool { return !finite(m.Value) || !finite(m.StdErr) })
	}
	return r, nil
}

// Damaged returns the result for a package whose files do not match its manifest; err is the mismatch. No file is
// opened.
func Damaged(err error) *Result {
	r := &Result{}
	for _, c := range new(Checks).All() {
		f := Finding{Skipped: true, Detail: layout{}.String() + " failed"}
		if c == (layout{}) {
			f = Finding{Detail: err.Error()}
		}
		r.add(c, f)
	}
	return r
}

func finite(v float64) bool { return v-v == 0 }
