package assemble

import (
	"context"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/quant"
)

// aheadBytes bounds the part of the weight file that may wait in memory for the digests of the source.
const aheadBytes = 32 << 20

// Ahead is the beginning of the text model's weight file, encoded in memory while the digests of the source are taken, which
// mostly keeps one thread busy. None of it reaches the disk before the digests are known. Nil is an Ahead that has begun nothing.
type Ahead struct {
	planned *Planned
	cancel  context.CancelFunc
	writing *plan.Writing
}

// Begin starts to encode a planned package; Stop must follow.
func (p *Planned) Begin(ctx context.Context, q quant.Quantizer, l *pipeline.Limits) *Ahead {
	ctx, cancel := context.WithCancel(ctx)
	return &Ahead{p, cancel, p.Plan.Text().Begin(ctx, p.Source.Weights, p.writeOptions(q, l))}
}

// take returns the file that was begun for p, or nil.
func (a *Ahead) take(p *Planned) *plan.Writing {
	if a == nil || a.planned != p {
		return nil
	}
	return a.writing
}

// Stop ends the work and waits for its end.
func (a *Ahead) Stop() {
	if a != nil {
		a.cancel()
		a.writing.Wait()
	}
}

// writeOptions are those of writing the weights from the beginning.
func (p *Planned) writeOptions(q quant.Quantizer, l *pipeline.Limits) plan.WriteOptions {
	o := plan.WriteOptions{Quantizer: q, Threads: l.Threads, Memory: l.Memory / 4, Ahead: min(aheadBytes, l.Memory/8)}
	if p.Kept != nil {
		o.Encoded = p.Source.Quantized.Encoded(p.Kept)
	}
	return o
}
