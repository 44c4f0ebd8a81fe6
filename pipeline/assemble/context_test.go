package assemble_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// target.context bounds the positions of a package, and must be among those of the checkpoint.
func TestContext(t *testing.T) {
	t.Parallel()
	src, err := source.Open(t.Context(), source.Origin{Dir: "../arch/testdata/llama"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	planned := func(context int) (*assemble.Planned, error) {
		text := "version: 1\nname: x\nmodel: {path: x}\nquantize: {block: 32}\n"
		if context > 0 {
			text += fmt.Sprintf("target:\n  context: %d\n", context)
		}
		r, err := recipes.Load([]byte(text), "x.yaml", stage.Sections())
		if err != nil {
			t.Fatal(err)
		}
		run, err := stage.New(r, pipeline.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return run.Plan(src, nil)
	}
	all := src.Decoder.MaxPositions
	for _, context := range []int{0, 1, 40, all} {
		p, err := planned(context)
		if err != nil {
			t.Fatal(err)
		}
		if context == 0 {
			context = all
		}
		b, run, err := p.Configs()
		if err != nil || !strings.Contains(string(b), fmt.Sprintf("\"max_position_embeddings\": %d,", context)) {
			t.Errorf("context %d: %s, %v", context, b, err)
		}
		want := fmt.Sprintf("positions up to %d; the rotary tables end there; the engine does not stop there: end or shorten conversations before, "+
			"because further output is undefined", context)
		if p.Conditions()[0] != want {
			t.Errorf("context %d: %q", context, p.Conditions())
		}
		// The engine's own bound of a reply is cut to the context.
		bound := fmt.Sprintf("\"max_new_tokens\": %d,", context)
		if cut := context < assemble.EngineReply; cut != strings.Contains(string(run), bound) ||
			cut != strings.Contains(strings.Join(p.Conditions(), "\n"), "max_new_tokens") {
			t.Errorf("context %d: %s, %q", context, run, p.Conditions())
		}
	}
	_, err = planned(all + 1)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("x.yaml:6:12: target.context: the checkpoint has %d positions, fewer than %d", all, all+1)) {
		t.Errorf("error %v", err)
	}
}
