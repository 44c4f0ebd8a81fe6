package calibrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// quickly is a tuning of some steps.
func quickly(steps int) *quant.Distill {
	d := quant.NewDistill()
	d.Steps, d.Tokens = steps, 160
	return d
}

// On a trained model the divergence on the text of the tuning falls, of symmetric specs too, and nothing but scales, zero
// terms and gammas moves.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := openCheckpoint(t, tinyDir)
	text, _ := tinyText(t, d, src)
	d.Layers = d.Layers[:2]
	for _, symmetric := range []bool{false, true} {
		tuner := quickly(4)
		tuner.Tokens, tuner.Rate = 6*64, 4e-3
		text := text[:6]
		j := newJob(t, d, src, text, quant.RTN{}, tuner)
		body := threeBits
		body.Symmetric = symmetric
		j.Specs, j.Dir = specs(t, d, body, tableBits), t.TempDir()
		f := j.run(t, j.Dir)
		before := kl(t, j, f, text)
		encoded := content(t, j.Dir)
		p := &tally{t: t}
		j.Progress = p.add
		g, err := Tune(t.Context(), j.Options, j.Scheme, f)
		check(t, err)
		if p.end(); p.calls != tuner.Steps {
			t.Errorf("%d calls of progress for %d steps", p.calls, tuner.Steps)
		}
		after := kl(t, j, g, text)
		t.Logf("symmetric %v: divergence %.4f before, %.4f after", symmetric, before, after)
		if !(after < 0.9*before) {
			t.Errorf("symmetric %v: divergence %.4f before, %.4f after", symmetric, before, after)
		}
		// The finished matrices are as they were.
		left := content(t, j.Dir)
		maps.DeleteFunc(left, func(name, _ string) bool { return strings.HasPrefix(name, tunedPrefix) })
		same(t, "files of the encoded model", encoded, left)
		if again := kl(t, j, f, text); again != before {
			t.Errorf("divergence of the encoded model %g, was %g", again, before)
		}
		opened, err := OpenFinished(j.Dir, "")
		check(t, err)
		if opened.Digest() != g.Digest() || opened.Digest() == f.Digest() {
			t.Error("the tuned result is not what is opened")
		}
		for i, op := range opened.Ops {
			was := f.Ops[i]
			if op.Tensor != was.Tensor || op.Spec != was.Spec || op.File != tunedPrefix+was.File {
				t.Errorf("%+v, was %+v", op, was)
			}
			l, err := j.Specs[op.Tensor].Layout(rowsAndCols(t, src, op.Tensor))
			check(t, err)
			a, err := f.of(op.Tensor, l.Bytes())
			check(t, err)
			b, err := opened.of(op.Tensor, l.Bytes())
			check(t, err)
			if !slices.Equal(a[:l.Codes], b[:l.Codes]) {
				t.Errorf("%s: codes have moved", op.Tensor)
			}
			if slices.Equal(a[l.Codes:], b[l.Codes:]) {
				t.Errorf("%s: no scale has moved", op.Tensor)
			}
		}
		moved, err := opened.Source(src)
		check(t, err)
		for name, is := range changed(t, src, moved.(*Overlay)) {
			if norm := strings.HasSuffix(name, "norm.weight") && !strings.Contains(name, "layers.2.") && !strings.Contains(name, "layers.3."); is != norm {
				t.Errorf("%s: changed is %v", name, is)
			}
		}
	}
}

func rowsAndCols(t *testing.T, src tensor.Source, name string) (rows, cols int) {
	t.Helper()
	for _, info := range src.Tensors() {
		if info.Name == name {
			return int(info.Shape[0]), int(info.Shape[1])
		}
	}
	t.Fatalf("no tensor %s", name)
	return 0, 0
}

// tuningJob is a small job with a folding, biases, and matrices in 16 bits.
func tuningJob(t *testing.T, family string) job {
	awq := quant.NewAWQ()
	awq.Step = 0.25
	d, src := openCheckpoint(t, familyDir(family))
	d.Layers = d.Layers[:2]
	j := newJob(t, d, src, randomText(d, 5, 32), awq, quant.RTN{}, quickly(3))
	j.Specs[pairOf(d, 0).MLP.Gate.Weight.Tensor] = quant.Half
	if family == "llama" {
		j.Specs[d.Embedding.Tensor] = quant.Half
	}
	return j
}

func TestTuneDoesNotDependOnMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, family := range []string{"llama-bias", "llama"} {
		var want map[string]string
		for _, threads := range []int{1, 2, 7} {
			j := tuningJob(t, family).on(threads, plenty)
			j.Dir = t.TempDir()
			_, err := Tune(t.Context(), j.Options, j.Scheme, j.run(t, j.Dir))
			check(t, err)
			got := content(t, j.Dir)
			if want == nil {
				want = got
			}
			same(t, fmt.Sprint(family, ", threads ", threads), want, got)
		}
	}
}

