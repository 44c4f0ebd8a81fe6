package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// Quantize decides how every matrix is stored, and writes graph, weights and configuration.
type Quantize struct {
	Method    Methods    `json:"method" jsonschema_description:"How codes and scales are chosen."`
	Bits      int        `json:"bits" jsonschema:"enum=16,enum=8,enum=6,enum=5,enum=4,enum=3,enum=2" jsonschema_description:"Bits of a weight of the body; 16 stores halves."`
	Block     Block      `json:"block" jsonschema_description:"Columns that share a scale: 32, 64, 128, row, or auto, which takes 64 or what divides the columns."`
	Symmetric bool       `json:"symmetric" jsonschema_description:"Store a scale and no zero term."`
	Scale     string     `json:"scale,omitempty" jsonschema:"enum=fp16,enum=fp32" jsonschema_description:"Type of scales; the target's if absent. Engine 3.5 reads fp32 only."`
	Import    string     `json:"import,omitempty" jsonschema:"enum=keep,enum=requantize" jsonschema_description:"What becomes of matrices that are codes in the checkpoint: keep stores their codes and scales as they are, requantize rounds them anew; keep if absent."`
	Budget    *Budget    `json:"budget,omitempty" jsonschema_description:"What the package may cost; bits, block and symmetric are then chosen for every matrix, and only overrides fix some."`
	Overrides []Override `json:"overrides,omitempty" jsonschema_description:"Other storage for matrices whose checkpoint name matches; the last match wins."`
}

// Override gives matrices another storage form. Absent fields stay as they are.
type Override struct {
	Match     string `json:"match" jsonschema:"required" jsonschema_description:"Unanchored RE2 pattern on checkpoint tensor names."`
	Bits      *int   `json:"bits,omitempty" jsonschema:"enum=16,enum=8,enum=6,enum=5,enum=4,enum=3,enum=2" jsonschema_description:"Bits of a weight."`
	Block     *Block `json:"block,omitempty" jsonschema_description:"Columns that share a scale: 32, 64, 128 or row."`
	Symmetric *bool  `json:"symmetric,omitempty" jsonschema_description:"Store a scale and no zero term."`
	Scale     string `json:"scale,omitempty" jsonschema:"enum=fp16,enum=fp32" jsonschema_description:"Type of scales."`
}

// NewQuantize returns the defaults: 4 bits in blocks of 64, asymmetric, rounded to nearest, table and head in 8 bits.
func NewQuantize() *Quantize {
	return &Quantize{Method: Methods{quant.RTN{}}, Bits: 4, Block: Block{Cols: 64}}
}

// String implements pipeline.Stage.
func (*Quantize) String() string { return "quantize" }

// Validate implements pipeline.Validator.
func (q *Quantize) Validate(job *pipeline.Job) error {
	policy, err := q.policy(job)
	if err != nil {
		return err
	}
	if err := q.checkSpecs(job.Recipe, policy); err != nil {
		return err
	}
	sec := job.Recipe.Stages["quantize"]
	if q.Import != "" && q.Import != importKeep && q.Import != importRequantize {
		return sec.Errorf("import", "must be %s or %s, not %q", importKeep, importRequantize, q.Import)
	}
	if err := q.Budget.validate(sec); err != nil {
		return err
	}
	if path := job.Recipe.Model.Path; path != "" {
		return q.suitsDir(job, job.Recipe.Resolve(path))
	}
	return nil
}

// calibrated says whether the model has to be watched.
func (q *Quantize) calibrated() bool {
	c, err := quant.NewChain(q.Method)
	return q.Budget != nil || (err == nil && c.Calibrated())
}

// scaleOf is the type of scales.
func (q *Quantize) scaleOf(job *pipeline.Job) (tensor.DType, error) {
	target, err := lower.TargetOf(job.Recipe.Target.Engine)
	if err != nil {
		return 0, job.Recipe.Errorf("target.engine", "%v", err)
	}
	if q.Scale == "" {
		return target.Scale, nil
	}
	scale, err := scaleType(q.Scale, target)
	if err != nil {
		return 0, job.Recipe.Stages["quantize"].Errorf("scale", "%v", err)
	}
	return scale, nil
}

