package stage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// withRows is a plan with a linear layer of so many inputs, in rows or blocks, and a table.
func withRows(cols, blocks int, m lower.Model) *plan.Plan {
	spec := quant.Spec{Bits: 4, Scale: tensor.F16}
	return &plan.Plan{Model: &m, Items: []plan.Item{
		{Slot: lower.Slot{Kind: lower.LinearSlot}, Choice: quant.Choice{Spec: spec}, Layout: quant.Layout{Rows: 8, Cols: cols, Blocks: blocks}},
		{Slot: lower.Slot{Kind: lower.TableSlot, Lookup: true}, Choice: quant.Choice{Spec: spec}, Layout: quant.Layout{Rows: 8, Cols: cols, Blocks: 1}},
	}}
}

func TestRunConfig(t *testing.T) {
	// With 40 inputs there are 3, 5 or 10 packs: of 5 and of 10, 4 threads leave one without any.
	for _, c := range []struct {
		name         string
		cols, blocks int
		model        lower.Model
		want         runConfig
		condition    string
	}{
		{"safe", 256, 1, lower.Model{}, runConfig{threads: 4, precision: "low"}, ""},
		{"unsafe in blocks", 40, 5, lower.Model{}, runConfig{threads: 4, precision: "low", dynamicOption: 2}, "dynamic_option 2"},
		{"unsafe in rows", 40, 1, lower.Model{}, runConfig{threads: 4, precision: "low", chunk: 255}, "chunk 255"},
		{"whole and safe", 256, 1, lower.Model{Whole: true}, runConfig{threads: 4, precision: "low"}, ""},
		{"whole in blocks", 40, 5, lower.Model{Whole: true}, runConfig{threads: 4, precision: "low", dynamicOption: 2}, "dynamic_option 2"},
		{"whole in rows", 40, 1, lower.Model{Whole: true}, runConfig{threads: 3, precision: "low"}, "thread_num 3 is set"},
		{"low", 256, 1, lower.Model{Precision: "low"}, runConfig{threads: 4, precision: "low"}, ""},
		{"normal", 256, 1, lower.Model{Precision: "normal"}, runConfig{threads: 4, precision: "normal"}, "precision normal is set"},
		{"high", 256, 1, lower.Model{Precision: "high", Conditions: []string{"as it is"}}, runConfig{threads: 4, precision: "high"}, "as it is"},
	} {
		p := withRows(c.cols, c.blocks, c.model)
		got := newRunConfig(p, Sampling{}, false)
		if got.threads != c.want.threads || got.precision != c.want.precision || got.dynamicOption != c.want.dynamicOption || got.chunk != c.want.chunk {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		for _, pack := range plan.PackWidths {
			if got.dynamicOption == 0 && got.chunk == 0 && slices.Contains(p.UnsafeThreads(pack), got.threads) {
				t.Errorf("%s: %d threads are unsafe with %d channels", c.name, got.threads, pack)
			}
		}
		list := conditions(&Planned{Source: &Source{Decoder: &arch.Decoder{}}, Plan: p}, got)
		if !strings.Contains(strings.Join(list[1:], "\n"), c.condition) || c.condition == "" && len(list) > 1 {
			t.Errorf("%s: conditions %q", c.name, list)
		}
	}
	c := runConfig{precision: "high"}
	if c.atLeast("normal") || c.precision != "high" {
		t.Errorf("precision %s", c.precision)
	}
	c = runConfig{precision: "low", halfAtNormal: true}
	if !c.atLeast("normal") || c.precision != "high" {
		t.Errorf("precision %s for a backend that stores halves at normal", c.precision)
	}
}

func TestLLMConfig(t *testing.T) {
	for _, c := range []struct {
		model lower.Model
		want  map[string]any
	}{
		{lower.Model{Context: 100, Caches: 3}, map[string]any{"attention_type": "full", "sliding_window": nil, "max_position_embeddings": 100., "layer_nums": 3.}},
		{lower.Model{Context: 64, Caches: 1, Window: 16}, map[string]any{"attention_type": "mix", "sliding_window": 16., "max_position_embeddings": 64., "layer_nums": 1.}},
	} {
		p := &Planned{Source: &Source{Decoder: &arch.Decoder{MaxPositions: 4096}}, Plan: withRows(64, 1, c.model)}
		b, err := llmConfig(p)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		for k, want := range c.want {
			if got[k] != want {
				t.Errorf("%s is %v, want %v", k, got[k], want)
			}
		}
	}
}

// target.context bounds the positions of a package, and must be among those of the checkpoint.
func TestContext(t *testing.T) {
	src, err := OpenSource("../arch/testdata/llama", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	planned := func(context int) (*Planned, error) {
		text := "version: 1\nname: x\nmodel: {path: x}\nquantize: {block: 32}\n"
		if context > 0 {
			text += fmt.Sprintf("target:\n  context: %d\n", context)
		}
		r, err := recipes.Load([]byte(text), "x.yaml", Sections())
		if err != nil {
			t.Fatal(err)
		}
		stages, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		return Find[*Quantize](stages).Plan(&pipeline.Job{Recipe: r}, src)
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
		b, err := llmConfig(p)
		if err != nil || !strings.Contains(string(b), fmt.Sprintf("\"max_position_embeddings\": %d,", context)) {
			t.Errorf("context %d: %s, %v", context, b, err)
		}
		want := fmt.Sprintf("positions up to %d; the rotary tables end there; the engine does not stop there: end or shorten conversations before, "+
			"what it writes beyond is undefined", context)
		if p.Conditions()[0] != want {
			t.Errorf("context %d: %q", context, p.Conditions())
		}
		// The engine's own bound of a reply is cut to the context.
		run, err := p.runConfig().json(p.Target, "")
		if err != nil {
			t.Fatal(err)
		}
		bound := fmt.Sprintf("\"max_new_tokens\": %d,", context)
		if cut := context < engineReply; cut != strings.Contains(string(run), bound) || cut != strings.Contains(strings.Join(p.Conditions(), "\n"), "max_new_tokens") {
			t.Errorf("context %d: %s, %q", context, run, p.Conditions())
		}
	}
	_, err = planned(all + 1)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("x.yaml:6:12: target.context: the checkpoint has %d positions, fewer than %d", all, all+1)) {
		t.Errorf("error %v", err)
	}
}

// The configuration of a package says where its logits depend on more than distances.
func TestAbsolutePositions(t *testing.T) {
	d := &arch.Decoder{Ropes: []*arch.Rope{{Long: []float64{1}}}}
	p := &Planned{Source: &Source{Decoder: d}, Plan: withRows(64, 1, lower.Model{})}
	for _, want := range []string{d.AbsolutePositions(), ""} {
		b, err := p.runConfig().json(lower.Target{}, "")
		if err != nil || strings.Contains(string(b), "absolute_positions") != (want != "") || !strings.Contains(string(b), want) {
			t.Errorf("%s, %v", b, err)
		}
		d.Ropes = nil
	}
}

// TestPythonJSON reads a checkpoint whose JSON files are as Python writes them and JSON does not allow.
func TestPythonJSON(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../arch/testdata/llama")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		b, err := readOptional(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			b = []byte(`{"eos_token_id": 2}`)
		}
		b = append([]byte("\ufeff"), bytes.Replace(b, []byte("{"), []byte(`{"my_key": [NaN, -Infinity], `), 1)...)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	src, err := OpenSource(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if want := []string{"keys of config.json without effect: my_key"}; !slices.Equal(src.Decoder.Notes, want) {
		t.Errorf("notes %q", src.Decoder.Notes)
	}
}
