// Package bench measures how fast the runtime executes a package, and compares that with the limits of the machine:
// memory bandwidth for decode, arithmetic for prefill.
//
// Call [Run]. `llmexport bench --json` prints its [Report]; the names of its fields are stable.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Options configures Run.
type Options struct {
	// Prompt is the number of tokens of the measured prefill, Decode that of the measured decode; 0 leaves one out.
	Prompt, Decode int
	// Depth is the number of tokens before the decode.
	Depth int
	// Threads lists the thread counts to measure.
	Threads []int
	// Repetitions is the number of measurements, after one warm-up.
	Repetitions int
	// Session configures the package; its Threads are ignored.
	Session runtime.Options
	// Progress, if set, is called with the number of finished repetitions for a thread count.
	Progress func(threads, done, total int)
}

// OptionError is the error for invalid Options.
type OptionError struct{ text string }

func (e *OptionError) Error() string { return e.text }

func optionf(format string, args ...any) error { return &OptionError{fmt.Sprintf(format, args...)} }

// Upper bounds of options, to catch typing errors: no package has more positions, no machine more threads.
const (
	maxTokens      = 1 << 20
	maxThreads     = 1 << 10
	maxRepetitions = 1 << 16
)

func (o *Options) check() error {
	for _, v := range []struct {
		what      string
		n         int
		low, high int
	}{
		{"tokens of a prompt", o.Prompt, 0, maxTokens}, {"tokens to decode", o.Decode, 0, maxTokens},
		{"tokens of depth", o.Depth, 0, maxTokens}, {"repetitions", o.Repetitions, 1, maxRepetitions},
	} {
		if v.n < v.low || v.n > v.high {
			return optionf("%d %s, want %d to %d", v.n, v.what, v.low, v.high)
		}
	}
	if o.Prompt == 0 && o.Decode == 0 {
		return optionf("neither prompt nor tokens to decode: nothing to measure")
	}
	if len(o.Threads) == 0 {
		return optionf("no thread counts")
	}
	for _, t := range o.Threads {
		if t < 1 || t > maxThreads {
			return optionf("%d threads, want 1 to %d", t, maxThreads)
		}
	}
	return nil
}

// checkPositions keeps the number of tokens within the positions of the model.
func (o *Options) checkPositions(p *runtime.Package) error {
	n := o.Prompt
	if o.Decode > 0 {
		n = max(n, o.Depth+o.Decode)
	}
	if most := p.Config.MaxPositions; most > 0 && n > most {
		return optionf("%d tokens, the model has %d positions", n, most)
	}
	return nil
}

// loadTokens is the length of the prompt of Load.
const loadTokens = 8

// Run measures the package in dir on a backend. Bad options are an [OptionError].
func Run(ctx context.Context, dir string, b backend.Backend, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	tier, _ := kernel.Tier()
	r := &Report{
		Machine: Machine{
			CPU: CPUModel(), Processors: goruntime.GOMAXPROCS(0), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Go: goruntime.Version(),
			Features: append([]string{}, kernel.Features()...), Tier: tier,
		},
		Backend: b.Name(), Mode: o.Session.Mode.String(),
		Prompt: o.Prompt, Decode: o.Decode, Depth: o.Depth, Repetitions: o.Repetitions,
	}
	var err error
	if r.Package, err = describe(dir); err != nil {
		return nil, err
	}
	for _, threads := range o.Threads {
		res, cost, err := o.run(ctx, dir, b, threads)
		if err != nil {
			return nil, err
		}
		r.Package.Cost = cost
		r.Results = append(r.Results, *res)
		debug.FreeOSMemory() // free this session before the next one
	}
	// Before the peaks, which need memory themselves.
	r.PeakRSS = peakRSS()
	for i, p := range machinePeaks(o.Threads) {
		r.Results[i].Peaks = p
		r.rate(&r.Results[i], o.Session.Mode)
	}
	return r, nil
}

// describe returns the facts that do not open the package, so that the first load is not affected by the cache.
func describe(dir string) (Facts, error) {
	f := Facts{Dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			f.Bytes += info.Size()
		}
	}
	return f, nil
}

// run measures with one thread count.
func (o *Options) run(ctx context.Context, dir string, b backend.Backend, threads int) (*Result, Cost, error) {
	res := &Result{Threads: threads}
	start := time.Now()
	p, err := runtime.Open(dir)
	if err != nil {
		return nil, Cost{}, err
	}
	defer p.Close()
	if p.Task() != runtime.Generate {
		return nil, Cost{}, fmt.Errorf("%s does not continue texts, which is what bench measures: %w", dir, tensor.ErrUnsupported)
	}
	if err := o.checkPositions(p); err != nil {
		return nil, Cost{}, err
	}
	res.Load.Open = time.Since(start).Seconds()
	session := o.Session
	session.Threads = threads
	s, err := runtime.NewSession(p, b, session)
	if err != nil {
		return nil, Cost{}, err
	}
	res.Load.Compile = time.Since(start).Seconds() - res.Load.Open
	tokens := randomTokens(max(o.Prompt, o.Depth+o.Decode, loadTokens), p.Vocabulary())
	if _, err := s.Prefill(ctx, tokens[:loadTokens]); err != nil {
		return nil, Cost{}, err
	}
	res.Load.Total = time.Since(start).Seconds()
	res.Load.Prefill = res.Load.Total - res.Load.Open - res.Load.Compile

	var prefill, decode []float64
	for i := range o.Repetitions + 1 {
		pre, dec, err := o.once(ctx, s, tokens)
		if err != nil {
			return nil, Cost{}, err
		}
		if i > 0 { // the first one is a warm-up
			prefill, decode = append(prefill, pre), append(decode, dec)
		}
		if o.Progress != nil {
			o.Progress(threads, i+1, o.Repetitions+1)
		}
	}
	if o.Prompt > 0 {
		res.Prefill = &Rate{TokensPerSecond: SpreadOf(prefill)}
	}
	if o.Decode > 0 {
		res.Decode = &Rate{TokensPerSecond: SpreadOf(decode)}
	}
	return res, CostOf(p.Text().Graph), nil
}

// once measures a prefill and a decode, in tokens per second. The decode continues the prefill if that has the right
// depth.
func (o *Options) once(ctx context.Context, s *runtime.Session, tokens []int32) (prefill, decode float64, err error) {
	s.Reset()
	goruntime.GC() // collect the garbage of earlier repetitions
	if o.Prompt > 0 {
		start := time.Now()
		if _, err := s.Prefill(ctx, tokens[:o.Prompt]); err != nil {
			return 0, 0, err
		}
		prefill = float64(o.Prompt) / time.Since(start).Seconds()
	}
	if o.Decode == 0 {
		return prefill, 0, nil
	}
	if s.Len() != o.Depth {
		s.Reset()
		if o.Depth > 0 {
			if _, err := s.Prefill(ctx, tokens[:o.Depth]); err != nil {
				return 0, 0, err
			}
		}
	}
	start := time.Now()
	for _, t := range tokens[o.Depth:][:o.Decode] {
		if _, err := s.Decode(ctx, t); err != nil {
			return 0, 0, err
		}
	}
	return prefill, float64(o.Decode) / time.Since(start).Seconds(), nil
}

// randomTokens returns the same tokens at every call.
func randomTokens(n, vocabulary int) []int32 {
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(vocabulary))
	}
	return tokens
}
