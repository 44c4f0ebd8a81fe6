package verify_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

const (
	hearing = families + "qwen2_audio"
	exact   = families + "qwen2_audio-wide"
	omni    = families + "qwen2_5_omni"
	pieces  = families + "qwen2_5_omni_thinker-odd"
	formers = families + "lfm2_audio"
	nearby  = families + "gemma4-hearing-wide"
	far     = families + "gemma4-hearing-far"
)

// goodHearing and goodExact make, once, packages that read sound.
var (
	goodHearing = sync.OnceValues(func() (string, error) { return exportSeeing(hearing, "quantize: {block: auto}") })
	goodExact   = sync.OnceValues(func() (string, error) { return exportSeeing(exact, "quantize: {bits: 16}") })
	goodOmni    = sync.OnceValues(func() (string, error) { return exportSeeing(omni, "quantize: {bits: 16}") })
	goodFormers = sync.OnceValues(func() (string, error) { return exportSeeing(formers, "quantize: {bits: 16}") })
	goodNearby  = sync.OnceValues(func() (string, error) { return exportSeeing(nearby, "target: {engine: \"3.6\"}\nquantize: {bits: 16}") })
	goodFar     = sync.OnceValues(func() (string, error) { return exportSeeing(far, "target: {engine: \"3.6\"}\nquantize: {bits: 16}") })
	goodPieces  = sync.OnceValues(func() (string, error) { return exportSeeing(pieces, "quantize: {bits: 16}") })
)

// The check sounds passes on a good package that reads sound, and fails where the encoder is damaged, but the text model is not.
func TestSounds(t *testing.T) {
	const encoder = "audio.mnn at the source's precision"
	graph := func(change func(t testing.TB, g *mnn.Graph)) func(e *edition) {
		return func(e *edition) { e.partGraph(mnn.AudioPart, func(g *mnn.Graph) { change(e.t, g) }) }
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 clips"},
		{"zeros in place of silence", graph(func(t testing.TB, g *mnn.Graph) {
			_, a := op(t, g, "/silence/values")
			a.Param.(*mnn.Binary).Op = mnn.BinarySub
		}), []string{"sounds"}, encoder},
		{"frames in another order", graph(func(t testing.TB, g *mnn.Graph) {
			_, a := op(t, g, "/conv1/three")
			slices.Reverse(a.Inputs)
		}), []string{"sounds"}, encoder},
		{"other states of each pair", graph(func(t testing.TB, g *mnn.Graph) {
			_, a := op(t, g, "/conv2/three")
			a.Inputs[0], a.Inputs[1] = a.Inputs[1], a.Inputs[2]
		}), []string{"sounds"}, encoder},
		{"the first state twice in place of a mean", graph(func(t testing.TB, g *mnn.Graph) {
			_, a := op(t, g, "/mean/sum")
			a.Inputs[1] = a.Inputs[0]
		}), []string{"sounds"}, encoder},
		{"another token", func(e *edition) { e.json("llm_config.json", "audio_pad", 7) }, []string{"sounds"}, "llm_config.json has audio_pad 7, the source 3"},
		{"a weight", func(e *edition) {
			e.span("fc1", func(b []byte) { b[len(b)-9] ^= 0x40 })
		}, []string{"weights"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := judged(t, hearing, goodHearing, c.damage, c.fails, c.detail)
			if kl := last.Value["kl_features"]; c.fails == nil && !(kl > 0 && kl < 1e-4) {
				t.Errorf("the engine's features cost %g nats", kl)
			}
			if h := verify.Hint(manifest.Check{Name: "sounds", Value: last.Value}); h == "" || strings.Contains(h, "\n") {
				t.Errorf("hint %q", h)
			}
		})
	}
}

