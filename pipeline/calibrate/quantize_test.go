package calibrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// smallJobs are jobs of all kinds of chains on random models: tied and not, with biases, with few key-value heads, with experts.
func smallJobs(t *testing.T) map[string]job {
	t.Helper()
	omni, awq, search, gptq := quant.NewOmniQuant(), quant.NewAWQ(), quant.NewSearch(), quant.NewGPTQ()
	omni.Steps, awq.Step, search.Candidates, gptq.Candidates = 2, 0.25, 3, 3 // for speed
	all := map[string]job{}
	for _, c := range []struct {
		family     string
		sequential bool
		methods    []quant.Method
	}{
		{"llama-bias", true, []quant.Method{awq, gptq}},
		{"qwen3-untied", false, []quant.Method{awq, search}},
		{"llama", true, []quant.Method{quant.NewRotation(), gptq}},
		{"qwen2-untied", true, []quant.Method{omni}},
		{"qwen2-tied", true, []quant.Method{quant.RTN{}}},
		{"qwen3_moe", true, []quant.Method{gptq}},
		{"qwen3_5_moe_text", false, []quant.Method{awq, search}},
		{"deepseek_v3", true, []quant.Method{quant.NewRotation(), gptq}},
	} {
		d, src := openCheckpoint(t, familyDir(c.family))
		d.Layers = d.Layers[:2]
		j := newJob(t, d, src, randomText(d, 5, 32), c.methods...)
		j.Sequential = c.sequential
		n := 0
		d.Linears(func(name string, l *arch.Linear) {
			if n++; n == 9 {
				j.Specs[l.Weight.Tensor] = quant.Half
			}
		})
		all[c.family] = j
	}
	return all
}

// Neither threads nor memory are seen in any file.
func TestQuantizeDoesNotDependOnMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, j := range smallJobs(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := j.run(t, dir)
			want := content(t, dir)
			if n := len(j.Specs); len(f.Ops) != n {
				t.Errorf("%d matrices are finished, want %d", len(f.Ops), n)
			}
			for _, c := range []struct {
				threads int
				memory  int64
			}{{1, 1}, {2, 1 << 20}, {7, plenty}} {
				dir := t.TempDir()
				g := j.on(c.threads, c.memory).run(t, dir)
				same(t, fmt.Sprintf("%d threads, %d bytes", c.threads, c.memory), want, content(t, dir))
				if f.Digest() != g.Digest() {
					t.Error("other digest")
				}
			}
			opened, err := OpenFinished(dir, "")
			check(t, err)
			if opened.Digest() != f.Digest() {
				t.Error("other digest after opening")
			}
			for tensor, spec := range j.Specs {
				r := opened.Encoded(tensor)
				if r == nil || !opened.Has(tensor) {
					t.Fatalf("%s is not there", tensor)
				}
				b, err := io.ReadAll(io.NewSectionReader(r, 0, 1<<20))
				check(t, err)
				if op := ops(opened)[tensor]; sumOf(b) != op.SHA256 || op.Spec != spec.String() {
					t.Errorf("%s: %+v", tensor, op)
				}
			}
			if opened.Encoded("absent") != nil || opened.Has("absent") {
				t.Error("a tensor that does not exist is finished")
			}
		})
	}
}

// With many threads, or a device, the float stream goes on, and matrices are stored, while others are encoded, with a device those with other specs
// at the same time. No file shows that.
func TestQuantizeBesideOtherWork(t *testing.T) {
	defer kernel.SetDevice(nil)
	for _, name := range []string{"llama", "qwen3_moe"} {
		j, n := smallJobs(t)[name], 0
		j.Decoder.Linears(func(_ string, l *arch.Linear) {
			if s := j.Specs[l.Weight.Tensor]; n%3 == 1 && s.Bits == 4 {
				s.Bits++
				j.Specs[l.Weight.Tensor] = s
			}
			n++
		})
		kernel.SetDevice(nil)
		want, many, got := t.TempDir(), t.TempDir(), t.TempDir()
		j.run(t, want)
		j.on(manyThreads, plenty).run(t, many)
		same(t, name+" with many threads", content(t, want), content(t, many))
		none := someProducts(0)
		kernel.SetDevice(&none)
		j.run(t, got)
		same(t, name, content(t, want), content(t, got))
	}
}

