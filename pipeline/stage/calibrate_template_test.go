package stage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// TestCalibrationTemplate: conversations are written down by the template that the package carries, not by the checkpoint's.
func TestCalibrationTemplate(t *testing.T) {
	w := newWork(t, tiny, "rewrite: {template: {text: \"{% for m in messages %}@{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}\"}}\n"+
		"calibrate: {tokens: 256, window: 32, probe: 64, data: [{path: chats.jsonl, chat: true}]}\n"+
		"quantize: {method: gptq}\n"+unverified)
	writeTexts(t, w.dir)
	if _, err := stagetest.Run(t.Context(), w.recipe(), w.cache(), 2); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(w.cache(), "calibration-*", "corpus.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := corpus.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := stage.LoadTokenizer(tiny)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range c.Windows {
		if text := tok.Decode(x, false); !strings.HasPrefix(text, "@user: ") {
			t.Errorf("window %d: %q", i, text)
		}
	}
}