// The same for an encoder that reads a clip in pieces, of a model that sees too.
func TestSoundPieces(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 clips"},
		{"pieces that see what they are filled up with", func(e *edition) {
			e.partGraph(mnn.AudioPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/pieces/hidden")
				a.Param.(*mnn.Binary).Op = mnn.BinaryMaximum
			})
		}, []string{"sounds"}, "audio.mnn at the source's precision"},
		{"frames after the end", func(e *edition) {
			e.partGraph(mnn.AudioPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/conv1/there")
				a.Param.(*mnn.Binary).Op = mnn.BinaryMaximum
			})
		}, []string{"sounds"}, "audio.mnn at the source's precision"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, pieces, goodPieces, c.damage, c.fails, c.detail)
		})
	}
}

// The same for a Conformer.
func TestConformer(t *testing.T) {
	const encoder = "audio.mnn at the source's precision"
	other := func(name string, change func(inputs []int32)) func(e *edition) {
		return func(e *edition) {
			e.partGraph(mnn.AudioPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, name)
				change(a.Inputs)
			})
		}
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 clips"},
		{"distances of no matter", other("/layers.0/self_attn/scores_by_distance", func(in []int32) { in[1] = in[0] }), []string{"sounds"}, encoder},
		{"values as gates", other("/layers.1/conv/gated", func(in []int32) { in[0] = in[1] }), []string{"sounds"}, encoder},
		{"columns in another order", other("/conv.0/nine", func(in []int32) { in[0], in[1] = in[1], in[0] }), []string{"sounds"}, encoder},
	} {
		if testing.Short() && c.fails != nil && c.name != "distances of no matter" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := judged(t, formers, goodFormers, c.damage, c.fails, c.detail)
			if kl := last.Value["kl_features"]; c.fails == nil && !(kl > 0 && kl < 1e-5) {
				t.Errorf("the engine's features cost %g nats", kl)
			}
		})
	}
}

// The same for an encoder whose states attend to near ones.
func TestNearStates(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const encoder = "audio.mnn at the source's precision"
	other := func(name string, change func(inputs []int32)) func(e *edition) {
		return func(e *edition) {
			e.partGraph(mnn.AudioPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, name)
				change(a.Inputs)
			})
		}
	}
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
	}{
		{"good", func(*edition) {}, nil},
		{"frames in another order", other("/conv.1/nine", func(in []int32) { in[0], in[1] = in[1], in[0] }), []string{"sounds"}},
		{"distances of no matter", other("/layers.0/self_attn/scores_by_distance", func(in []int32) { in[1] = in[0] }), []string{"sounds"}},
		{"states that are too far away", other("/layers.0/self_attn/scores_masked", func(in []int32) { in[1] = in[0] }), []string{"sounds"}},
		{"later rows in a convolution", other("/layers.0/conv/padded", func(in []int32) { in[0], in[1] = in[1], in[0] }), []string{"sounds"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			detail := "on a prompt with 2 clips"
			if c.fails != nil {
				detail = encoder
			}
			last := judged(t, nearby, goodNearby, c.damage, c.fails, detail)
			if kl := last.Value["kl_features"]; c.fails == nil && !(kl > 0 && kl < 1e-6) {
				t.Errorf("the engine's features cost %g nats", kl)
			}
		})
	}
}

// openEar opens a package and its encoder of sound.
func openEar(t *testing.T, good func() (string, error)) (*runtime.Package, *runtime.Ear) {
	t.Helper()
	dir, err := good()
	if err != nil {
		t.Fatal(err)
	}
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	ear, err := runtime.NewEar(p, cpu.Backend{}, runtime.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return p, ear
}

// Clips become rows for each 80 ms and a last one, or are refused with the reason.
func TestConformerLengths(t *testing.T) {
	t.Parallel()
	p, ear := openEar(t, goodFormers)
	for samples, want := range map[int]string{
		200: "too short", 479: "too short", 480: "1 rows", 1279: "1 rows", 1280: "2 rows", 16000: "13 rows", 120*16000 + 160: "longer than the 120 s",
	} {
		got := ""
		if heard, err := ear.Wave(t.Context(), make([]float32, samples)); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(len(heard.Rows)/p.Config.HiddenSize, " rows")
		}
		if !strings.Contains(got, want) {
			t.Errorf("%d samples: %s, want %s", samples, got, want)
		}
	}
}