// policy turns options into what the planner reads; errors are positioned in the recipe.
func (q *Quantize) policy(job *pipeline.Job) (*quant.Policy, error) {
	sec := job.Recipe.Stages["quantize"]
	target, err := lower.TargetOf(job.Recipe.Target.Engine)
	if err != nil {
		return nil, job.Recipe.Errorf("target.engine", "%v", err)
	}
	if _, err := quant.NewChain(q.Method); err != nil {
		return nil, sec.Errorf("method", "%v", err)
	}
	scale, err := q.scaleOf(job)
	if err != nil {
		return nil, err
	}
	body := quant.Spec{Bits: q.Bits, Block: q.Block.cols(), Symmetric: q.Symmetric, Scale: scale}
	if q.Bits == 16 {
		body = quant.Half
	}
	if err := body.Validate(); err != nil {
		key := "bits"
		if (quant.Spec{Bits: q.Bits, Block: 64, Scale: scale}).Validate() == nil {
			key = "block"
		}
		return nil, sec.Errorf(key, "%s", strings.TrimPrefix(plainError(err), key+" "))
	}
	table := body
	if q.Bits != 16 {
		table.Bits = 8
	}
	// With a budget, blocks are chosen as everything else is; what is planned before needs any that fit.
	p := &quant.Policy{Default: body, Table: table, AutoBlock: q.Block.Auto || q.Budget != nil}
	for i, o := range q.Overrides {
		at := fmt.Sprintf("overrides[%d]", i)
		re, err := regexp.Compile(o.Match)
		if err != nil || o.Match == "" {
			return nil, sec.Errorf(at+".match", "is no pattern: %v", errors.Join(err, emptyPattern(o.Match)))
		}
		r := quant.Override{Match: re, Bits: o.Bits, Symmetric: o.Symmetric}
		if o.Bits != nil && (quant.Spec{Bits: *o.Bits, Scale: scale}).Validate() != nil {
			return nil, sec.Errorf(at+".bits", "must be one of 2, 3, 4, 5, 6, 8, 16, not %d", *o.Bits)
		}
		if o.Block != nil {
			if o.Block.Auto {
				return nil, sec.Errorf(at+".block", "auto is for quantize.block")
			}
			b := o.Block.cols()
			if err := (quant.Spec{Bits: 4, Block: b, Scale: scale}).Validate(); err != nil {
				return nil, sec.Errorf(at+".block", "%s", strings.TrimPrefix(plainError(err), "block "))
			}
			r.Block = &b
		}
		if o.Scale != "" {
			s, err := scaleType(o.Scale, target)
			if err != nil {
				return nil, sec.Errorf(at+".scale", "%v", err)
			}
			r.Scale = &s
		}
		p.Overrides = append(p.Overrides, r)
	}
	return p, nil
}

func emptyPattern(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return nil
}

// plainError drops the sentinel behind a message that stands in a recipe.
func plainError(err error) string {
	text := strings.TrimSuffix(err.Error(), ": "+tensor.ErrUnsupported.Error())
	return strings.TrimSuffix(text, ": "+tensor.ErrCorrupt.Error())
}

func scaleType(s string, t lower.Target) (tensor.DType, error) {
	switch {
	case s == "fp32":
		return tensor.F32, nil
	case s != "fp16":
		return 0, fmt.Errorf("must be fp16 or fp32, not %q", s)
	case t.Scale != tensor.F16:
		return 0, fmt.Errorf("engine %s misreads fp16 scales; use fp32 or a newer engine", t.Engine)
	}
	return tensor.F16, nil
}

// Planned is a laid out model, before a weight is read.
type Planned struct {
	Source *Source
	Target lower.Target
	Plan   *plan.Plan
	// GraphBytes is the size of the linked graph's file.
	GraphBytes int64
	// Allocation is where specs come from that a budget decided; nil without one.
	Allocation *allocation
	// Kept are the specs of matrices whose codes and scales are those of the checkpoint; nil if there are none.
	Kept map[string]quant.Spec
	// Profiles are those of the target's backends.
	Profiles []*backends.Profile
}

// Plan lays the model of an open source out, with the specs of the job's allocation if it has one.
func (q *Quantize) Plan(job *pipeline.Job, src *Source) (*Planned, error) {
	a, err := openAllocation(job)
	if err != nil {
		return nil, err
	}
	return q.planWith(job, src, a)
}

