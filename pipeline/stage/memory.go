package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify/reference"
)

// demand is the least memory of a part of a run.
type demand struct {
	what  string
	bytes int64
}

// smallestHeap is what the program itself holds: its tables, and a tokenizer's words.
func smallestHeap(d *arch.Decoder) int64 { return 16<<20 + 256*int64(d.Vocab) }

// MemoryError rejects a limit on memory that some work cannot keep.
type MemoryError struct {
	What        string
	Need, Limit int64 // bytes
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s needs %s of memory, the limit is %s", e.What, inMebibytes(e.Need), recipes.Size(e.Limit))
}

// verification is the least memory of comparing packages with the source in windows of length tokens.
func verification(ref *reference.Model, length int) demand {
	return demand{fmt.Sprintf("verification with windows of %d tokens", length), verifyShare * ref.LeastMemory(length)}
}

// demands lists the least memory of every part of a run that depends on the model. Below it a part would take more than the
// limit, or spend its time collecting garbage.
func (q *Quantize) demands(job *pipeline.Job, src *Source) ([]demand, error) {
	list := []demand{{"writing weights", plan.LeastMemory}}
	if q.calibrated() {
		c, err := calibrateOf(job)
		if err != nil {
			return nil, err
		}
		list = append(list,
			demand{fmt.Sprintf("text that the model writes, in windows of %d tokens", c.Window), calibrate.LeastSampling(src.Decoder, c.Window, job.Limits.Threads)},
			demand{"calibration, one layer at a time", calibrate.LeastMemory(src.Decoder)},
		)
	}
	stages, err := New(job.Recipe)
	if err != nil {
		return nil, err
	}
	v := Find[*Verify](stages)
	if !v.Enabled || src.heads != nil {
		return list, nil
	}
	o, err := v.options(job, 16)
	if err != nil {
		return nil, err
	}
	ref, err := reference.New(src.Decoder, src.Weights, reference.Options{Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	return append(list, verification(ref, o.Window)), nil
}

// fits rejects a limit that some part of the run cannot keep, before any part begins.
func (q *Quantize) fits(job *pipeline.Job, src *Source) error {
	list, err := q.demands(job, src)
	if err != nil {
		return err
	}
	most := slices.MaxFunc(list, func(a, b demand) int { return cmp.Compare(a.bytes, b.bytes) })
	if need := most.bytes + smallestHeap(src.Decoder); need > job.Limits.Memory {
		return job.Recipe.Errorf("limits.memory", "%v", &MemoryError{most.what, need, job.Limits.Memory})
	}
	return nil
}

// inMebibytes is a size in whole mebibytes that is not smaller.
func inMebibytes(n int64) recipes.Size { return recipes.Size((n + 1<<20 - 1) >> 20 << 20) }

// Prepare implements pipeline.Preparer: memory and disks suffice for a checkpoint that is on this machine. What has to be
// fetched is looked at once its files are here.
func (q *Quantize) Prepare(_ context.Context, job *pipeline.Job) error {
	path := job.Recipe.Model.Path
	if path == "" {
		return nil
	}
	return q.prepareDir(job, job.Recipe.Resolve(path))
}

// prepareDir is Prepare for a checkpoint in dir. One that cannot be opened is left to the stage that needs it.
func (q *Quantize) prepareDir(job *pipeline.Job, dir string) error {
	src := &Source{Dir: dir}
	defer src.Close()
	if src.open(job.Recipe.Model.IgnoreConfig) != nil {
		return nil
	}
	if err := q.fits(job, src); err != nil {
		return err
	}
	return q.room(job, src)
}

// checkSpace is replaced by tests.
var checkSpace = disk.CheckSpace

// room rejects disks that are too full for what a run writes: weights, and codes before them if the model is watched, into
// the cache, and a package into every directory. What is there already may be used again, so it counts as room.
func (q *Quantize) room(job *pipeline.Job, src *Source) error {
	pl, err := q.planWith(job, src, nil)
	if err != nil {
		return nil // an error of the stage that plans, which says it better
	}
	size := pl.Plan.Bytes + pl.GraphBytes
	inCache := size
	if q.calibrated() {
		inCache += size
	}
	check := func(dir string, need int64) error {
		full := (*disk.FullError)(nil)
		if err := checkSpace(dir, need-sizeOf(dir)); errors.As(err, &full) {
			return fmt.Errorf("this run writes %s there: %w", recipes.Size(need), err)
		}
		return nil
	}
	if err := check(job.Store.Dir, inCache); err != nil {
		return err
	}
	stages, err := New(job.Recipe)
	if err != nil {
		return err
	}
	places, err := Find[*Publish](stages).places(job)
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

// sizeOf is the size of all files below dir, 0 if there is none.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
