//go:build engine

package enginetest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
	"github.com/llmexport/llmexport/runtime/sound"
)

// maxFeatures bounds the divergence that the engine's features in place of the library's cause, on clips that end with silence.
const maxFeatures = 1e-5

// newSounded is a text with clips lo to hi-1 of a golden.
func newSounded(text string, p *stagetest.Sounds, lo, hi int) pictured {
	out := pictured{Text: text}
	for _, wave := range p.Waves[lo:hi] {
		out.Audios = append(out.Audios, floatBytes(wave))
	}
	return out
}

func floatBytes(wave []float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, wave)
	if err != nil {
		panic(err) // floats always can be written
	}
	return b
}

// soundScript is the conversation of a golden: the first prompt, steps, and the second prompt. The goldens of its calls follow one another.
func soundScript(p *stagetest.Sounds) []any {
	list := []any{newSounded(stagetest.FirstSoundPrompt, p, 0, 2)}
	for i := range p.Steps {
		list = append(list, p.IDs[p.Prompt+i:p.Prompt+i+1])
	}
	return append(list, newSounded(stagetest.SecondSoundPrompt, p, 2, 3))
}

// TestSounds: of 16-bit packages that read sound, every engine has the ids and the logits of transformers, for a prompt with two clips,
// steps and a second prompt with a third clip, in one conversation and in the next one. The logits are those from the same features, and
// within another bound those from the library's own.
func TestSounds(t *testing.T) {
	t.Parallel()
	all := engines(t)
	for _, file := range soundFiles(t) {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			p, err := stagetest.ReadSounds(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range targets(dir) {
				pkg := export(t, dir, form{engine: target, bits: 16})
				prepared(t, pkg, "high", "high")
				for _, e := range runs(all, form{engine: target}) {
					e.sounded(t, pkg, p, target)
				}
			}
		})
	}
}

// sounded compares an engine with transformers over a conversation with clips and the same one again.
func (e *engine) sounded(t *testing.T, pkg string, p *stagetest.Sounds, target string) {
	t.Helper()
	once := soundScript(p)
	got, ids := e.conversation(t, pkg, map[string]any{"memory": "high"}, slices.Concat(once, []any{nil}, once))
	want := [][]int32{p.IDs[:p.Prompt], p.IDs[p.Prompt+p.Steps:]}
	for i, list := range ids {
		if !slices.Equal(list, want[i%2]) {
			t.Fatalf("engine %s: the ids of prompt %d are %v, want %v", e.version, i, list, want[i%2])
		}
	}
	vocab := len(p.Logits) / len(p.IDs)
	kl, diff := divergence(t, slices.Concat(p.Logits, p.Logits), got, vocab)
	if !(kl <= maxGolden) {
		t.Errorf("%s, engine %s: KL %.3g from transformers with clips, largest difference %.3g", pkg, e.version, kl, diff)
	}
	own, _ := divergence(t, slices.Concat(p.Library, p.Library), got, vocab)
	t.Logf("target %s, engine %s: KL %.2g with equal features, %.2g with those of the library", target, e.version, kl, own)
	if silent := !slices.ContainsFunc(p.Waves, func(w []float32) bool { return w[len(w)-1] != 0 }); silent && !(own <= maxFeatures) {
		t.Errorf("%s, engine %s: KL %.3g from transformers with its own features", pkg, e.version, own)
	}
	ours, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if ours.Config.MRope {
		return // of a model that sees too, whose prompts must not be divided
	}
	// A prompt in pieces, which cut clips; the engine gives the logits of the last piece.
	got, _ = e.conversation(t, pkg, map[string]any{"memory": "high", "chunk": 16}, once[:1])
	end := p.Prompt * vocab
	if pieces, _ := divergence(t, p.Logits[end-min(end, len(got)):end], got, vocab); !(pieces <= maxGolden) {
		t.Errorf("%s, engine %s: KL %.3g from transformers with a prompt in pieces", pkg, e.version, pieces)
	}
}