// planWith lays a model out with the specs of an allocation, which may be nil.
func (q *Quantize) planWith(job *pipeline.Job, src *Source, a *allocation) (*Planned, error) {
	policy, err := q.policy(job)
	if err != nil {
		return nil, err
	}
	kept, err := q.kept(job, src, policy)
	if err != nil {
		return nil, err
	}
	policy.Fixed = kept
	if a != nil {
		if policy.Fixed, err = a.fixed(); err != nil {
			return nil, err
		}
	}
	target, err := lower.TargetOf(job.Recipe.Target.Engine)
	if err != nil {
		return nil, err
	}
	m, err := lowered(job, src.Decoder)
	if err != nil {
		return nil, err
	}
	p, err := plan.New(m, src.Weights.Tensors(), policy)
	if err != nil {
		var unused *plan.UnusedOverride
		if errors.As(err, &unused) {
			return nil, job.Recipe.Stages["quantize"].Errorf(fmt.Sprintf("overrides[%d].match", unused.Index), "%q matches no matrix of the checkpoint", unused.Pattern)
		}
		return nil, err
	}
	size, err := p.Graph().Size()
	if err != nil {
		return nil, err
	}
	if err := lower.CheckGraphSize(size); err != nil {
		return nil, err
	}
	targeted, err := profiles(job.Recipe)
	if err != nil {
		return nil, err
	}
	pl := &Planned{Source: src, Target: target, Plan: p, GraphBytes: int64(size), Allocation: a, Kept: kept, Profiles: targeted}
	// Before a budget is shared out, storage forms are provisional.
	if q.Budget != nil && a == nil {
		return pl, nil
	}
	f := pl.features()
	return pl, checkBackends(targeted, &f, target.Minimum)
}

// FileBytes is the largest size of all files that the engine opens, with all that verification may add to config.json;
// inputs is the directory of those that need no weights.
func (p *Planned) FileBytes(inputs string) (int64, error) {
	llm, err := llmConfig(p)
	if err != nil {
		return 0, err
	}
	run := p.runConfig()
	run.dynamicOption = 2
	run.atLeast("normal")
	config, err := run.json(p.Target, manifest.DigestOf(nil))
	if err != nil {
		return 0, err
	}
	st, err := os.Stat(filepath.Join(inputs, TokenizerFile))
	if err != nil {
		return 0, err
	}
	return p.Plan.Bytes + p.GraphBytes + int64(len(llm)+len(config)) + st.Size(), nil
}

// DeviceContext is the number of positions that estimates of device memory include.
const DeviceContext = 2048

// Memory estimates what a device needs to run the package.
func (p *Planned) Memory() plan.Memory {
	return p.Plan.Memory()
}

