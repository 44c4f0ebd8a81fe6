package stage_test

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// TestCalibrationTemplate: conversations are written down by the template that the package carries, not by the checkpoint's.
func TestCalibrationTemplate(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, "rewrite: {template: {text: \"{% for m in messages %}@{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}\"}}\n"+
		"calibrate: {tokens: 256, window: 32, probe: 64, data: [{path: chats.jsonl, chat: true}]}\n"+
		"quantize: {method: gptq}\n"+unverified)
	writeTexts(t, w.dir)
	if _, err := stagetest.Run(t.Context(), w.recipe(), w.cache(), 2); err != nil {
		t.Fatal(err)
	}
	c := writtenCorpus(t, w)
	tok, err := source.LoadTokenizer(tiny)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range c.Windows {
		if text := tok.Decode(x, false); !strings.HasPrefix(text, "@user: ") {
			t.Errorf("window %d: %q", i, text)
		}
	}
}