// A source that is an overlay by itself is left as it is, and its changes are not made twice.
func TestTuneLeavesSource(t *testing.T) {
	d, base := openCheckpoint(t, familyDir("llama"))
	d.Layers = d.Layers[:1]
	src := outlying(t, d, base, 2)
	before, err := src.Marshal()
	check(t, err)
	j := newJob(t, d, src, randomText(d, 5, 32), quant.RTN{}, quickly(2))
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	was := kl(t, j, f, j.Windows)
	g, err := Tune(t.Context(), j.Options, j.Scheme, f)
	check(t, err)
	after, err := src.Marshal()
	check(t, err)
	if string(before) != string(after) {
		t.Error("the source has changed")
	}
	if is := kl(t, j, g, j.Windows); !(is < was) {
		t.Errorf("divergence %g before, %g after", was, is)
	}
}

// A tuning that was killed, or cancelled, continues after its last snapshot and produces the same bytes; a damaged snapshot, or
// that of another model, counts as none. Until a tuning is complete, opening returns the model before it.
func TestTuneKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	j := tuningJob(t, "llama-bias")
	if _, n, dir := killPoint(); dir != "" {
		f, err := OpenFinished(dir, "")
		check(t, err)
		j.Dir = dir
		j.Progress = func(done, _ int64) {
			if done == int64(n) {
				killSelf()
			}
		}
		_, err = Tune(t.Context(), j.Options, j.Scheme, f)
		t.Fatalf("alive: %v", err)
	}
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	g, err := Tune(t.Context(), j.Options, j.Scheme, f)
	check(t, err)
	want := content(t, j.Dir)
	lost := errors.New("lost")
	cancelled := func(t *testing.T, dir string) {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := j.Options
		o.Dir = dir
		o.Progress = func(done, _ int64) {
			if done > 2 {
				t.Errorf("step %d after the cancellation", done)
			}
			if done == 2 {
				cancel(lost)
			}
		}
		if _, err := Tune(ctx, o, j.Scheme, f); !errors.Is(err, lost) {
			t.Errorf("cancelled: %v", err)
		}
	}
	damage := func(t *testing.T, dir string, edit func(b []byte) []byte) {
		cancelled(t, dir)
		path := filepath.Join(dir, snapshotFile)
		b, err := os.ReadFile(path)
		check(t, err)
		check(t, os.WriteFile(path, edit(b), 0o666))
	}
	for _, c := range []struct {
		name string
		stop func(t *testing.T, dir string)
		from int64 // the first step that the next call reports
	}{
		{"killed", func(t *testing.T, dir string) { wantKilled(t, killedChild("TestTuneKilled", "progress", 2, dir)) }, 1},
		{"cancelled", cancelled, 2},
		{"a byte of the snapshot", func(t *testing.T, dir string) {
			damage(t, dir, func(b []byte) []byte {
				b[len(b)-5] ^= 1
				return b
			})
		}, 1},
		{"half of the snapshot", func(t *testing.T, dir string) { damage(t, dir, func(b []byte) []byte { return b[:len(b)/2] }) }, 1},
		{"a longer snapshot", func(t *testing.T, dir string) { damage(t, dir, func(b []byte) []byte { return append(b, 0) }) }, 1},
		{"no snapshot", func(t *testing.T, dir string) { damage(t, dir, func(b []byte) []byte { return nil }) }, 1},
		{"while it wrote", func(t *testing.T, dir string) {
			o := j.Options
			o.Dir = dir
			_, err := Tune(t.Context(), o, j.Scheme, f)
			check(t, err)
			check(t, os.Remove(filepath.Join(dir, tunedPrefix+overlayFile)))
			check(t, os.Truncate(filepath.Join(dir, tunedPrefix+journalFile), 300))
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := j.run(t, dir)
			c.stop(t, dir)
			opened, err := OpenFinished(dir, "")
			check(t, err)
			if opened.Digest() != f.Digest() {
				t.Error("a tuning that is not complete is opened")
			}
			o := j.Options
			o.Dir = dir
			first := int64(-1)
			o.Progress = func(done, _ int64) {
				if first < 0 {
					first = done
				}
			}
			again, err := Tune(t.Context(), o, j.Scheme, opened)
			check(t, err)
			if first < c.from || c.from == 1 && c.name != "killed" && first != 1 {
				t.Errorf("continued from step %d, not %d", first, c.from)
			}
			if again.Digest() != g.Digest() {
				t.Error("other digest")
			}
			same(t, "tuned again", want, content(t, dir))
		})
	}
}

