package stage_test

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
)

// TestOldEngine: an engine that cannot read pictures for a tower is refused by name.
func TestOldEngine(t *testing.T) {
	t.Parallel()
	_, err := stagetest.Export(t.Context(), t.TempDir(), families+"gemma4", "target: {engine: \"3.5\"}")
	const want = `target.engine: "3.5" is too old for this checkpoint: engines before 3.6.0 cannot read pictures for its tower`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Methods that watch the text model round the matrices of towers to nearest, and the table of rows with marks of pictures: what
// calibration sees of the model says nothing about their inputs.
func TestTowersAreRounded(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	tensors := func(t *testing.T, family, method string) map[string]manifest.Tensor {
		w := newWork(t, families+family, watch+"verify: {enabled: false}\nquantize: {bits: 4, block: auto, method: "+method+"}")
		w.must(t)
		m, err := manifest.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]manifest.Tensor{}
		for _, x := range m.Tensors {
			list[x.Part+"/"+x.Op] = x
		}
		return list
	}
	for _, tt := range []struct{ family, part, table string }{
		{family: "llava", part: "visual"},
		{family: "gemma3", part: "visual", table: "model.language_model.embed_tokens.weight"},
		{family: "qwen2_audio", part: "audio"},
	} {
		t.Run(tt.family, func(t *testing.T) {
			t.Parallel()
			rounded, watched := tensors(t, tt.family, "rtn"), tensors(t, tt.family, "gptq")
			same, other := 0, 0
			for key, x := range rounded {
				switch y := watched[key]; {
				case x.Part == tt.part, tt.table != "" && x.Name == tt.table:
					if x != y {
						t.Errorf("%s is %+v, rounded it is %+v", key, y, x)
					}
					same++
				case x.SHA256 != y.SHA256:
					other++
				}
			}
			if same < 10 || other < 10 {
				t.Errorf("%d tensors that are rounded, %d that are not", same, other)
			}
		})
	}
}
