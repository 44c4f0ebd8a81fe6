package stage

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/verify"
)

// Estimate is what a run will probably take on this machine, without the entries of the store that it will find.
type Estimate struct {
	Threads int `json:"threads"`
	// Stages that will do something.
	Stages []StageEstimate `json:"stages"`
	// Seconds of all stages; without downloads.
	Seconds float64 `json:"seconds"`
	// Memory is about the most that the run will use, Disk what it writes to the cache and to directories. Both are in bytes.
	Memory int64 `json:"peak_memory_bytes"`
	Disk   int64 `json:"disk_bytes"`
}

// StageEstimate is what a stage takes.
type StageEstimate struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
	// Operations of floating-point arithmetic.
	Operations float64 `json:"operations"`
}

// task is the work of an entry of the store, or of a part of it.
type task struct {
	entry, stage string
	step         pipeline.Step
}

// entries are the names of the entries of the store in the order in which a run makes them.
var entries = []string{"rewrite", "calibration", "sensitivities", "allocation", "codes", "weights", "package"}

// tasks lists the work of a run for a source that is laid out.
func (r *Run) tasks(pl *assemble.Planned) ([]task, error) {
	d, q := pl.Source.Decoder, &r.Quantize
	chain, err := q.chain()
	if err != nil {
		return nil, err
	}
	stored := int64(0)
	for it := range pl.Plan.Items() {
		stored += it.Source.Size
	}
	list := []task{{"rewrite", "rewrite", pipeline.Step{What: "tokenizer", Work: effort.Of(effort.Scalar, float64(d.Vocab)*tokenOps)}}}
	if q.calibrated() {
		more, err := r.calibratedTasks(pl, chain)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	encoder := chain.Quantizer
	if chain.Needs() != quant.Nothing {
		encoder = nil // its codes are there
	}
	size := pl.Plan.Bytes()
	list = append(list, task{"weights", "quantize", pipeline.Step{What: pl.Plan.Text().Lowered.WeightFile(),
		Work: estimate.Weights(d, encoder, stored, size)}})
	if v := r.Verify.Perplexity; r.Verify.Enabled {
		windows, length := v.Windows, min(v.Window, max(d.MaxPositions, 1))
		if windows == 0 {
			windows = allWindows
		}
		half := 0
		if pl.RunsHalf() {
			half = verify.HalfTokens(length)
		}
		work := estimate.Verifying(d, windows, length, v.Decode, half, stored, size)
		add := func(what string, w effort.Work) {
			list = append(list, task{"package", "verify", pipeline.Step{What: what, Work: w}})
		}
		add(checkedWeights, work.Weights)
		add(checkedTokenizer, work.Tokenizer)
		add(firstWindows, work.Windows)
		if pl.Retries() { // the result for the tokenizer is kept
			add(secondWindows, work.Weights.Plus(work.Windows))
		}
	}
	return append(list, task{"", "publish", pipeline.Step{What: "files", Work: effort.Of(effort.Disk, float64(size))}}), nil
}

const (
	// tokenOps is about what converting a token of a vocabulary takes.
	tokenOps = 20_000
	// allWindows stands for all windows of a text that is not read yet.
	allWindows = 64
)

// calibratedTasks are the tasks of methods that watch the model, and of a budget.
func (r *Run) calibratedTasks(pl *assemble.Planned, chain *quant.Chain) ([]task, error) {
	d, c, l := pl.Source.Decoder, &r.Calibrate, &r.Limits
	own, window := c.ownWindows(r, d)
	total := (c.Tokens+window-1)/window + c.probeWindows(window)
	room := l.Memory/4*3 - min(l.Memory/2, floatBytes(d)) // next to kept weights
	batch := int(max(1, min(room/max(1, forward.CacheBytes(d, window)), int64(own))))
	counted := func(entry, stage, what string, w effort.Work) task {
		return task{entry, stage, pipeline.Step{What: what, Work: w, Counts: true}}
	}
	list := []task{counted("calibration", "calibrate", "samples", estimate.OwnText(d, own, window, batch))}
	bits := map[string]int{}
	for it := range pl.Plan.Items() {
		if it.Matrix() {
			bits[it.Slot.Weight.Tensor] = it.Choice.Spec.Bits
		}
	}
	e := &estimate.Calibration{
		Chain: chain, Windows: total - c.probeWindows(window), Length: window, Probe: c.probeWindows(window), Sequential: c.Sequential,
		Bits: func(tensor string) int { return bits[tensor] },
	}
	if r.Quantize.Budget != nil {
		scale, err := r.Quantize.scale(r)
		if err != nil {
			return nil, err
		}
		options := func(lookup bool) int {
			return len(storable(d.Hidden, d.Hidden, lookup, scale, &r.devices))
		}
		measured := *e
		measured.Windows = min(e.Windows, (measuringTokens+window-1)/window)
		m := measured.Sensitivities(d, estimate.Measuring{Options: options(false), Lookups: options(true), Groups: calibrate.Groups(d)})
		trial := *e
		trial.Windows, trial.Chain = measured.Windows, untuned(chain)
		if trial.Layers = r.sampled(d); trial.Layers != nil {
			trial.GradientWindows = trialGradients(window)
		}
		list = append(list, counted("sensitivities", "allocate", coreTime, m.Total()),
			counted("allocation", "allocate", trialWeights, trial.Encoding(d)), counted("allocation", "allocate", "probe", trial.Divergence(d)))
	}
	if chain.Needs() == quant.Nothing {
		return list, nil
	}
	list = append(list, counted("codes", "quantize", "calibrated weights", e.Encoding(d)))
	if chain.Tuner != nil {
		list = append(list, counted("codes", "quantize", "tuning steps", e.Tuning(d)))
	}
	return append(list, counted("codes", "quantize", "probe", e.Divergence(d))), nil
}

// least is the number of seconds, on a typical machine, from which on it is worth measuring this one.
const least = 5

// Estimate predicts what is left of a run once the entries before the one called first are found.
func (r *Run) Estimate(pl *assemble.Planned, first string) (*Estimate, error) {
	tasks, err := r.tasks(pl)
	if err != nil {
		return nil, err
	}
	from := slices.Index(entries, first)
	tasks = slices.DeleteFunc(tasks, func(t task) bool { return t.entry != "" && slices.Index(entries, t.entry) < from })
	e := &Estimate{Threads: r.Limits.Threads, Stages: []StageEstimate{}}
	if first == "" {
		tasks = nil
	}
	var all effort.Work
	steps := map[string][]pipeline.Step{}
	for _, t := range tasks {
		all = all.Plus(t.step.Work)
		steps[t.stage] = append(steps[t.stage], t.step)
	}
	rates := r.rates(all, pl.Source.Decoder.Hidden)
	for _, s := range r.Stages() {
		work := effort.Work{}
		for _, x := range steps[s.String()] {
			work = work.Plus(x.Work)
		}
		if work != (effort.Work{}) {
			e.Stages = append(e.Stages, StageEstimate{s.String(), work.Seconds(rates), work.Operations()})
		}
	}
	e.Seconds = all.Seconds(rates)
	if e.Memory, err = r.peak(pl); err != nil {
		return nil, err
	}
	if first != "" {
		e.Disk = r.written(pl)
	}
	r.Limits.Progress.Expect(rates, steps)
	return e, nil
}

// rates are those of this machine, measured if the work is worth it.
func (r *Run) rates(work effort.Work, width int) effort.Rates {
	if r.Rates != nil {
		return r.Rates(width)
	}
	typical := estimate.Typical(r.Limits.Threads)
	if work.Seconds(typical) < least {
		return typical
	}
	place := os.TempDir()
	if r.Store != nil {
		place = r.Store.Dir()
	}
	return estimate.Probe(place, r.Limits.Threads, width)
}

// peak is about the most memory that the parts of a run use within its limit, in bytes.
func (r *Run) peak(pl *assemble.Planned) (int64, error) {
	most, limit, d := int64(0), r.Limits.Memory, pl.Source.Decoder
	weights := floatBytes(d)
	if r.Verify.Enabled && 2*weights >= limit {
		return limit, nil // verification fills it
	}
	demands, err := r.Quantize.demands(r, pl.Source)
	if err != nil {
		return 0, err
	}
	for _, x := range demands {
		most = max(most, x.Bytes)
	}
	if r.Quantize.calibrated() {
		own, window := r.Calibrate.ownWindows(r, d)
		drawing := min(limit/4, int64(own)*forward.CacheBytes(d, window)) + min(limit/2, weights) + 4*int64(own)*int64(d.Vocab)
		states := min(limit/6, 2*4*int64(r.Calibrate.Tokens)*int64(d.Hidden+widest(d)))
		most = max(most, drawing, calibrate.LeastMemory(d)+states)
		if chain, err := r.Quantize.chain(); err == nil && chain.Tuner != nil {
			most = max(most, 4*weights)
		}
	}
	if r.Verify.Enabled {
		most = max(most, 2*weights)
	}
	return most, nil
}

// floatBytes is the size of the matrices of a model as float32.
func floatBytes(d *arch.Decoder) (n int64) {
	d.Linears(func(_ string, l *arch.Linear) { n += 4 * int64(l.Weight.Rows) * int64(l.Weight.Cols) })
	return n
}

// written is what a run writes at most, in bytes.
func (r *Run) written(pl *assemble.Planned) int64 {
	n, size := r.Quantize.files(pl)
	for _, t := range r.Publish.Targets(r) {
		if t.Dir != "" {
			n += size
		}
	}
	return n
}

// announce estimates what is left of a run when the first entry is about to be made, and logs it.
func (r *Run) announce(ctx context.Context, entry string) {
	if r.announced || !slices.Contains(entries, entry) || r.source == nil {
		return
	}
	r.announced = true
	pl, err := r.plan(r.source)
	if err != nil {
		return // the stage that plans reports it
	}
	e, err := r.Estimate(pl, entry)
	if err != nil {
		return
	}
	log := zerolog.Ctx(ctx).Info()
	for _, s := range e.Stages {
		log = log.Float64(s.Stage, round(s.Seconds))
	}
	message := "estimated, in seconds and bytes"
	if kernel.HasDevice() {
		message = "estimated without the card, in seconds and bytes"
	}
	log.Float64("seconds", round(e.Seconds)).Int("threads", e.Threads).Int64("memory", e.Memory).Int64("disk", e.Disk).Msg(message)
}

// round leaves whole seconds, and tenths of few.
func round(seconds float64) float64 {
	if seconds >= 10 {
		return float64(int64(seconds + .5))
	}
	return float64(int64(float64(10*seconds)+.5)) / 10
}

// errMissing ends a look at the store.
var errMissing = errors.New("not in the store")

// Missing returns the name of the first entry that a run of a checkpoint on this machine would make; it is empty if the package is
// finished. It reads no weights: entries of files whose digests are unknown count as missing.
func (r *Run) Missing(ctx context.Context, s *hub.Snapshot) (string, error) {
	if r.Store == nil || !hub.Remembered(s, digestsPath(r.Store)) {
		return entries[0], nil
	}
	ctx = zerolog.Nop().WithContext(ctx)
	r.looking = true
	defer func() { r.looking = false }()
	if !r.Checkpoint.Made() {
		defer r.Restart()
		r.origin = r.Fetch.originOf(s)
		if err := cmp.Or(r.Fetch.hash(ctx, r, s), r.Fetch.seal(r)); err != nil {
			return "", err
		}
	}
	for _, st := range r.Stages()[1:] {
		if st == pipeline.Stage[*Run](&r.Publish) {
			break
		}
		if sk, ok := st.(pipeline.Skipper[*Run]); ok {
			if _, skip := sk.Skip(r); skip {
				continue
			}
		}
		failed := (*FailedError)(nil)
		if err := st.Run(ctx, r); errors.Is(err, errMissing) {
			return r.missing, nil
		} else if err != nil && !errors.As(err, &failed) {
			return "", err
		}
	}
	return "", nil
}