// A snapshot of other codes is not continued.
func TestTuneOtherCodes(t *testing.T) {
	j := tuningJob(t, "llama")
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	ctx, cancel := context.WithCancel(t.Context())
	j.Progress = func(done, _ int64) {
		if done == 1 {
			cancel()
		}
	}
	if _, err := Tune(ctx, j.Options, j.Scheme, f); err == nil {
		t.Fatal("not cancelled")
	}
	snapshot, err := os.ReadFile(filepath.Join(j.Dir, snapshotFile))
	check(t, err)
	other := tuningJob(t, "llama")
	other.Chain = chainOf(t, quant.NewSearch(), quickly(3))
	other.Dir = t.TempDir()
	g := other.run(t, other.Dir)
	check(t, os.WriteFile(filepath.Join(other.Dir, snapshotFile), snapshot, 0o666))
	first := int64(-1)
	other.Progress = func(done, _ int64) {
		if first < 0 {
			first = done
		}
	}
	_, err = Tune(t.Context(), other.Options, other.Scheme, g)
	check(t, err)
	if first != 1 {
		t.Errorf("continued from step %d of other codes", first)
	}
}

// Steps that make the model worse on the held-back windows are not kept: with a rate that ruins the model, nothing changes.
func TestTuneNeverWorse(t *testing.T) {
	j := tuningJob(t, "llama-bias")
	ruin := quickly(3)
	ruin.Rate = 0.1
	j.Chain = chainOf(t, quant.RTN{}, ruin)
	j.Specs = maps.Clone(j.Specs)
	for name, s := range j.Specs {
		if s.Bits != 16 {
			s.Bits = 8 // nothing to gain
			j.Specs[name] = s
		}
	}
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	_, held := holdBack(j.Windows)
	before := kl(t, j, f, held)
	g, err := Tune(t.Context(), j.Options, j.Scheme, f)
	check(t, err)
	if after := kl(t, j, g, held); after != before {
		t.Errorf("divergence on the held-back windows %g, was %g", after, before)
	}
	for i, op := range g.Ops {
		if op.SHA256 != f.Ops[i].SHA256 {
			t.Errorf("%s has changed", op.Tensor)
		}
	}
	if _, err := os.Stat(filepath.Join(j.Dir, snapshotFile)); !os.IsNotExist(err) {
		t.Errorf("the snapshot is left: %v", err)
	}
}

// Every sixteenth window is held back, at least one, and none is used for both unless there is only one.
func TestHoldBack(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 5: 1, 16: 1, 32: 2, 116: 7, 128: 8} {
		var windows [][]int32
		for i := range n {
			windows = append(windows, []int32{int32(i)})
		}
		text, held := holdBack(windows)
		seen := map[int32]bool{}
		for _, w := range slices.Concat(text, held) {
			seen[w[0]] = true
		}
		if len(held) != want || len(seen) != n || n > 1 && len(text)+len(held) != n {
			t.Errorf("%d windows: %d for tuning, %d held back, %d in all", n, len(text), len(held), len(seen))
		}
	}
}

func TestTuneRefuses(t *testing.T) {
	j := tuningJob(t, "llama")
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	for _, c := range []struct {
		name string
		edit func(j *job)
		text string
	}{
		{"no text", func(j *job) { j.Windows = nil }, "no calibration text"},
		{"nothing that tunes", func(j *job) { j.Chain = chainOf(t, quant.RTN{}) }, "nothing of the chain tunes"},
		{"no spec", func(j *job) { delete(j.Specs, pairOf(j.Decoder, 1).MLP.Down.Weight.Tensor) }, "internal error: no spec for model.layers.1.mlp.down_proj.weight"},
		{"another spec", func(j *job) {
			j.Specs[pairOf(j.Decoder, 1).MLP.Down.Weight.Tensor] = quant.Spec{Bits: 2, Block: 32, Scale: tensor.F16}
		}, "bytes of codes"},
	} {
		j := j
		j.Specs = maps.Clone(j.Specs)
		c.edit(&j)
		if _, err := Tune(t.Context(), j.Options, j.Scheme, f); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Tuning passes every block.
func TestTuneBlocks(t *testing.T) {
	for _, family := range []string{
		"bamba", "cohere", "deepseek_v2", "gemma4_text-keys", "gemma4_text-moe", "gpt_oss", "lfm2", "llama4_text", "phimoe", "qwen2_moe", "qwen3_5_text",
	} {
		if testing.Short() && family != "qwen2_moe" {
			continue
		}
		t.Run(family, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(family))
			j := newJob(t, d, src, randomText(d, 5, 32), quant.RTN{}, quickly(3))
			j.Dir = t.TempDir()
			f := j.run(t, j.Dir)
			was := kl(t, j, f, j.Windows)
			g, err := Tune(t.Context(), j.Options, j.Scheme, f)
			check(t, err)
			is := kl(t, j, g, j.Windows)
			t.Logf("divergence %g before, %g after", was, is)
			if !(is < was) {
				t.Errorf("divergence %g before, %g after", was, is)
			}
		})
	}
}
