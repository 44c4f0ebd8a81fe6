package calibrate

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// taken are what the experts of a layer read, and what they choose, for all windows.
type taken struct {
	mixture *forward.Mixture
	inputs  []float32 // [tokens, Hidden]
	chosen  []int32   // [tokens, TopK]
}

// taking computes the inputs of the experts of a model of one layer, window by window.
func taking(t *testing.T, o Options) *taken {
	t.Helper()
	m, err := forward.New(o.Decoder, o.Source, 1)
	check(t, err)
	e, err := m.Embedding()
	check(t, err)
	l, err := m.LoadLayer(0)
	check(t, err)
	attention, mixture := l.Branches()[0], l.Branches()[1].Mixture()
	all := &taken{mixture: mixture}
	for _, w := range o.Windows {
		h, err := e.States(t.Context(), [][]int32{w})
		check(t, err)
		in := attention.Inputs()
		y, one := make([]float32, len(w)*attention.Width()), forward.Equal(1, len(w))
		check(t, attention.Read(t.Context(), y, h, one, in[len(in)-1][0]))
		check(t, attention.Add(t.Context(), h, y, one))
		x, chosen, weights := make([]float32, len(h)), make([]int32, len(w)*mixture.TopK()), make([]float32, len(w)*mixture.TopK())
		check(t, mixture.Input(t.Context(), x, h))
		check(t, mixture.Route(t.Context(), chosen, weights, h))
		all.inputs, all.chosen = append(all.inputs, x...), append(all.chosen, chosen...)
	}
	return all
}

// Moments of every expert in float64, from plain loops: of the tokens that are routed to it, and where they are fewer than the
// columns, of others at even distances too. Experts that no token is routed to have none of their own.
func TestMomentsOfExperts(t *testing.T) {
	const skip = 2
	d, src := manyExperts(t, 60, 64, 48)
	o := Options{Decoder: d, Source: src, Windows: randomText(d, 3, 32), Skip: skip, Threads: 2, Memory: 1, Dir: t.TempDir()}
	all := taking(t, o)
	got := map[string]*quant.Stats{}
	list, err := walked(t, o, func(*walk) {})
	check(t, err)
	for _, s := range list {
		for _, name := range s.tensors {
			got[name] = s.stats
		}
	}
	few, unseen, enough := 0, 0, 0
	for j := range all.mixture.Experts() {
		var own, others []int
		for token := range len(all.inputs) / d.Hidden {
			switch {
			case token%32 < skip:
			case slices.Contains(all.chosen[2*token:2*token+2], int32(j)):
				own = append(own, token)
			default:
				others = append(others, token)
			}
		}
		expert, err := all.mixture.Load(j)
		check(t, err)
		for k, in := range expert.Inputs() {
			cols, tokens := in[0].Cols, slices.Clone(own)
			for i, n := 0, cols-len(own); i < n; i++ {
				tokens = append(tokens, others[(2*i+1)*len(others)/(2*n)])
			}
			var rows [][]float32
			for _, token := range tokens {
				x := all.inputs[token*d.Hidden : (token+1)*d.Hidden]
				if k == 1 {
					inner := make([]float32, cols)
					check(t, expert.Inner(t.Context(), inner, x))
					x = inner
				}
				rows = append(rows, x)
			}
			st := got[in[0].Weight.Tensor]
			if st.Tokens != int64(len(own)) {
				t.Errorf("%s: %d tokens, want %d", in[0].Weight.Tensor, st.Tokens, len(own))
			}
			for i, v := range st.Hessian {
				var want float64
				for _, x := range rows {
					want += float64(x[i/cols]) * float64(x[i%cols]) / float64(len(rows))
				}
				if math.Abs(float64(v)-want) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("%s: moment %d is %g, want %g", in[0].Weight.Tensor, i, v, want)
				}
			}
			switch {
			case len(own) == 0:
				unseen++
			case len(own) < cols:
				few++
			default:
				enough++
			}
		}
	}
	if few == 0 || unseen == 0 {
		t.Errorf("inputs of experts: %d with few tokens, %d with none, %d with enough", few, unseen, enough)
	}
}