// Run implements pipeline.Stage.
func (q *Quantize) Run(ctx context.Context, job *pipeline.Job) error {
	defer aheadOf(job).stop()
	src, err := openSource(ctx, job)
	if err != nil {
		return err
	}
	defer src.Close()
	pl, err := q.Plan(job, src)
	if err != nil {
		return err
	}
	other := map[string]int{} // of matrices that take another block than asked for
	for i := range pl.Plan.Items {
		it := &pl.Plan.Items[i]
		zerolog.Ctx(ctx).Debug().Str("tensor", it.Slot.Weight.Tensor).Str("spec", it.Spec()).Int64("offset", it.Offset).Int64("bytes", it.Size()).Msg("planned")
		if it.Choice.AutoFrom != 0 {
			other[fmt.Sprintf("%d columns do not divide into blocks of %d: %s", it.Layout.Cols, it.Choice.AutoFrom, it.Spec())]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(other)) {
		zerolog.Ctx(ctx).Warn().Int("matrices", other[reason]).Msg(reason)
	}
	checkpoint, err := job.Artifacts.One(pipeline.Checkpoint)
	if err != nil {
		return err
	}
	inputs, err := job.Artifacts.One(pipeline.Inputs)
	if err != nil {
		return err
	}
	codes, err := q.codes(ctx, job, pl)
	if err != nil {
		return err
	}
	parts := []any{checkpoint.Digest, inputs.Digest, job.Recipe.Target, job.Recipe.Model.IgnoreConfig, q, pl.Allocation}
	if codes != nil {
		parts = append(parts, codes.digest)
	}
	if src.heads != nil {
		parts = append(parts, "streamed") // the record has what was found by comparing
	}
	key, err := pipeline.Key("quantize", parts...)
	if err != nil {
		return err
	}
	a, err := made(ctx, job, "weights", key, func(p *pipeline.Partial) (manifest.Digest, error) {
		return q.build(ctx, job, pl, codes, p)
	}, WeightFile, journalFile, spoolDir)
	if err != nil {
		return err
	}
	a.Kind, a.Size = pipeline.Weights, pl.Plan.Bytes
	job.Artifacts.Add(a)
	return nil
}

// Files of a package.
const (
	GraphFile     = "llm.mnn"
	WeightFile    = "llm.mnn.weight"
	ConfigFile    = "config.json"
	LLMConfigFile = "llm_config.json"
	recordFile    = "record.json"
)

func (q *Quantize) build(ctx context.Context, job *pipeline.Job, pl *Planned, codes *codes, p *pipeline.Partial) (manifest.Digest, error) {
	o, err := q.writeOptions(job, pl)
	if err != nil {
		return "", err
	}
	o.Progress = func(done int64) { job.Limits.Report("quantize", WeightFile, done, pl.Plan.Bytes) }
	var rec weightsRecord
	var spans []string
	var sum string
	if pl.Source.heads != nil {
		w := &streamWriter{dir: p.Dir, entry: p.Name, plan: pl.Plan, src: pl.Source, closeness: closeness(q)}
		if w.hub, err = hubOf(job); err != nil {
			return "", err
		}
		spans, sum, rec.Compared, err = w.write(ctx, o)
	} else {
		if err := disk.CheckSpace(p.Dir, pl.Plan.Bytes+pl.GraphBytes); err != nil {
			return "", err
		}
		w := &weightWriter{dir: p.Dir, entry: p.Name, plan: pl.Plan, ahead: aheadOf(job)}
		var src tensor.Source = pl.Source.Weights
		if codes != nil {
			src, o.Encoded = codes.source, codes.finished.Encoded
			pl.Plan.Take(src.Tensors())
		}
		spans, sum, err = w.write(ctx, src, o)
	}
	if err != nil {
		return "", err
	}
	llmConfig, err := llmConfig(pl)
	if err != nil {
		return "", err
	}
	graph, err := pl.Plan.Graph().Marshal()
	if err != nil {
		return "", err
	}
	rec.Tensors, rec.Files = tensorsOf(pl.Plan, spans), map[string]string{
		WeightFile: sum, GraphFile: manifest.DigestOf(graph).Hex(), LLMConfigFile: manifest.DigestOf(llmConfig).Hex(),
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	for _, f := range []struct {
		name string
		b    []byte
	}{{GraphFile, graph}, {LLMConfigFile, llmConfig}, {recordFile, b}} {
		if err := os.WriteFile(filepath.Join(p.Dir, f.name), f.b, 0o666); err != nil {
			return "", err
		}
	}
	for name, sum := range rec.Files {
		p.Knows(name, sum)
	}
	return manifest.DigestOf(b), nil
}

// weightsRecord says what a finished directory of weights holds.
type weightsRecord struct {
	Tensors []manifest.Tensor `json:"tensors"`
	// Files maps names to hex SHA-256.
	Files map[string]string `json:"files"`
	// Compared is what the weights check says, where the source was not kept; else nil.
	Compared *verify.Finding `json:"compared,omitempty"`
}

// tensorsOf lists the plan's spans for a manifest.
func tensorsOf(p *plan.Plan, sums []string) []manifest.Tensor {
	list := make([]manifest.Tensor, len(p.Items))
	for i := range p.Items {
		it := &p.Items[i]
		name := it.Slot.Weight.Tensor
		if it.Slot.Bias.Tensor != "" {
			name += biasSeparator + it.Slot.Bias.Tensor
		}
		list[i] = manifest.Tensor{
			Name: name, Op: it.Slot.Name, Spec: it.Spec(), File: WeightFile, Offset: it.Offset, Size: it.Size(), SHA256: sums[i],
		}
	}
	return list
}
