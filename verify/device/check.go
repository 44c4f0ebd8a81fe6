package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/publish/about"
)

// The names of checks. Those in float have floatSuffix as well.
const (
	goldenCheck     = "golden"
	perplexityCheck = "perplexity"
	floatSuffix     = " (float)"
)

func (s *session) check(ctx context.Context) error {
	var err error
	if s.host, err = newHost(s.pkg, s.o); err != nil {
		return err
	}
	prompts, skipped, err := s.prompts(ctx)
	if err != nil {
		return err
	}
	noise, err := s.host.noise(ctx, prompts)
	if err != nil {
		return err
	}
	s.result.Unchecked = append(s.result.Unchecked, skipped...)
	settings := []setting{{file: "shipped.json", gap: math.Max(halfGap, noiseFactor*noise)}}
	if reason := s.tooLarge(); reason != "" {
		s.result.Unchecked = append(s.result.Unchecked, reason)
	} else {
		settings = append(settings, setting{suffix: floatSuffix, file: "float.json", float: true, gap: floatGap})
	}
	for _, x := range settings {
		if err := s.writeConfig(ctx, x); err != nil {
			return err
		}
		if err := s.checkGoldens(ctx, x, prompts); err != nil {
			return err
		}
		if err := s.checkPerplexity(ctx, x); err != nil {
			return err
		}
	}
	s.unchecked()
	return nil
}

// checkGoldens lets the engine continue every prompt.
func (s *session) checkGoldens(ctx context.Context, x setting, prompts []prompt) error {
	m := about.Measure{Name: goldenCheck + x.suffix, Unit: "logits", Outcome: about.Passed, Limit: fmt.Sprintf("<= %.3g", x.gap)}
	r := &reader{pkg: s.pkg, sess: s.host.exact, tolerance: x.gap}
	var speeds speeds
	gap, same, tokens := 0.0, 0, 0
	for _, p := range prompts {
		got, err := s.continuation(ctx, x, p, r, &speeds)
		var wrong *wrongError
		switch {
		case errors.As(err, &wrong):
			m.Outcome, m.Detail = about.Failed, fmt.Sprintf("%s: %v", p.name, wrong.err)
		case err != nil:
			return err
		}
		if wrong != nil {
			break
		}
		gap, tokens = math.Max(gap, got.gap), tokens+len(got.tokens)
		same += common(got.tokens, p.output)
	}
	if m.Outcome == about.Passed {
		m.Value = &gap
		m.Detail = fmt.Sprintf("%d prompts; %d of %d tokens come before the first that differs from float on this computer",
			len(prompts), same, tokens)
	}
	s.result.Checks = append(s.result.Checks, m)
	if !x.float {
		s.result.Metrics = append(s.result.Metrics, speeds.measures()...)
	}
	return nil
}

// wrongError is a result of the engine that fails a check.
type wrongError struct{ err error }

func (e *wrongError) Error() string { return e.err.Error() }

// continuation runs llm_demo on one prompt and reads what it printed.
func (s *session) continuation(ctx context.Context, x setting, p prompt, r *reader, sp *speeds) (*reading, error) {
	const promptFile = "prompt.txt"
	if err := s.putText(ctx, promptFile, p.text+"\n"); err != nil {
		return nil, err
	}
	n := len(p.output)
	zerolog.Ctx(ctx).Info().Str("config", x.file).Str("prompt", p.name).Msg("running " + demoProgram)
	o, err := s.execute(ctx, s.o.Dir, s.work, demoProgram, x.file, promptFile, strconv.Itoa(n))
	if err != nil {
		return nil, verdict(err)
	}
	d, err := parseDemo(o.stdout, x.file, promptFile, o.log)
	if err != nil {
		return nil, verdict(err)
	}
	count := -1
	if d.timed {
		if count = d.tokens; d.promptTokens != len(p.tokens) {
			return nil, &wrongError{fmt.Errorf("the engine made %d tokens of the prompt; %d are right", d.promptTokens, len(p.tokens))}
		}
	}
	got, err := r.read(ctx, p.tokens, d.text, n, count)
	var unlike *readError
	if errors.As(err, &unlike) {
		return nil, &wrongError{unlike}
	}
	if err == nil {
		sp.add(d, o.peak)
	}
	return got, err
}

// verdict turns a failure of the engine into the failure of a check.
func verdict(err error) error {
	var e *engineError
	if errors.As(err, &e) {
		return &wrongError{e}
	}
	return err
}

