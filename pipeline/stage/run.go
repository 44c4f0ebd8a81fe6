package stage

import (
	"context"
	"sync"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
)

// Run is one package to make. It holds everything that its stages share: each stage reads the options of the others and the
// artifacts of the stages before it, and adds its own. The checkpoint is opened once and stays open until Close.
type Run struct {
	pipeline.Job
	Options
	Made
	// Shared is the store in common with other machines, also that of Store; nil if there is none.
	Shared *shared.Store
	// DryRun makes the publish stage list its changes instead of publishing.
	DryRun bool
	// Rates, if not nil, returns the rates of the machine for activations of a width; otherwise [Run.Estimate] measures them.
	Rates func(width int) effort.Rates

	target  lower.Target
	devices assemble.Devices

	checkSpace func(dir string, need int64) error                     // disk.CheckSpace
	lower      func(*arch.Model, lower.Options) (*lower.Model, error) // lower.Lower
	trials     trialSize

	source     *source.Source    // nil until it is opened
	sourceOf   digest.Digest     // of the checkpoint; empty until that is known
	planned    *assemble.Planned // of source, nil until it is planned
	plannedFor digest.Digest     // of the allocation
	ahead      *assemble.Ahead
	reading    sync.WaitGroup // of the tokenizer, ahead

	commit, day string // of the model repository and its commit; empty until they are known
	commitOf    string // the commit that an earlier span found; replaces the revision of the recipe unless empty
	offline     bool   // the hub is not asked
	apart       bool   // another span publishes, maybe on a machine with other rights
	finding     bool   // entries are found or missing, and not made

	unfolded  string // see codes.unfolded
	announced bool   // the estimate has been logged
	looking   bool   // see Missing
	missing   string // the entry that was not found
}

// Made holds the artifacts of the stages that have run so far.
type Made struct {
	// Checkpoint is the directory of the source model, with the digest of its files; origin says more.
	Checkpoint pipeline.Artifact
	// Inputs is a directory with the package's small files that need no weights: tokenizer, facts of the model.
	Inputs pipeline.Artifact
	// Calibration is a directory with the calibration text.
	Calibration pipeline.Artifact
	// Allocation is a directory with the specs that meet a budget.
	Allocation pipeline.Artifact
	// Codes is a directory with matrices whose codes were chosen with calibration.
	Codes pipeline.Artifact
	// Weights is a directory with the graph, the weights and their spans.
	Weights pipeline.Artifact
	// Verdict is a directory with the package as it will be published, see [Run.Package].
	Verdict pipeline.Artifact
	// Signature is a directory with the signature of the package; not made if the recipe signs nothing.
	Signature pipeline.Artifact
	// Published has a receipt for every place that has the package; after a dry run, Changes has the difference to every place.
	Published []place.Receipt
	Changes   []publish.PlaceDiff
	// Shown is the package in the places whose channels are to move, see [publish.MoveChannels].
	Shown []publish.Shown

	origin source.Origin
	here   *hub.Snapshot // the files of the checkpoint that are in its directory
}

// New decodes the options of a recipe; errors are positioned in it. With errors of options alone, which keep their defaults, there
// is a run whose Validate finds what else is wrong.
func New(r *recipes.Recipe, l pipeline.Limits) (*Run, error) {
	run := &Run{Job: pipeline.Job{Recipe: r, Limits: l}, Options: *Defaults(), checkSpace: disk.CheckSpace, lower: lower.Lower, trials: defaultTrials}
	var errs []error
	for _, s := range run.Stages() {
		errs = append(errs, r.Stages[s.String()].Decode(s))
	}
	var err error
	if run.target, err = lower.TargetOf(r.Target.Engine); err != nil {
		return nil, recipes.Join(append(errs, r.Errorf("target.engine", "%v", err))...)
	}
	if run.devices, err = assemble.DevicesOf(r.Target, run.target.Minimum); err != nil {
		return nil, recipes.Join(append(errs, r.Errorf("target.backends", "%v", err))...)
	}
	return run, recipes.Join(errs...)
}