// A directory that was cut or damaged anywhere is completed to the same bytes.
func TestQuantizeGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	j := smallJobs(t)["llama"]
	dir := t.TempDir()
	f := j.run(t, dir)
	want := content(t, dir)
	again := func(t *testing.T, dir string, kept int) {
		t.Helper()
		got, err := OpenFinished(dir, "")
		check(t, err)
		if len(got.Ops) != kept {
			t.Errorf("%d matrices are believed, want %d", len(got.Ops), kept)
		}
		if g := j.on(1, 1).run(t, dir); g.Digest() != f.Digest() {
			t.Error("other digest")
		}
		same(t, "continued", want, content(t, dir))
	}
	journal, err := os.ReadFile(filepath.Join(dir, journalFile))
	check(t, err)
	lines := slices.Collect(bytes.Lines(journal))
	// copied has the files of the first n matrices.
	copied := func(t *testing.T, n int, journal []byte) string {
		to := t.TempDir()
		for name := range want {
			b, err := os.ReadFile(filepath.Join(dir, name))
			check(t, err)
			if i, err := strconv.Atoi(strings.TrimSuffix(name, ".codes")); err == nil && i >= n {
				continue
			}
			if name == journalFile {
				b = journal
			}
			check(t, os.WriteFile(filepath.Join(to, name), b, 0o666))
		}
		return to
	}
	for n := range len(lines) + 1 {
		t.Run(fmt.Sprint("after ", n), func(t *testing.T) {
			again(t, copied(t, n, bytes.Join(lines[:n], nil)), n)
		})
	}
	n := len(lines)
	for _, c := range []struct {
		name   string
		kept   int
		damage func(dir string) error
	}{
		{"a line cut", 6, func(dir string) error {
			return os.Truncate(filepath.Join(dir, journalFile), int64(len(bytes.Join(lines[:6], nil))+len(lines[6])/2))
		}},
		{"a line without its end", n - 1, func(dir string) error {
			return os.Truncate(filepath.Join(dir, journalFile), int64(len(journal)-1))
		}},
		{"no journal", 0, func(dir string) error { return os.Remove(filepath.Join(dir, journalFile)) }},
		{"a file missing", 4, func(dir string) error { return os.Remove(filepath.Join(dir, "00004.codes")) }},
		{"a file cut", 3, func(dir string) error { return os.Truncate(filepath.Join(dir, "00003.codes"), 100) }},
		{"a byte changed", 5, func(dir string) error {
			path := filepath.Join(dir, "00005.codes")
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[9] ^= 1
			return os.WriteFile(path, b, 0o666)
		}},
		{"no overlay yet", 0, func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, journalFile)), os.Remove(filepath.Join(dir, overlayFile)))
		}},
		{"a file outside", 2, func(dir string) error {
			list := slices.Clone(lines)
			list[2] = bytes.Replace(lines[2], []byte(`"00002.codes"`), []byte(`"../00002.codes"`), 1)
			return os.WriteFile(filepath.Join(dir, journalFile), bytes.Join(list, nil), 0o666)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(t, n, journal)
			check(t, c.damage(dir))
			again(t, dir, c.kept)
		})
	}
	t.Run("finished", func(t *testing.T) { again(t, copied(t, n, journal), n) })
}

func TestQuantizeProgress(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, j := range smallJobs(t) {
		dir := t.TempDir()
		for _, run := range []string{"from the start", "finished"} {
			p := &tally{t: t}
			j.Progress = p.add
			j.run(t, dir)
			if p.end(); p.calls != len(j.Specs) {
				t.Errorf("%s, %s: %d calls for %d matrices", name, run, p.calls, len(j.Specs))
			}
		}
	}
}

// Whenever it is cancelled, Quantize returns the cause before the next matrix, and goes on later.
func TestQuantizeCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, j := range smallJobs(t) {
		t.Run(name, func(t *testing.T) {
			whole := t.TempDir()
			f := j.run(t, whole)
			dir, lost := t.TempDir(), errors.New("lost")
			for _, at := range []int{0, 3, 7} { // matrices finished by this and the calls before
				ctx, cancel := context.WithCancelCause(t.Context())
				n := 0
				o := j.Options
				o.Dir, o.Memory = dir, 1
				o.Progress = func(int64, int64) {
					if n++; n == at {
						cancel(lost)
					}
				}
				if at == 0 {
					cancel(lost)
				}
				if _, err := Quantize(ctx, o, j.Scheme); !errors.Is(err, lost) {
					t.Errorf("cancelled after %d: %v", at, err)
				}
				if n > at+2 { // matrices that read the same vector are encoded together
					t.Errorf("%d steps after the cancellation", n-at)
				}
				noActivations(t, dir)
			}
			if g := j.run(t, dir); g.Digest() != f.Digest() {
				t.Error("other digest")
			}
			same(t, "continued", content(t, whole), content(t, dir))
		})
	}
}

func TestQuantizeRefuses(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	name := pairOf(d, 1).MLP.Up.Weight.Tensor
	for _, c := range []struct {
		name string
		edit func(j *job)
		text string
		is   error
	}{
		{"no text", func(j *job) { j.Windows = nil }, "no calibration text", nil},
		{"windows of two lengths", func(j *job) { j.Windows[1] = j.Windows[1][:9] }, "windows of 9 and 16 tokens", nil},
		{"all skipped", func(j *job) { j.Skip = 16 }, "skipped", nil},
		{"NaN", func(j *job) { j.Source = &poisoned{src, name, bf16NaN} }, name, tensor.ErrCorrupt},
		{"too large", func(j *job) { j.Source = &poisoned{src, name, bf16Large} }, name, tensor.ErrUnsupported},
		{"too large for halves", func(j *job) {
			j.Source, j.Specs[name] = &poisoned{src, name, bf16Large}, quant.Half
		}, name, tensor.ErrUnsupported},
		{"no spec", func(j *job) { delete(j.Specs, name) }, name, nil},
		{"a block that does not divide", func(j *job) { j.Specs[name] = quant.Spec{Bits: 4, Block: 128, Scale: tensor.F16} }, name, nil},
		{"a token beyond the table", func(j *job) { j.Windows[0][3] = 320 }, "320", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, d, src, randomText(d, 2, 16), quant.NewGPTQ())
			if c.is == tensor.ErrUnsupported {
				j.Chain = chainOf(t, quant.RTN{})
			}
			c.edit(&j)
			j.Dir = t.TempDir()
			_, err := Quantize(t.Context(), j.Options, j.Scheme)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v", err)
			}
			noActivations(t, j.Dir)
		})
	}
	j := newJob(t, d, src, randomText(d, 2, 16), quant.RTN{})
	j.Dir = filepath.Join(t.TempDir(), "absent")
	if _, err := Quantize(t.Context(), j.Options, j.Scheme); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