// common returns the length of the common beginning.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// checkPerplexity compares the perplexity that ppl_eval computes with that of the weights in float on this computer.
func (s *session) checkPerplexity(ctx context.Context, x setting) error {
	m := about.Measure{Name: perplexityCheck + x.suffix, Outcome: about.Skipped}
	text, tokens := s.host.perplexityText(s.o.Text)
	switch {
	case !s.result.Engine.Perplexity:
		m.Detail = "there is no " + perplexityProgram + " next to " + demoProgram
	case len(tokens) < tileRows:
		m.Detail = "the text is too short"
	case s.pkg.Config.Chunk != 0:
		m.Detail = perplexityProgram + " cuts the text otherwise with the key chunk of config.json"
	default:
		if err := s.measurePerplexity(ctx, x, text, tokens, &m); err != nil {
			return err
		}
	}
	s.result.Checks = append(s.result.Checks, m)
	return nil
}

func (s *session) measurePerplexity(ctx context.Context, x setting, text string, tokens []int32, m *about.Measure) error {
	const textDir = "text"
	want, err := perplexity(ctx, s.host.exact, tokens)
	if err != nil {
		return err
	}
	limit := floatRatio
	if !x.float {
		limit = halfRatio
		if s.host.int8 != nil {
			noisy, err := perplexity(ctx, s.host.int8, tokens)
			if err != nil {
				return err
			}
			limit += noiseFactor * math.Abs(noisy/want-1)
		}
	}
	if _, err := s.do(ctx, "mkdir -p "+quote(s.work+"/"+textDir)); err != nil {
		return err
	}
	if err := s.putText(ctx, textDir+"/prompt.txt", text); err != nil {
		return err
	}
	zerolog.Ctx(ctx).Info().Str("config", x.file).Int("tokens", len(tokens)).Msg("running " + perplexityProgram)
	o, err := s.execute(ctx, s.o.Dir, s.work, perplexityProgram, x.file, textDir)
	var got float64
	if err == nil {
		got, err = parsePerplexity(o.stdout, o.log)
	}
	var failed *engineError
	switch {
	case errors.As(err, &failed):
		m.Outcome, m.Detail = about.Failed, failed.Error()
		return nil
	case err != nil:
		return err
	}
	off := math.Abs(got/want - 1)
	m.Limit, m.Outcome = fmt.Sprintf("<= %.3g", limit), about.Failed
	if off <= limit {
		m.Outcome = about.Passed
	}
	m.Detail = fmt.Sprintf("%.4f on the device, %.4f in float on this computer, over %d tokens; the value is the ratio, less 1",
		got, want, len(tokens)-1)
	if !math.IsNaN(off) && !math.IsInf(off, 0) {
		m.Value = &off
	}
	return nil
}

// speeds adds up what llm_demo reports.
type speeds struct {
	prompt, output                int
	prefillSeconds, decodeSeconds float64
	peak                          int64
}

func (sp *speeds) add(d *demoOutput, peak int64) {
	sp.peak = max(sp.peak, peak)
	if d.prefill > 0 && d.decode > 0 {
		sp.prompt, sp.output = sp.prompt+d.promptTokens, sp.output+d.tokens
		sp.prefillSeconds += float64(d.promptTokens) / d.prefill
		sp.decodeSeconds += float64(d.tokens) / d.decode
	}
}

func (sp *speeds) measures() []about.Measure {
	var list []about.Measure
	add := func(name, unit string, v float64) {
		list = append(list, about.Measure{Name: name, Unit: unit, Value: &v})
	}
	if sp.prefillSeconds > 0 {
		add("prefill", "tokens/s", float64(sp.prompt)/sp.prefillSeconds)
	}
	if sp.decodeSeconds > 0 {
		add("decode", "tokens/s", float64(sp.output)/sp.decodeSeconds)
	}
	if sp.peak > 0 {
		add("peak_memory", "bytes", float64(sp.peak))
	}
	return list
}

// unchecked lists what no check has covered.
func (s *session) unchecked() {
	add := func(format string, args ...any) {
		s.result.Unchecked = append(s.result.Unchecked, fmt.Sprintf(format, args...))
	}
	measured := func(name string) bool {
		return slices.ContainsFunc(s.result.Metrics, func(m about.Measure) bool { return m.Name == name })
	}
	if s.result.Engine.Version == "" {
		add("the release of the engine, which its libraries do not tell")
	}
	if !s.result.Transfer.Compared {
		add("the SHA-256 of the files on the device, which has no sha256sum; their sizes are right")
	}
	if !measured("decode") {
		add("speed: this build of %s writes it to the log of Android, which could not be read", demoProgram)
	}
	if !measured("peak_memory") {
		add("memory: the device hides the status of the process")
	}
	add("the chat template and sampling: prompts were continued as they are, by the likeliest token")
	add("backends and settings other than those of config.json, and conversations longer than %d tokens", perplexityTokens)
}
