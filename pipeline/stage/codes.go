package stage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// codes are the matrices that a calibrated method has encoded.
type codes struct {
	finished *calibrate.Finished
	// source has the float tensors that the codes represent, with foldings applied.
	source tensor.Source
	record codesRecord
}

// codesRecord describes a calibration for reports.
type codesRecord struct {
	// Text is the digest of the calibration text.
	Text    digest.Digest   `json:"text"`
	Domains []corpus.Domain `json:"domains"`
	Tokens  int             `json:"tokens"`
	// ProbeKL is the divergence in nats of the encoded model from the source on the probe, ProbeTokens of the same text.
	ProbeKL     float64 `json:"probe_kl"`
	ProbeTokens int     `json:"probe_tokens"`
	// Shown are the pictures and clips, and the divergence on those that were set aside; absent without any.
	Shown []about.CalibrationShown `json:"shown,omitempty"`
}

// see measures an encoded model on the pictures and on the clips that were set aside.
func (rec *codesRecord) see(ctx context.Context, o calibrate.Options, s calibrate.Scheme, f *calibrate.Finished, x *showing) error {
	for which, all := range x.shown {
		m := x.record.Pictures
		if all.Ear != nil {
			m = x.record.Sounds
		}
		var prompts []calibrate.Prompt
		for _, p := range x.probe {
			if p.Showing == which {
				p.Showing = 0
				prompts = append(prompts, p)
			}
		}
		seen, err := calibrate.See(ctx, o, s, f, []*calibrate.Showing{all}, prompts)
		if err != nil {
			return err
		}
		zerolog.Ctx(ctx).Info().Float64("kl", seen.KL).Float64("rows", seen.Rows).Int("prompts", len(prompts)).
			Msg("divergence on prompts with " + mediaName(all) + " that the calibration did not use, and squared error of the rows")
		rec.Shown = append(rec.Shown, about.CalibrationShown{
			Kind: mediaName(all), Name: m.Name, SHA256: m.SHA256, Files: m.Files, Used: len(m.Shown) - len(prompts),
			ProbeKL: seen.KL, ProbeRows: seen.Rows, Probe: len(prompts), ProbeTokens: seen.Tokens,
		})
	}
	return nil
}

// mediaName names what a tower or an ear is shown.
func mediaName(s *calibrate.Showing) string {
	if s.Ear != nil {
		return corpus.Sounds.Name
	}
	return corpus.Pictures.Name
}

const codesFile = "codes.json"

// encode chooses the codes of all matrices of a plan, or reuses those of an earlier run.
func (q *Quantize) encode(ctx context.Context, r *Run, pl *assemble.Planned, chain *quant.Chain) error {
	c := &r.Calibrate
	c.notice(ctx, pl.Source)
	s := schemeOf(pl, chain, c)
	names := map[string]string{}
	for n, spec := range s.Specs {
		names[n] = spec.String()
	}
	of := inputs{r.Checkpoint.Digest, r.Calibration.Digest, r.Recipe.Model.IgnoreConfig, q.Method, names, c}
	var err error
	r.Codes, err = r.entry(ctx, "codes", of, func(p *pipeline.Partial) (digest.Digest, error) {
		all, windows, probe, err := r.text()
		if err != nil {
			return "", err
		}
		o, shown, err := r.watching(pl, windows, p, "quantize", "calibrated weights")
		if err != nil {
			return "", err
		}
		f, err := calibrate.Quantize(ctx, o, s)
		if err != nil {
			return "", err
		}
		if chain.Tuner != nil {
			o.Progress = func(done, total int64) { r.Limits.Report("quantize", "tuning steps", done, total) }
			if f, err = calibrate.Tune(ctx, o, s, f); err != nil {
				return "", err
			}
		}
		rec := codesRecord{Text: r.Calibration.Digest, Domains: all.Domains, Tokens: len(windows) * len(windows[0]), ProbeTokens: len(probe) * len(probe[0])}
		if rec.ProbeKL, err = calibrate.Divergence(ctx, o, s, f, probe); err != nil {
			return "", err
		}
		zerolog.Ctx(ctx).Info().Float64("kl", rec.ProbeKL).Int("tokens", rec.ProbeTokens).Msg("encoded; divergence measured on text that the calibration did not use")
		if shown != nil {
			if err := rec.see(ctx, o, s, f, shown); err != nil {
				return "", err
			}
		}
		_, err = p.WriteJSON(codesFile, rec)
		return digest.Of([]byte(f.Digest())), err
	}, calibrate.Resumable...)
	return err
}

// schemeOf is how the matrices of a plan are encoded.
func schemeOf(pl *assemble.Planned, chain *quant.Chain, c *Calibrate) calibrate.Scheme {
	s := calibrate.Scheme{Chain: chain, Specs: map[string]quant.Spec{}, Floats: map[string]bool{}, Sequential: c.Sequential}
	for _, part := range pl.Plan.Parts {
		if part != pl.Plan.Text() && !c.shows() {
			continue
		}
		for i := range part.Items {
			if it := &part.Items[i]; it.Matrix() {
				s.Specs[it.Slot.Weight.Tensor] = it.Choice.Spec
			} else {
				s.Floats[it.Slot.Weight.Tensor] = true
			}
		}
	}
	// A package whose table is another view has the embedding only where it is the head, too.
	if e := pl.Source.Decoder.Embedding.Tensor; s.Specs[e] == (quant.Spec{}) {
		s.Floats[e] = true
	}
	return s
}

