package stage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/template"
)

// Calibrate collects the calibration text: text of the model itself, and files.
type Calibrate struct {
	Data       []CalibrationData `json:"data" jsonschema_description:"Where the text comes from; the model's own text if absent."`
	Pictures   *CalibrationMedia `json:"pictures,omitempty" jsonschema_description:"Pictures for models that see: a folder, or a Parquet file with a column of them."`
	Sounds     *CalibrationMedia `json:"sounds,omitempty" jsonschema_description:"Clips for models that hear: a folder of WAV and FLAC files, or a Parquet file with a column of them."`
	Tokens     int               `json:"tokens" jsonschema:"minimum=1" jsonschema_description:"Number of tokens of text, in whole windows."`
	Window     int               `json:"window" jsonschema:"minimum=16" jsonschema_description:"Tokens of a fresh context."`
	Probe      int               `json:"probe" jsonschema:"minimum=1" jsonschema_description:"Number of additional tokens, on which divergences are measured."`
	SkipTokens int               `json:"skip" jsonschema:"minimum=0" jsonschema_description:"First tokens of a window that statistics leave out."`
	Seed       uint64            `json:"seed" jsonschema_description:"Seed for drawing text and choosing windows."`
	Sequential bool              `json:"sequential" jsonschema_description:"Feed every op with the outputs of the quantized ops before it, not with those of the float model."`
}

// NewCalibrate returns the defaults.
func NewCalibrate() *Calibrate {
	return &Calibrate{Tokens: 65536, Window: 512, Probe: 6144, SkipTokens: 4, Sequential: true,
		Data: []CalibrationData{{Samples: true, Data: corpus.Data{Weight: 1}}}}
}

// String implements [pipeline.Stage].
func (*Calibrate) String() string { return "calibrate" }

// Validate implements [pipeline.Validator].
func (c *Calibrate) Validate(ctx context.Context, r *Run) error {
	sec := r.Recipe.Stages["calibrate"]
	err := check(sec,
		rule{len(c.Data) == 0, "data", "must name text"},
		rule{c.Window < 16, "window", "must be 16 or more"},
		rule{c.SkipTokens < 0 || c.Window >= 16 && c.SkipTokens >= c.Window/2, "skip", "must be from 0 to less than half of the window"},
		rule{c.Tokens < c.Window, "tokens", fmt.Sprintf("must be a window of %d or more", c.Window)},
		rule{c.Probe < c.Window, "probe", fmt.Sprintf("must be a window of %d or more", c.Window)},
	)
	if err = cmp.Or(err, c.checkMedia(sec)); err != nil {
		return err
	}
	for i, d := range c.Data {
		at := fmt.Sprintf("data[%d]", i)
		switch {
		case d.Samples == (d.Path != ""):
			return sec.Errorf(at, "must be either samples or a path")
		case d.Samples && (d.Format != "" || d.Column != "" || d.Chat || d.SHA256 != ""):
			return sec.Errorf(at, "samples have a weight and nothing else")
		case !(d.Weight > 0) || math.IsInf(d.Weight, 0):
			return sec.Errorf(at+".weight", "must be more than 0")
		}
		if d.Path == "" {
			continue
		}
		if err := d.Data.Validate(); err != nil {
			return sec.Errorf(at, "%s", plainError(err))
		}
	}
	if _, skip := c.Skip(r); skip {
		return nil
	}
	for i, d := range c.Data {
		if d.Path == "" {
			continue
		}
		if err := corpus.Check(ctx, d.Data, r.Recipe.Resolve); err != nil {
			return sec.Errorf(fmt.Sprintf("data[%d]", i), "%s", plainError(err))
		}
	}
	_, err = c.mediaSums(ctx, r)
	return err
}

// Skip implements [pipeline.Skipper].
func (c *Calibrate) Skip(r *Run) (string, bool) {
	return "no method needs it", !r.Quantize.calibrated()
}

const corpusFile = "corpus.json"