// Experts without tokens are warned of, in a continued run too, and have codes like others.
func TestUnseenExperts(t *testing.T) {
	d, src := manyExperts(t, 40, 64, 48)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 2, 0
	j := newJob(t, d, src, randomText(d, 1, 17), gptq)
	dir := t.TempDir()
	var log bytes.Buffer
	ctx := zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context())
	j.Dir = dir
	f, err := Quantize(ctx, j.Options, j.Scheme)
	check(t, err)
	none := 0
	for _, op := range f.Ops {
		if strings.Contains(op.Tensor, "experts.") && op.Tokens == 0 {
			none++
			if !(op.OutputError > 0 && op.OutputError < 0.1) {
				t.Errorf("%s: output error %g", op.Tensor, op.OutputError)
			}
		}
	}
	if none == 0 || none%3 != 0 || !strings.Contains(log.String(), `"unseen":`) {
		t.Errorf("%d matrices of experts without tokens, logged %s", none, log.String())
	}
}

// A run that ends within an expert, or between two, is completed to the same bytes.
func TestExpertsGoOn(t *testing.T) {
	d, src := manyExperts(t, 6, 64, 48)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 2, 1
	j := newJob(t, d, src, randomText(d, 2, 32), gptq)
	whole := t.TempDir()
	j.run(t, whole)
	want := content(t, whole)
	journal, err := os.ReadFile(filepath.Join(whole, journalFile))
	check(t, err)
	lines := slices.Collect(bytes.Lines(journal))
	for _, n := range []int{6, 7, 8, 9, 11, len(lines) - 2} {
		dir := t.TempDir()
		check(t, os.CopyFS(dir, os.DirFS(whole)))
		check(t, os.WriteFile(filepath.Join(dir, journalFile), bytes.Join(lines[:n], nil), 0o666))
		j.on(1, 1).run(t, dir)
		same(t, "continued", want, content(t, dir))
	}
}

// Experts that are visited at the same time have the files, the progress and the sensitivities of those that are visited one after the other, with
// a device and without.
func TestExpertsTogether(t *testing.T) {
	d, src := manyExperts(t, 10, 64, 48)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 2, 1
	j := newJob(t, d, src, randomText(d, 2, 32), gptq)
	ms := measuring(t, randomText(d, 1, 16), gptq)
	var files map[string]string
	var reports []string
	var list *Measured
	for _, c := range []struct {
		threads int
		memory  int64
		device  bool
	}{{1, 1, false}, {2, plenty, false}, {16, plenty, false}, {1, 1, true}, {16, plenty, true}} {
		t.Run(fmt.Sprint(c.threads, c.device), func(t *testing.T) {
			if none := someProducts(0); c.device {
				kernel.SetDevice(&none)
				defer kernel.SetDevice(nil)
			}
			j, dir := j.on(c.threads, c.memory), t.TempDir()
			var now []string
			j.Progress = func(done, total int64) { now = append(now, fmt.Sprint("encoded ", done, total)) }
			j.run(t, dir)
			j.Progress = func(done, total int64) { now = append(now, fmt.Sprint("measured ", done, total)) }
			m := measured(t, j.Options, ms)
			if files == nil {
				files, reports, list = content(t, dir), now, m
			}
			same(t, "files", files, content(t, dir))
			if diff := cmp.Diff(list, m); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(now, reports) {
				t.Errorf("progress %q, want %q", now, reports)
			}
		})
	}
}

// If an expert cannot be encoded, those before it are finished and none after it, however many are visited at the same time.
func TestExpertFails(t *testing.T) {
	d, src := manyExperts(t, 10, 64, 48)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 2, 0
	j := newJob(t, d, src, randomText(d, 1, 32), gptq)
	want := j.run(t, t.TempDir()).Ops
	const name = "model.layers.0.mlp.experts.6.gate_proj.weight"
	at := slices.IndexFunc(want, func(op Op) bool { return op.Tensor == name })
	all := j.Specs
	none := someProducts(0)
	defer kernel.SetDevice(nil)
	for i, j := range []job{j.on(1, 1), j.on(2, plenty), j.on(16, plenty), j.on(1, 1), j.on(16, plenty)} {
		if i == 3 {
			kernel.SetDevice(&none)
		}
		j.Dir, j.Specs = t.TempDir(), maps.Clone(all)
		delete(j.Specs, name)
		if _, err := Quantize(t.Context(), j.Options, j.Scheme); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%d threads: %v", j.Threads, err)
		}
		f, err := OpenFinished(j.Dir, "")
		check(t, err)
		if diff := cmp.Diff(want[:at], f.Ops); diff != "" {
			t.Errorf("%d threads: %s", j.Threads, diff)
		}
		noActivations(t, j.Dir)
		j.Specs = all
		if diff := cmp.Diff(want, j.run(t, j.Dir).Ops); diff != "" {
			t.Errorf("%d threads, continued: %s", j.Threads, diff)
		}
	}
}
