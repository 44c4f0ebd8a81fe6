package stage

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// aheadBytes is how much of the weight file may wait in memory for the digests of the source.
const aheadBytes = 32 << 20

// ahead is what can be computed of a checkpoint while its digests are taken, which mostly keeps one thread busy. None
// of it reaches the disk before the digests are known, and what fails is computed again by the stage that needs it.
type ahead struct {
	cancel context.CancelFunc
	begun  chan struct{} // closed when the fields below are valid

	tokenizer *tokenizer.Tokenizer // or nil
	source    *Source              // or nil, as the next two
	plan      *plan.Plan
	writing   *plan.Writing
}

// beginAhead starts with the checkpoint in dir.
func beginAhead(ctx context.Context, job *pipeline.Job, dir string) *ahead {
	a := &ahead{begun: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(ctx)
	go func() {
		defer close(a.begun)
		a.tokenizer, _ = LoadTokenizer(dir)
		a.begin(ctx, job, dir)
	}()
	return a
}

func (a *ahead) begin(ctx context.Context, job *pipeline.Job, dir string) {
	stages, err := New(job.Recipe)
	if err != nil || ctx.Err() != nil {
		return
	}
	q, src := Find[*Quantize](stages), &Source{Dir: dir}
	if q.calibrated() { // there is nothing to write yet
		return
	}
	if src.open(job.Recipe.Model.IgnoreConfig) == nil {
		if pl, err := q.planWith(job, src, nil); err == nil { // job.Artifacts are not ours to read here
			if o, err := q.writeOptions(job, pl); err == nil {
				a.source, a.plan, a.writing = src, pl.Plan, pl.Plan.Begin(ctx, src.Weights, o)
				return
			}
		}
	}
	src.Close()
}

// take returns the begun file of a plan, or nil.
func (a *ahead) take(p *plan.Plan) *plan.Writing {
	if a == nil {
		return nil
	}
	<-a.begun
	if a.plan == nil || !slices.EqualFunc(a.plan.Items, p.Items, plan.Item.Equal) {
		return nil
	}
	return a.writing
}

// stop ends what is at work.
func (a *ahead) stop() {
	if a == nil {
		return
	}
	a.cancel()
	<-a.begun
	if a.writing != nil {
		a.writing.Wait()
		a.source.Close()
		a.source, a.plan, a.writing = nil, nil, nil
	}
}

// aheadOf is what the fetch stage began, or nil.
func aheadOf(job *pipeline.Job) *ahead {
	a, _ := job.Ahead.(*ahead)
	return a
}

// writeOptions are those of writing the weights from the beginning.
func (q *Quantize) writeOptions(job *pipeline.Job, pl *Planned) (plan.WriteOptions, error) {
	chain, err := quant.NewChain(q.Method)
	if err != nil {
		return plan.WriteOptions{}, err
	}
	o := plan.WriteOptions{Quantizer: chain.Quantizer, Threads: job.Limits.Threads, Memory: job.Limits.Memory / 4, Ahead: min(aheadBytes, job.Limits.Memory/8)}
	if pl.Kept != nil {
		o.Encoded = pl.Source.Quantized.Encoded(pl.Kept)
	}
	return o, nil
}