// Run implements [pipeline.Stage].
func (c *Calibrate) Run(ctx context.Context, r *Run) error {
	o := *c
	o.Sequential = false // does not change the text, only its use
	of := inputs{r.Checkpoint.Digest, r.Inputs.Digest, r.Recipe.Model.IgnoreConfig, o}
	for _, d := range c.Data {
		if d.Path != "" {
			sum, err := manifest.HashFile(ctx, r.Recipe.Resolve(d.Path))
			if err != nil {
				return err
			}
			of = append(of, sum)
		}
	}
	sums, err := c.mediaSums(ctx, r)
	if err != nil {
		return err
	}
	for _, sum := range sums {
		of = append(of, sum)
	}
	r.Calibration, err = r.entry(ctx, "calibration", of, func(p *pipeline.Partial) (digest.Digest, error) {
		src, err := r.Source(ctx)
		if err != nil {
			return "", err
		}
		if err := c.checkShown(r.Recipe.Stages["calibrate"], src); err != nil {
			return "", err
		}
		var shown []byte
		if c.shows() {
			x, err := c.look(ctx, r, src, p)
			if err != nil {
				return "", err
			}
			if shown, err = json.Marshal(x); err != nil {
				return "", err
			}
			if err := os.WriteFile(filepath.Join(p.Dir, seenFile), shown, 0o666); err != nil {
				return "", err
			}
		}
		all, err := c.gather(ctx, r, src, p)
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		if err := all.Save(&b); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(p.Dir, corpusFile), b.Bytes(), 0o666); err != nil {
			return "", err
		}
		return digest.Of(append(b.Bytes(), shown...)), os.RemoveAll(filepath.Join(p.Dir, calibrate.SamplesFile))
	}, calibrate.SamplesFile)
	if err != nil {
		return err
	}
	all, err := openCorpus(r.Calibration)
	if err != nil {
		return err
	}
	for _, w := range all.Warnings {
		zerolog.Ctx(ctx).Warn().Msg("calibration: " + w)
	}
	return nil
}

// gather returns the windows of all sources of text. Tokens that the model draws are kept in the directory of p meanwhile.
func (c *Calibrate) gather(ctx context.Context, r *Run, src *source.Source, p *pipeline.Partial) (*corpus.Corpus, error) {
	own, window := c.ownWindows(r, src.Decoder)
	if window != c.Window {
		zerolog.Ctx(ctx).Warn().Int("window", window).Msg("window reduced to the positions of the model")
	}
	total, samples := (c.Tokens+window-1)/window+c.probeWindows(window), 0.0
	sec := r.Recipe.Stages["calibrate"]
	var files []corpus.Data
	for i, d := range c.Data {
		if d.Samples {
			samples += d.Weight
		} else {
			files = append(files, d.Data)
		}
		if d.Chat && strings.TrimSpace(src.Facts.ChatTemplate) == "" {
			return nil, sec.Errorf(fmt.Sprintf("data[%d].chat", i), "the model has no chat template")
		}
	}
	all := &corpus.Corpus{}
	if len(files) > 0 && own < total {
		render, err := renderer(ctx, src)
		if err != nil {
			return nil, err
		}
		all, err = corpus.Build(ctx, files, corpus.Options{
			Tokens: (total - own) * window, Window: window, Seed: c.Seed, Prefix: src.Facts.Prefix, EndOfText: endOfText(src),
			Encode: func(text string) ([]int32, error) { return src.Tokenizer.Encode(text, false), nil }, Render: render, Resolve: r.Recipe.Resolve,
		})
		if err != nil {
			return nil, err
		}
	}
	if own > 0 {
		first := src.Facts.Prefix
		if len(first) == 0 {
			first = []int32{endOfText(src)}
		}
		if first[0] < 0 {
			return nil, sec.Errorf("data", "the model has no token that begins a text, so it cannot generate its own; name files only")
		}
		drawn, err := calibrate.Sample(ctx, src.Decoder, src.Weights, calibrate.Sampling{
			Windows: own, Length: window, First: first, Seed: c.Seed, Threads: r.Limits.Threads, Memory: r.Limits.Memory / 4 * 3,
			Dir: p.Dir, Name: p.Name,
			Progress: func(done, total int64) { r.Limits.Report("calibrate", "samples", done, total) },
		})
		if err != nil {
			return nil, err
		}
		all.AddSamples(drawn, samples)
	}
	text, _, err := c.split(all.Windows)
	if err != nil {
		return nil, sec.Errorf("data", "%v", err)
	}
	if tokens, cols := len(text)*window, widest(src.Decoder); tokens < 2*cols {
		all.Warnings = append(all.Warnings, fmt.Sprintf("%d tokens are few for matrices of %d columns: below %d, twice the "+
			"columns, errors of methods that watch the model grow quickly; raise calibrate.tokens", tokens, cols, 2*cols))
	}
	return all, nil
}