// longest are the seconds of a long clip: all that the engine leaves of it, and more than that for an encoder that it cuts nothing off for.
var longest = map[string]int{"qwen2_audio": 30, "qwen2_5_omni": 31, "lfm2_audio": 31, "gemma4-hearing": 30}

// TestQuantizedSounds: of quantized packages that read sound, engine and our runtime have the same logits in both modes, for clips of all
// lengths that leave frames and states over, and of half a minute.
func TestQuantizedSounds(t *testing.T) {
	t.Parallel()
	all := engines(t)
	for _, file := range soundFiles(t) {
		dir := filepath.Dir(file)
		for _, engine := range targets(dir) {
			f := form{engine: engine, bits: 4, table: 8, block: "auto"}
			t.Run(filepath.Base(dir)+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				pkg := export(t, dir, f)
				p, err := runtime.Open(pkg)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				text, waves := "", [][]float32{}
				for k, n := range []int{480, 799, 800, 1120, 1280, 16001} {
					text += fmt.Sprintf("clip %d: <audio>audio_%d</audio>", k, k)
					waves = append(waves, drawnWave(n))
				}
				if seconds := longest[filepath.Base(dir)]; f.engine == "3.6" && seconds > 0 {
					text += "long: <audio>audio_6</audio>"
					waves = append(waves, drawnWave(seconds*sound.Rate))
				}
				for _, m := range []struct {
					mode   backend.Mode
					memory string
					limit  float64
				}{{backend.Float, "high", maxFloat}, {backend.Int8, "low", maxInt8}} {
					ids, want := oursSounded(t, p, text+".", waves, m.mode)
					prepared(t, pkg, "high", m.memory)
					for _, e := range runs(all, f) {
						ask := pictured{Text: text + "."}
						for _, w := range waves {
							ask.Audios = append(ask.Audios, floatBytes(w))
						}
						got, theirs := e.conversation(t, pkg, map[string]any{"memory": m.memory, "chunk": 0}, []any{ask}) // one thread needs no pieces
						if !slices.Equal(theirs[0], ids) {
							t.Fatalf("engine %s: ids %v, ours %v", e.version, theirs[0], ids)
						}
						kl, diff := divergence(t, want, got, len(want)/len(ids))
						t.Logf("engine %s, %s: KL %.2g, largest difference %.2g", e.version, m.mode, kl, diff)
						if !(kl <= m.limit) {
							t.Errorf("engine %s, %s: largest difference %.3g, KL %.3g", e.version, m.mode, diff, kl)
						}
					}
				}
			})
		}
	}
}

