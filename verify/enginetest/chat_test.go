//go:build engine

package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	emulation "github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	tokens "github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/verify"
)

// TestChatIDs: engines give the prompts of conversations the ids that our tokenizer for their files gives, with one bos.
// The model is Llama 3.2, whose template writes bos and whose post-processor puts it there; that the ids are those of
// transformers is for verify/transformerstest. LLMEXPORT_TOKENIZERS names the folder with it.
func TestChatIDs(t *testing.T) {
	t.Parallel()
	from := filepath.Join(os.Getenv("LLMEXPORT_TOKENIZERS"), "llama3_2", "models")
	if _, err := os.Stat(from); os.Getenv("LLMEXPORT_TOKENIZERS") == "" || err != nil {
		t.Skip("LLMEXPORT_TOKENIZERS names no folder with llama3_2/models")
	}
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, tok, err := source.ReadFacts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.PackTemplate(t.Context(), false, tok.Decode(f.Prefix, false)); err != nil {
		t.Fatal(err)
	}
	file, _, err := tok.MTOK(tokenizer.MTOKOptions{Special: f.Special, Stop: f.Stop, Prefix: f.Prefix, ChatTemplate: f.PackagedTemplate, EOS: f.EOS})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := tokens.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := emulation.Parse(f.PackagedTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, c := range conversations.All() {
		c, _ = verify.EngineOrder(c)
		text, err := c.Render(tmpl.Renderer(t.Context(), "", f.EOS, template.Limits{}))
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		texts = append(texts, text)
	}
	pkg := export(t, checkpoints(t, false)[0], form{engine: "3.5", bits: 4, table: 8, block: "64"})
	if err := os.WriteFile(filepath.Join(pkg, assemble.TokenizerFile), file, 0o666); err != nil {
		t.Fatal(err)
	}
	bos, _ := tok.ID(f.BOS)
	for _, e := range engines(t) {
		if e.version < ours.Since() {
			continue
		}
		a, err := e.do(job{Package: pkg, Texts: texts})
		if err != nil {
			t.Error(err)
			continue
		}
		for i, got := range a.IDs {
			if !slices.Equal(got, ours.Encode(texts[i])) || len(got) < 2 || got[0] != bos || got[1] == bos {
				t.Errorf("engine %s: %.100q gives %d", e.version, texts[i], got[:min(len(got), 8)])
			}
		}
		t.Logf("engine %s: %d prompts", e.version, len(a.IDs))
	}
}