// ownWindows is how many windows the model writes itself, and their length in tokens.
func (c *Calibrate) ownWindows(r *Run, d *arch.Decoder) (own, window int) {
	most := d.MaxPositions
	if context := r.Recipe.Target.Context; context > 0 {
		most = min(most, context)
	}
	window = min(c.Window, most)
	samples, sum := 0.0, 0.0
	for _, x := range c.Data {
		sum += x.Weight
		if x.Samples {
			samples += x.Weight
		}
	}
	total := (c.Tokens+window-1)/window + c.probeWindows(window)
	return int(math.Round(float64(total) * samples / sum)), window
}

// widest is the largest number of columns of a linear layer.
func widest(d *arch.Decoder) int {
	cols := 0
	d.Linears(func(_ string, l *arch.Linear) { cols = max(cols, l.Weight.Cols) })
	return cols
}

func (c *Calibrate) probeWindows(window int) int { return (c.Probe + window - 1) / window }

// split separates the probe from the windows, spread evenly over them.
func (c *Calibrate) split(windows [][]int32) (text, probe [][]int32, err error) {
	n := c.probeWindows(len(windows[0]))
	if n >= len(windows) {
		return nil, nil, fmt.Errorf("calibration has only %d windows of %d tokens, but the probe alone needs %d",
			len(windows), len(windows[0]), n)
	}
	next := 0
	for i, w := range windows {
		if next < n && i == (2*next+1)*len(windows)/(2*n) {
			probe = append(probe, w)
			next++
			continue
		}
		text = append(text, w)
	}
	return text, probe, nil
}

// openCorpus reads the text of a calibration.
func openCorpus(calibration pipeline.Artifact) (*corpus.Corpus, error) {
	f, err := os.Open(filepath.Join(calibration.Path, corpusFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return corpus.Load(f)
}

// text reads the text of a run's calibration, and separates the windows of the probe from the others.
func (r *Run) text() (all *corpus.Corpus, windows, probe [][]int32, err error) {
	if all, err = openCorpus(r.Calibration); err == nil {
		windows, probe, err = r.Calibrate.split(all.Windows)
	}
	return all, windows, probe, err
}

// endOfText is the token between documents: the prefix of a text, the first token that config.json names, or one with such a
// name; -1 if there is none.
func endOfText(src *source.Source) int32 {
	for _, name := range []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"} {
		if id, ok := src.Tokenizer.ID(name); ok {
			return id
		}
	}
	if len(src.Facts.Stop) > 0 {
		return src.Facts.Stop[0]
	}
	return -1
}

// renderer returns a function that renders conversations with the model's chat template; nil if there is none.
func renderer(ctx context.Context, src *source.Source) (func([]corpus.Message) (string, error), error) {
	if strings.TrimSpace(src.Facts.ChatTemplate) == "" {
		return nil, nil
	}
	t, err := template.Parse("chat_template", src.Facts.ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return func(list []corpus.Message) (string, error) {
		messages := make([]template.Message, len(list))
		for i, m := range list {
			messages[i] = template.Message(m)
		}
		return template.Chat(ctx, t, messages, false, map[string]any{"bos_token": src.Facts.BOS, "eos_token": src.Facts.EOS}, template.Limits{})
	}, nil
}