// Validate lets all stages check their options.
func (r *Run) Validate(ctx context.Context) error { return pipeline.Validate(ctx, r, r.Stages()) }

// Execute runs the stages up to and including the one called until, or all of them if it is empty. A second call starts again
// from the first stage.
func (r *Run) Execute(ctx context.Context, until string) ([]pipeline.Timing, error) {
	if r.Checkpoint.Made() {
		r.Restart()
	}
	stages, err := r.Stages(), error(nil)
	if until != "" {
		if stages, err = pipeline.Until(stages, until); err != nil {
			return nil, err
		}
	}
	return pipeline.Execute(ctx, r, stages)
}

// Restart implements [pipeline.Followed].
func (r *Run) Restart() {
	r.Close()
	r.Made, r.announced = Made{}, false
}

// Close stops the work ahead and closes the checkpoint; a later stage opens it again.
func (r *Run) Close() {
	r.stop()
	r.reading.Wait()
	if r.source != nil {
		r.source.Close()
	}
	r.source, r.sourceOf, r.planned = nil, "", nil
}

// Source is the checkpoint that the fetch stage found, open, with tokenizer and facts. It is opened again only if another
// checkpoint was found.
func (r *Run) Source(ctx context.Context) (*source.Source, error) {
	if r.sourceOf != "" && r.sourceOf != r.Checkpoint.Digest {
		r.Close()
	}
	src, err := r.open(ctx, r.origin)
	if err == nil {
		err = src.Complete(ctx)
	}
	if err != nil {
		return nil, r.blame(ctx, err)
	}
	if t := r.Recipe.Model.Type; t != "" && t != src.Decoder.ModelType {
		return nil, r.Recipe.Errorf("model.type", "the checkpoint is of model_type %s, not %s", src.Decoder.ModelType, t)
	}
	src.Origin, r.sourceOf = r.origin, r.Checkpoint.Digest
	return src, nil
}

// open opens a checkpoint without its tokenizer, unless it is open.
func (r *Run) open(ctx context.Context, o source.Origin) (*source.Source, error) {
	if r.source != nil && r.source.Dir == o.Dir {
		return r.source, nil
	}
	r.Close()
	var err error
	r.source, err = source.OpenModel(ctx, o, r.Recipe.Model.IgnoreConfig)
	return r.source, err
}

// Planned returns the layout of the package, with the specs of the allocation if there is one. It is computed again only for
// another allocation.
func (r *Run) Planned(ctx context.Context) (*assemble.Planned, error) {
	src, err := r.Source(ctx)
	if err != nil {
		return nil, err
	}
	return r.plan(src)
}

func (r *Run) plan(src *source.Source) (*assemble.Planned, error) {
	if r.planned != nil && r.planned.Source == src && r.plannedFor == r.Allocation.Digest {
		return r.planned, nil
	}
	var a *assemble.Allocation
	if r.Allocation.Made() {
		a = &assemble.Allocation{}
		if err := r.Allocation.ReadJSON(allocationFile, a); err != nil {
			return nil, err
		}
	}
	p, err := r.Plan(src, a)
	if err == nil {
		r.planned, r.plannedFor = p, r.Allocation.Digest
	}
	return p, err
}

// begin starts the work that can be done while the digests of the checkpoint are computed: it reads the tokenizer, and encodes
// the first weights unless methods watch the model. Errors are reported by the stage that needs the result.
func (r *Run) begin(ctx context.Context) {
	src := r.source
	if src == nil {
		return
	}
	r.reading.Go(func() { _ = src.Complete(ctx) })
	chain, err := r.Quantize.chain()
	if err != nil || r.Quantize.calibrated() {
		return
	}
	if p, err := r.plan(src); err == nil {
		r.ahead = p.Begin(ctx, chain.Quantizer, &r.Limits)
	}
}

// stop ends the writing that begin started.
func (r *Run) stop() {
	r.ahead.Stop()
	r.ahead = nil
}