// watching are the options of work that watches the model on some text and on what it is shown, which may be nil, for an entry of the
// store; what of a stage it counts.
func (r *Run) watching(pl *assemble.Planned, windows [][]int32, p *pipeline.Partial, stage, what string) (calibrate.Options, *showing, error) {
	o := calibrate.Options{
		Decoder: pl.Source.Decoder, Source: pl.Source.Weights, Windows: windows, Skip: r.Calibrate.SkipTokens,
		Threads: r.Limits.Threads, Memory: r.Limits.Memory, Dir: p.Dir, Name: p.Name,
		Progress: func(done, total int64) { r.Limits.Report(stage, what, done, total) },
	}
	x, err := r.showing(pl.Source, windows)
	if x != nil {
		o.Shown, o.Prompts = x.learned, x.prompts
	}
	return o, x, err
}

// summary describes how codes were chosen, with the divergence in nats that an allocation predicted, and returns the reports of
// the methods on every matrix.
func (x *codes) summary(a *assemble.Allocation) (*about.Calibration, *verify.Fits, error) {
	c := &about.Calibration{
		Text: string(x.record.Text), Tokens: x.record.Tokens, ProbeKL: x.record.ProbeKL, ProbeTokens: x.record.ProbeTokens,
	}
	c.Shown = x.record.Shown
	if a != nil {
		c.PredictedKL = a.KL
	}
	for _, d := range x.record.Domains {
		c.Domains = append(c.Domains, about.CalibrationText{Name: d.Name, SHA256: d.SHA256, Windows: d.Windows, Tokens: d.Tokens, Weight: d.Weight})
	}
	for _, o := range x.finished.Ops {
		c.Ops = append(c.Ops, about.OpError{Tensor: o.Tensor, Spec: o.Spec, Tokens: o.Tokens, WeightError: o.WeightError, OutputError: o.OutputError, Dead: o.Dead})
	}
	foldings, err := x.finished.Foldings()
	for _, f := range foldings {
		c.Foldings = append(c.Foldings, about.Folding{Site: f.Site, Method: f.Method, Gain: f.Gain()})
	}
	fits := fitsOf(c)
	fits.Floats = x.source
	return c, fits, err
}

// fitsOf are the errors that the methods of a calibration reported.
func fitsOf(c *about.Calibration) *verify.Fits {
	f := &verify.Fits{Reported: map[string]verify.Fit{}}
	for _, o := range c.Ops {
		f.Reported[o.Tensor] = verify.Fit{Spec: o.Spec, Weights: o.WeightError, Outputs: o.OutputError}
	}
	return f
}

// packagedFits are the reports in a package; nil if there are none. The layout check compares the digest of their file.
func packagedFits(dir string) (*verify.Fits, error) {
	b, err := source.ReadOptional(dir, about.ReportName)
	if err != nil || b == nil {
		return nil, err
	}
	var report about.Report
	if err := json.Unmarshal(b, &report); err != nil || report.Calibration == nil {
		return nil, nil // a package of another program, or of methods that do not watch the model
	}
	return fitsOf(report.Calibration), nil
}

// mostSpread is the [calibrate.Op.Spread] from which on columns count as outliers.
const mostSpread = 10

// unfolded counts the matrices behind outlying columns that no folding was tried for, of a model that chain has encoded, and says what
// the user can do. It is empty if there are none.
func (x *codes) unfolded(d *arch.Decoder, chain *quant.Chain) string {
	if _, folds := chain.Quantizer.(*quant.OmniQuant); folds || len(chain.Folders) > 0 || chain.Rotator != nil {
		return ""
	}
	n := 0
	for _, o := range x.finished.Ops {
		if o.Spread > mostSpread && o.Tensor != d.Embedding.Tensor {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("a few of the inputs of %d of %d matrices are much larger than the others, which costs accuracy: "+
		"name awq before the other methods (quantize.method: [awq, %s])", n, len(x.finished.Ops), methodNames(chain))
}

// methodNames are the names of the quantizer and the tuner of a chain.
func methodNames(chain *quant.Chain) string {
	name := chain.Quantizer.Name()
	if chain.Tuner != nil {
		name += ", " + chain.Tuner.Name()
	}
	return name
}

// openCodes opens the codes of a source.
func openCodes(a pipeline.Artifact, src *source.Source) (*codes, error) {
	x := &codes{}
	var err error
	if x.finished, err = calibrate.OpenFinished(a.Path, a.Name); err != nil {
		return nil, err
	}
	if x.source, err = x.finished.Source(src.Weights); err != nil {
		return nil, err
	}
	return x, a.ReadJSON(codesFile, &x.record)
}