// TestSoundsWithPictures: of packages that see and hear, engine and our runtime have the same ids and logits for a prompt with pictures
// and clips in turn, and at 16 bits those of transformers.
func TestSoundsWithPictures(t *testing.T) {
	t.Parallel()
	all := engines(t)
	const text = "See <img>image_0</img> hear <|audio_bos|><audio>audio_0</audio><|audio_eos|><img>image_1</img> and " +
		"<|audio_bos|><audio>audio_1</audio><|audio_eos|>, which?"
	for _, file := range soundFiles(t) {
		dir := filepath.Dir(file)
		golden := filepath.Join(dir, "pictures.safetensors")
		if _, err := os.Stat(golden); err != nil {
			continue // it hears only
		}
		seen, err := stagetest.ReadPictures(golden)
		if err != nil {
			t.Fatal(err)
		}
		heard, err := stagetest.ReadSounds(file)
		if err != nil {
			t.Fatal(err)
		}
		both, err := stagetest.ReadGolden(filepath.Join(dir, "mixed.safetensors"), "0")
		if err != nil {
			t.Fatal(err)
		}
		waves := heard.Waves[:2]
		for _, f := range []form{{engine: targets(dir)[0], bits: 16}, {engine: "3.6", bits: 4, table: 8, block: "auto"}} {
			t.Run(filepath.Base(dir)+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				pkg := export(t, dir, f)
				p, err := runtime.Open(pkg)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				ids, want := oursShown(t, p, text, seen, waves)
				if vocab := len(want) / len(ids); f.bits == 16 {
					if kl, diff := divergence(t, both.Logits, want, vocab); !slices.Equal(ids, both.IDs) || !(kl <= maxFloat) {
						t.Errorf("ours: ids %v, of transformers %v; largest difference %.3g, KL %.3g", ids, both.IDs, diff, kl)
					}
				}
				ask := newPictured(text, seen, 0, 2)
				for _, w := range waves {
					ask.Audios = append(ask.Audios, floatBytes(w))
				}
				prepared(t, pkg, "high", "high")
				for _, e := range runs(all, f) {
					got, theirs := e.conversation(t, pkg, map[string]any{"memory": "high"}, []any{ask, nil, ask})
					for i, list := range theirs {
						if !slices.Equal(list, ids) {
							t.Fatalf("engine %s: the ids of prompt %d are %v, ours %v", e.version, i, list, ids)
						}
					}
					if f.bits == 16 {
						kl, _ := divergence(t, slices.Concat(both.Logits, both.Logits), got, len(want)/len(ids))
						if t.Logf("engine %s: KL from transformers %.2g", e.version, kl); !(kl <= maxFloat) {
							t.Errorf("engine %s: KL from transformers %.3g", e.version, kl)
						}
					}
					kl, diff := divergence(t, slices.Concat(want, want), got, len(want)/len(ids))
					t.Logf("engine %s: KL %.2g, largest difference %.2g", e.version, kl, diff)
					if !(kl <= maxFloat) {
						t.Errorf("engine %s: largest difference %.3g, KL %.3g", e.version, diff, kl)
					}
				}
			})
		}
	}
}

// oursShown are the tokens and the logits of a prompt with pictures of a golden and clips on our runtime, in float.
func oursShown(t *testing.T, p *runtime.Package, text string, seen *stagetest.Pictures, waves [][]float32) (ids []int32, logits []float32) {
	t.Helper()
	o := runtime.Options{Mode: backend.Float, DynamicOption: p.Config.DynamicOption}
	r, err := runtime.NewReader(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := prompt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	in, images, clips := &runtime.Prompt{}, 0, 0
	for _, x := range pieces {
		q := &runtime.Prompt{Tokens: p.Tokenizer.Encode(x.Text)}
		switch x.Kind {
		case prompt.Picture:
			h, w := seen.Size(images)
			q, err = r.Tower.Look(t.Context(), &picture.Image{Height: h, Width: w, Pix: seen.Images[images]}, picture.Size{Height: h, Width: w})
			images++
		case prompt.Sound:
			q, err = r.Ear.Hear(t.Context(), waves[clips])
			clips++
		}
		if err == nil {
			err = p.Append(in, q)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Show(in.Pictures...)
	l, err := s.Forward(t.Context(), in.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	return in.Tokens, slices.Clone(l)
}

// drawnWave is a clip of noise and a tone that rises.
func drawnWave(n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		noise := uint32(i) * 2654435761
		w[i] = float32(int16(i*(i/500+300)/3)+int16(noise>>22)) / (1 << 16)
	}
	return w
}

// oursSounded are the tokens and the logits of a prompt with clips on our runtime.
func oursSounded(t *testing.T, p *runtime.Package, text string, waves [][]float32, mode backend.Mode) (ids []int32, logits []float32) {
	t.Helper()
	o := runtime.Options{Mode: mode, DynamicOption: p.Config.DynamicOption}
	r, err := runtime.NewReader(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	for i, w := range waves {
		name := filepath.Join(files, fmt.Sprintf("audio_%d", i))
		writeFloatWave(t, name, w)
	}
	in, err := r.Read(t.Context(), strings.ReplaceAll(text, "<audio>", "<audio>"+files+string(filepath.Separator)))
	if err != nil {
		t.Fatal(err)
	}
	s.Show(in.Pictures...)
	l, err := s.Forward(t.Context(), in.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	return in.Tokens, slices.Clone(l)
}

func soundFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "sounds.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(fmt.Errorf("no checkpoints with clips: %v", err))
	}
	return files
}
