package stage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// Quantize decides how every matrix is stored, and writes graph, weights and configuration.
type Quantize struct {
	Method    Methods    `json:"method" jsonschema_description:"How codes and scales are chosen."`
	Bits      int        `json:"bits" jsonschema:"enum=16,enum=8,enum=6,enum=5,enum=4,enum=3,enum=2" jsonschema_description:"Bits of a weight of the body; 16 stores halves."`
	Block     Block      `json:"block" jsonschema_description:"Columns that share a scale: 32, 64, 128, row, or auto, which is 64 or else a length that divides the columns."`
	Symmetric bool       `json:"symmetric" jsonschema_description:"Store a scale and no zero term."`
	Scale     string     `json:"scale,omitempty" jsonschema:"enum=fp16,enum=fp32" jsonschema_description:"Type of scales; the target's if absent. Engine 3.5 reads fp32 only."`
	Import    string     `json:"import,omitempty" jsonschema:"enum=keep,enum=requantize" jsonschema_description:"How to store matrices that are codes in the checkpoint: keep stores their codes and scales as they are, requantize rounds them again; keep if absent."`
	Budget    *Budget    `json:"budget,omitempty" jsonschema_description:"Largest cost of the package; bits, block and symmetric are then chosen for every matrix that no override fixes."`
	Overrides []Override `json:"overrides,omitempty" jsonschema_description:"Different storage for matrices whose checkpoint name matches; the last match wins."`
}

// Override gives matrices another storage form. Absent fields stay as they are.
type Override struct {
	Match     string `json:"match" jsonschema:"required" jsonschema_description:"Unanchored RE2 pattern on checkpoint tensor names."`
	Bits      *int   `json:"bits,omitempty" jsonschema:"enum=16,enum=8,enum=6,enum=5,enum=4,enum=3,enum=2" jsonschema_description:"Bits of a weight."`
	Block     *Block `json:"block,omitempty" jsonschema_description:"Columns that share a scale: 32, 64, 128 or row."`
	Symmetric *bool  `json:"symmetric,omitempty" jsonschema_description:"Store a scale and no zero term."`
	Scale     string `json:"scale,omitempty" jsonschema:"enum=fp16,enum=fp32" jsonschema_description:"Type of scales."`
}

// NewQuantize returns the defaults: 4 bits in blocks of 64, asymmetric, rounded to nearest, embedding table and head in 8 bits.
func NewQuantize() *Quantize {
	return &Quantize{Method: Methods{quant.RTN{}}, Bits: 4, Block: Block{Cols: 64}}
}

// String implements [pipeline.Stage].
func (*Quantize) String() string { return "quantize" }

// Validate implements [pipeline.Validator].
func (q *Quantize) Validate(ctx context.Context, r *Run) error {
	sec := r.Recipe.Stages["quantize"]
	policy, err := q.policy(r)
	if err == nil {
		err = q.checkSpecs(r, policy)
	}
	err = recipes.Join(err, q.Budget.validate(sec), check(sec, rule{q.Import != "" && q.Import != importKeep && q.Import != importRequantize,
		"import", fmt.Sprintf("must be %s or %s, not %q", importKeep, importRequantize, q.Import)}))
	if err != nil {
		return err
	}
	if path := r.Recipe.Model.Path; path != "" {
		return q.checkDir(ctx, r, source.Origin{Dir: r.Recipe.Resolve(path)})
	}
	return nil
}

// chain assigns each method to its place in the chain.
func (q *Quantize) chain() (*quant.Chain, error) { return quant.NewChain(q.Method) }

// calibrated reports whether a method or a budget watches the model.
func (q *Quantize) calibrated() bool {
	c, err := q.chain()
	return q.Budget != nil || (err == nil && c.Needs() != quant.Nothing)
}

// closeness is what the methods promise about the error of weights; without methods, weights count as rounded.
func (q *Quantize) closeness() quant.Closeness {
	if q != nil {
		if chain, err := q.chain(); err == nil {
			return chain.Closeness()
		}
	}
	return quant.RTN{}.Closeness()
}

// Run implements [pipeline.Stage].
func (q *Quantize) Run(ctx context.Context, r *Run) error {
	defer r.stop()
	pl, err := r.Planned(ctx)
	if err != nil {
		return err
	}
	logPlan(ctx, pl)
	w := &assemble.Weights{Planned: pl, Limits: &r.Limits, Ahead: r.ahead, Closeness: q.closeness()}
	chain, err := q.chain()
	if err != nil {
		return err
	}
	w.Quantizer = chain.Quantizer
	of := inputs{r.Checkpoint.Digest, r.Inputs.Digest, r.Recipe.Target, r.Recipe.Model.IgnoreConfig, q, pl.Allocation}
	if chain.Needs() != quant.Nothing {
		if err := q.encode(ctx, r, pl, chain); err != nil {
			return err
		}
		c, err := openCodes(r.Codes, pl.Source)
		if err != nil {
			return err
		}
		if r.unfolded = c.unfolded(pl.Source.Decoder, chain); r.unfolded != "" {
			zerolog.Ctx(ctx).Warn().Msg(r.unfolded)
		}
		w.Codes = &assemble.Codes{Source: c.source, Encoded: c.finished.Encoded}
		of = append(of, r.Codes.Digest)
	}
	if pl.Source.Heads != nil {
		if w.Hub, err = r.Fetch.hub(&r.Limits); err != nil {
			return err
		}
		of = append(of, "streamed") // the record contains the result of the comparison
	}
	r.Weights, err = r.entry(ctx, "weights", of, func(p *pipeline.Partial) (digest.Digest, error) {
		return w.Make(ctx, p)
	}, w.Resumable()...)
	return err
}

// logPlan logs every tensor, and warns of matrices whose block differs from the recipe's.
func logPlan(ctx context.Context, pl *assemble.Planned) {
	log, other := zerolog.Ctx(ctx), map[string]int{}
	for it := range pl.Plan.Items() {
		log.Debug().Str("tensor", it.Slot.Weight.Tensor).Str("spec", it.Spec()).Int64("offset", it.Offset).Int64("bytes", it.Size()).Msg("planned")
		if it.Choice.AutoFrom != 0 {
			other[fmt.Sprintf("%d columns do not divide into blocks of %d: %s", it.Layout.Cols, it.Choice.AutoFrom, it.Spec())]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(other)) {
		log.Warn().Int("matrices", other[reason]).Msg(reason)
	}
}
