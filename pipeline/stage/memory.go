package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/recipes"
)

// Prepare implements [pipeline.Preparer]: memory and disks suffice for a checkpoint that is on this machine. One that has to be
// fetched is looked at once its files are here.
func (q *Quantize) Prepare(ctx context.Context, r *Run) error {
	path := r.Recipe.Model.Path
	if path == "" {
		return nil
	}
	return q.prepareDir(ctx, r, source.Origin{Dir: r.Recipe.Resolve(path)})
}

// prepareDir is Prepare for the checkpoint of an origin. One that cannot be opened is left to the stage that needs it.
func (q *Quantize) prepareDir(ctx context.Context, r *Run, o source.Origin) error {
	src, err := r.open(ctx, o)
	if err != nil {
		return nil
	}
	if err := q.fits(r, src); err != nil {
		return err
	}
	return q.room(r, src)
}

// demands lists the least memory of every part of a run that depends on the model. Below it a part would take more than the
// limit, or spend its time collecting garbage.
func (q *Quantize) demands(r *Run, src *source.Source) ([]assemble.Demand, error) {
	list := []assemble.Demand{{What: "writing weights", Bytes: plan.LeastMemory}}
	if q.calibrated() {
		window := r.Calibrate.Window
		list = append(list, assemble.Demand{
			What:  fmt.Sprintf("text that the model writes, in windows of %d tokens", window),
			Bytes: calibrate.LeastSampling(src.Decoder, window, r.Limits.Threads),
		}, assemble.Demand{What: "calibration, one layer at a time", Bytes: calibrate.LeastMemory(src.Decoder)})
	}
	if !r.Verify.Enabled || src.Heads != nil {
		return list, nil
	}
	o, err := r.Verify.options(r.Recipe, &r.Limits, 16)
	if err != nil {
		return nil, err
	}
	ref, err := reference.New(src.Decoder, src.Weights, reference.Options{Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	return append(list, assemble.Verification(ref, o.Window)), nil
}

// fits rejects a limit that some part of the run cannot keep, before any part begins.
func (q *Quantize) fits(r *Run, src *source.Source) error {
	list, err := q.demands(r, src)
	if err != nil {
		return err
	}
	most := slices.MaxFunc(list, func(a, b assemble.Demand) int { return cmp.Compare(a.Bytes, b.Bytes) })
	if err := most.Within(r.Limits.Memory, src.Decoder); err != nil {
		return r.Recipe.Errorf("limits.memory", "%v", err)
	}
	return nil
}

// room rejects disks that are too full for the files of a run: weights, and codes before them if the model is watched, into
// the cache, and a package into every directory. Files that are there already may be used again, so they count as room.
func (q *Quantize) room(r *Run, src *source.Source) error {
	pl, err := r.plan(src)
	if err != nil {
		return nil // an error of the stage that plans, which reports it better
	}
	size := pl.Plan.Bytes() + pl.GraphBytes
	inCache := size
	if q.calibrated() {
		inCache += size
	}
	check := func(dir string, need int64) error {
		full := (*disk.FullError)(nil)
		held, _ := disk.Usage(dir)
		if err := r.checkSpace(dir, need-held); errors.As(err, &full) {
			return fmt.Errorf("this run writes %s there: %w", recipes.Size(need), err)
		}
		return nil
	}
	if err := check(r.Store.Dir(), inCache); err != nil {
		return err
	}
	places, err := r.Publish.places(r)
	if err != nil {
		return err
	}
	for _, p := range places {
		if d, ok := p.Store.(dir.Place); ok {
			if err := check(d.Path, size); err != nil {
				return err
			}
		}
	}
	return nil
}