// Clips become rows for each 40 ms of the frames that the engine has and one more, or are refused with the reason.
func TestNearLengths(t *testing.T) {
	t.Parallel()
	p, ear := openEar(t, goodFar)
	for samples, want := range map[int]string{
		200: "too short", 479: "too short", 480: "1 rows", 831: "1 rows", 832: "2 rows", 16000: "25 rows", 30*16000 + 160: "longer than the 30 s",
	} {
		got := ""
		if heard, err := ear.Wave(t.Context(), make([]float32, samples)); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(len(heard.Rows)/p.Config.HiddenSize, " rows")
		}
		if !strings.Contains(got, want) {
			t.Errorf("%d samples: %s, want %s", samples, got, want)
		}
	}
}

// A package that reads sound has the logits of transformers in a whole conversation: two clips, steps, a third clip, and again after a reset.
func TestSoundConversation(t *testing.T) {
	t.Parallel()
	for checkpoint, export := range map[string]func() (string, error){exact: goodExact, omni: goodOmni, formers: goodFormers, far: goodFar} {
		dir, err := export()
		if err != nil {
			t.Fatal(err)
		}
		p, err := runtime.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		want, err := stagetest.ReadSounds(checkpoint + "/sounds.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]backend.Backend{"cpu": cpu.Backend{}, "generic": generic.Backend{}} {
			t.Run(filepath.Base(checkpoint)+" "+name, func(t *testing.T) {
				ear, err := runtime.NewEar(p, b, runtime.Options{Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				s, err := runtime.NewSession(p, b, runtime.Options{Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					s.Reset()
					listen(t, s, ear, want)
				}
			})
		}
	}
}

// Clips of a sample to 31 s become rows, or are refused with the reason.
func TestClipLengths(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	p, ear := openEar(t, goodExact)
	for _, c := range []struct {
		samples, rows int
		refused       string
	}{
		{1, 0, "a clip of 1 samples at 16 kHz is too short: a token takes 480"},
		{201, 0, "too short"},
		{479, 0, "too short"},
		{480, 1, ""},
		{959, 1, ""},
		{1119, 1, ""},
		{1120, 2, ""},
		{16000, 25, ""},
		{30 * 16000, 750, ""},
		{30*16000 + 159, 750, ""},
		{30*16000 + 160, 0, "a clip of 30.01 s is longer than the 30 s that the model hears; cut it"},
		{31 * 16000, 0, "a clip of 31.00 s is longer"},
	} {
		heard, err := ear.Wave(t.Context(), make([]float32, c.samples))
		if c.refused != "" {
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%d samples: %v", c.samples, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(heard.Rows) / p.Config.HiddenSize; n != c.rows {
			t.Errorf("%d samples are %d rows, want %d", c.samples, n, c.rows)
		}
	}
}

func listen(t *testing.T, s *runtime.Session, ear *runtime.Ear, want *stagetest.Sounds) {
	t.Helper()
	vocab, at := len(want.Logits)/len(want.IDs), 0
	forward := func(what string, n int, features ...[]float32) {
		for _, f := range features {
			heard, err := ear.Features(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			s.Show(heard)
		}
		got, err := s.Forward(t.Context(), want.IDs[at:at+n])
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			if d := x - want.Logits[at*vocab+i]; !(d >= -maxLogit && d <= maxLogit) {
				t.Fatalf("%s, token %d: logit %g, want %g", what, at+i/vocab, x, want.Logits[at*vocab+i])
			}
		}
		at += n
	}
	forward("two clips", want.Prompt, want.Features[:2]...)
	for range want.Steps {
		forward("a step", 1)
	}
	forward("a third clip", len(want.IDs)-at, want.Features[2])
}
