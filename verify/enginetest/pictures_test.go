//go:build engine

package enginetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/picture"
)

// pictured is a text with pictures in the script of a job.
type pictured struct {
	Text   string      `json:"text"`
	Images []imageData `json:"images,omitempty"`
	// Audios are clips, float32 at 16 kHz.
	Audios [][]byte `json:"audios,omitempty"`
}

type imageData struct {
	Height int    `json:"height"`
	Width  int    `json:"width"`
	Data   []byte `json:"data"`
}

// newPictured is a text with pictures lo to hi-1 of a golden.
func newPictured(text string, p *stagetest.Pictures, lo, hi int) pictured {
	out := pictured{Text: text}
	for i := lo; i < hi; i++ {
		h, w := p.Size(i)
		out.Images = append(out.Images, imageData{h, w, p.Images[i]})
	}
	return out
}

// conversation feeds a script with pictures to a fresh engine and returns the logits of all calls and the ids of the texts.
func (e *engine) conversation(t *testing.T, pkg string, config map[string]any, script []any) ([]float32, [][]int32) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "logits")
	a, err := e.do(job{Package: pkg, Config: config, Script: script, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	return readFloats(t, out), a.IDs
}

// prepared writes into config.json how a package runs its towers, which the engine reads before a caller can set anything.
func prepared(t testing.TB, pkg, precision, memory string) {
	t.Helper()
	preparedFor(t, pkg, precision, memory, 1)
}

// preparedFor is prepared for a number of threads.
func preparedFor(t testing.TB, pkg, precision, memory string, threads int) {
	t.Helper()
	path := filepath.Join(pkg, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	if config["mllm"] == nil {
		t.Fatal("config.json does not say how towers are run")
	}
	config["mllm"] = map[string]any{"backend_type": "cpu", "thread_num": threads, "precision": precision, "memory": memory}
	if b, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// script is the conversation of a golden: the first prompt, steps, and the second prompt. The goldens of its calls follow one another.
func script(p *stagetest.Pictures) []any {
	list := []any{newPictured(stagetest.FirstPicturePrompt, p, 0, 2)}
	for i := range p.Steps {
		list = append(list, p.IDs[p.Prompt+i:p.Prompt+i+1])
	}
	return append(list, newPictured(stagetest.SecondPicturePrompt, p, 2, 3))
}

// pictured is the divergence of an engine from transformers over a conversation with pictures and the same one again: a prompt with two
// pictures, steps and a second prompt with a third picture. The ids are those of transformers, too.
func (e *engine) pictured(t *testing.T, pkg string, p *stagetest.Pictures) float64 {
	t.Helper()
	prepared(t, pkg, "high", "high")
	once := script(p)
	own, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	again := p
	if slices.ContainsFunc(own.Visual().Graph.Ops, func(op mnn.Op) bool { return op.Name == mnn.SizesInput }) {
		again = counted(t, own, p)
	}
	got, ids := e.conversation(t, pkg, map[string]any{"memory": "high"}, slices.Concat(once, []any{nil}, script(again)))
	var want [][]int32
	for _, x := range []*stagetest.Pictures{p, again} {
		want = append(want, x.IDs[:p.Prompt], x.IDs[p.Prompt+p.Steps:])
	}
	for i, list := range ids {
		if !slices.Equal(list, want[i]) {
			t.Fatalf("engine %s: the ids of prompt %d are %v, want %v", e.version, i, list, want[i])
		}
	}
	kl, diff := divergence(t, slices.Concat(p.Logits, again.Logits), got, len(p.Logits)/len(p.IDs))
	if !(kl <= maxGolden) {
		t.Errorf("%s, engine %s: KL %.3g from transformers with pictures, largest difference %.3g", pkg, e.version, kl, diff)
	}
	follow := func(op mnn.Op) bool { return op.Name == "/follow" }
	if own.Config.MRope || slices.ContainsFunc(own.Text().Graph.Ops, follow) {
		return kl // the engine gives wrong positions to pictures of a prompt in pieces, or the pieces cut pictures that have to be whole
	}
	// A prompt in pieces, which cut pictures; the engine gives the logits of the last piece.
	got, _ = e.conversation(t, pkg, map[string]any{"memory": "high", "chunk": 16}, once[:1])
	vocab := len(p.Logits) / len(p.IDs)
	end := p.Prompt * vocab
	pieces, _ := divergence(t, p.Logits[end-min(end, len(got)):end], got, vocab)
	if !(pieces <= maxGolden) {
		t.Errorf("%s, engine %s: KL %.3g from transformers with a prompt in pieces", pkg, e.version, pieces)
	}
	return max(kl, pieces)
}

// counted is a golden with pictures after it was told once: engines go on to count pictures. Its logits are those of our runtime, which has
// those of transformers for the golden itself.
func counted(t *testing.T, p *runtime.Package, golden *stagetest.Pictures) *stagetest.Pictures {
	t.Helper()
	again, n := *golden, len(golden.Images)
	again.IDs = slices.Clone(golden.IDs)
	for i, id := range golden.IDs {
		if id == p.Config.NumberStart {
			number := p.Tokenizer.Encode(strconv.Itoa(n))
			if len(number) != 1 || golden.IDs[i+2] != p.Config.NumberEnd {
				t.Fatalf("the number %d has %d tokens", n, len(number))
			}
			again.IDs[i+1] = number[0]
			n++
		}
	}
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	show(t, s, p, golden, len(golden.Images), runtime.Options{})
	if again.Logits, err = s.Forward(t.Context(), again.IDs); err != nil {
		t.Fatal(err)
	}
	again.Logits = slices.Clone(again.Logits)
	return &again
}

// show shows the first pictures of a golden to a session.
func show(t *testing.T, s *runtime.Session, p *runtime.Package, golden *stagetest.Pictures, n int, o runtime.Options) {
	t.Helper()
	tower, err := runtime.NewTower(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		h, w := golden.Size(i)
		seen, err := tower.See(t.Context(), &picture.Image{Height: h, Width: w, Pix: golden.Images[i]})
		if err != nil {
			t.Fatal(err)
		}
		s.Show(seen)
	}
}

// TestPaddedSizes: of a tower that always takes as many patches, engine and our runtime make the same number of tokens of pictures of any
// size, whatever size the caller asks for.
func TestPaddedSizes(t *testing.T) {
	t.Parallel()
	all := engines(t)
	pkg := export(t, filepath.Join("..", "..", "pipeline", "arch", "testdata", "gemma4-causal"), form{engine: "3.6", bits: 16})
	prepared(t, pkg, "high", "high")
	p, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []picture.Size{
		{Height: 23, Width: 25}, {Height: 24, Width: 120}, {Height: 168, Width: 9}, {Height: 900, Width: 790}, {Height: 48, Width: 14000},
	} {
		im := &picture.Image{Height: s.Height, Width: s.Width, Pix: make([]byte, 3*s.Height*s.Width)}
		want, err := tower.Look(t.Context(), im, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range runs(all, form{engine: "3.6"}) {
			script := []any{pictured{Text: "<img>image_0</img>", Images: []imageData{{s.Height, s.Width, im.Pix}}}}
			_, ids := e.conversation(t, pkg, map[string]any{"memory": "high"}, script)
			if len(ids) != 1 || !slices.Equal(ids[0], want.Tokens) {
				t.Errorf("engine %s, %v: %d ids, want %d", e.version, s, len(ids[0]), len(want.Tokens))
			}
		}
	}
}

// TestQuantizedPictures: of quantized packages with a tower, engine and our runtime have the same logits in both modes.
func TestQuantizedPictures(t *testing.T) {
	t.Parallel()
	all := engines(t)
	for _, file := range pictureFiles(t) {
		dir := filepath.Dir(file)
		golden, err := stagetest.ReadPictures(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets(dir) {
			f := form{engine: target, bits: 4, table: 8, block: "auto"}
			t.Run(filepath.Base(dir)+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				pkg := export(t, dir, f)
				p, err := runtime.Open(pkg)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				for _, m := range []struct {
					mode   backend.Mode
					memory string
					limit  float64
				}{{backend.Float, "high", maxFloat}, {backend.Int8, "low", maxInt8}} {
					want := oursPictured(t, p, golden, m.mode)
					prepared(t, pkg, "high", m.memory)
					for _, e := range runs(all, f) {
						got, _ := e.conversation(t, pkg, map[string]any{"memory": m.memory, "chunk": 0}, script(golden)[:1]) // one thread is right in one piece
						kl, diff := divergence(t, want, got, len(golden.Logits)/len(golden.IDs))
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

// oursPictured are the logits of the first prompt on our runtime.
func oursPictured(t *testing.T, p *runtime.Package, golden *stagetest.Pictures, mode backend.Mode) []float32 {
	t.Helper()
	o := runtime.Options{Mode: mode, DynamicOption: p.Config.DynamicOption}
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	show(t, s, p, golden, 2, o)
	l, err := s.Forward(t.Context(), golden.IDs[:golden.Prompt])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(l)
}

// targets are the engines for which a checkpoint can be exported: 3.5 has no branch for the tower of Gemma 4, and not the features of its
// encoder of sound.
func targets(dir string) []string {
	for _, golden := range []string{"pictures.safetensors", "sounds.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, golden)); err == nil && strings.HasPrefix(filepath.Base(dir), "gemma4") {
			return []string{"3.6"}
		}
	}
	return []string{"3.5", "3.6"}
}

func pictureFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "pictures.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(fmt.Errorf("no checkpoints with pictures: %v", err))
	}
	return files
}
