//go:build engine

package enginetest

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/picture"
)

// TestSlicedSizes: of a tower of slices, engine and our runtime make the same tokens and logits of pictures of sizes that a caller asks for, in
// which views are larger and smaller than the picture, cut off and rounded.
func TestSlicedSizes(t *testing.T) {
	t.Parallel()
	all := engines(t)
	pkg := export(t, filepath.Join("..", "..", "pipeline", "arch", "testdata", "minicpmv"), form{engine: "3.5", bits: 16})
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
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []picture.Size{
		{Height: 480, Width: 640}, {Height: 61, Width: 997}, {Height: 500, Width: 333}, {Height: 1083, Width: 700}, {Height: 896, Width: 896},
		{Height: 30, Width: 20},
	} {
		im := &picture.Image{Height: size.Height, Width: size.Width, Pix: make([]byte, 3*size.Height*size.Width)}
		for i := range im.Pix {
			im.Pix[i] = byte(i/3%size.Width*200/size.Width + i/(3*size.Width)%size.Height*50/size.Height + i%3)
		}
		want, err := tower.Look(t.Context(), im, size)
		if err != nil {
			t.Fatal(err)
		}
		s.Reset()
		s.Show(want.Pictures...)
		logits, err := s.Forward(t.Context(), want.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range runs(all, form{engine: "3.5"}) {
			script := []any{pictured{Text: "<img>image_0</img>", Images: []imageData{{size.Height, size.Width, im.Pix}}}}
			got, ids := e.conversation(t, pkg, map[string]any{"memory": "high"}, script)
			if len(ids) != 1 || !slices.Equal(ids[0], want.Tokens) {
				t.Fatalf("engine %s, %v: %d ids, want %d", e.version, size, len(ids[0]), len(want.Tokens))
			}
			kl, diff := divergence(t, logits, got, len(logits)/len(want.Tokens))
			t.Logf("engine %s, %v: %d tokens, KL %.2g, largest difference %.2g", e.version, size, len(want.Tokens), kl, diff)
			if !(kl <= maxFloat) {
				t.Errorf("engine %s, %v: KL %.3g, largest difference %.3g", e.version, size, kl, diff)
			}
		}
	}
}
