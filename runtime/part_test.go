package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// A second part is opened under its own name and runs on its own weights.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(small(t))); err != nil {
		t.Fatal(err)
	}
	if err := stagetest.AddPart(t.Context(), dir, "draft"); err != nil {
		t.Fatal(err)
	}
	// logits are those of the text model and of the second part, run in place of the text model.
	logits := func() (text, draft []float32) {
		p := openPackage(t, dir)
		if len(p.Parts) != 2 || p.Text().Name != "" || p.Parts[1].Name != "draft" {
			t.Fatalf("%d parts", len(p.Parts))
		}
		want := []string{"config.json", "llm_config.json", "llm.mnn", "llm.mnn.weight", "draft.mnn", "draft.mnn.weight", "tokenizer.mtok"}
		if diff := cmp.Diff(want, p.Files()); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		second := *p
		second.Parts = p.Parts[1:]
		for _, x := range []struct {
			pkg *runtime.Package
			to  *[]float32
		}{{p, &text}, {&second, &draft}} {
			l, err := session(t, x.pkg, backend.Float).Forward(t.Context(), []int32{1, 2, 3})
			if err != nil {
				t.Fatal(err)
			}
			*x.to = slices.Clone(l)
		}
		return text, draft
	}
	text, draft := logits()
	if !slices.Equal(text, draft) {
		t.Error("the copy of a graph and its weights gives other logits")
	}
	f, err := os.OpenFile(filepath.Join(dir, "draft.mnn.weight"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 4096), 4096); err != nil {
		t.Fatal(err)
	}
	f.Close()
	again, other := logits()
	if !slices.Equal(text, again) || slices.Equal(draft, other) {
		t.Error("other weights of the second part change the text model, or do not change the part")
	}
}
