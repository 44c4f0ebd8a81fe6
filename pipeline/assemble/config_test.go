package assemble

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// withRows is a plan with a linear layer of so many inputs, in rows or blocks, and a table.
func withRows(cols, blocks int, m lower.Model) *plan.Plan {
	spec := quant.Spec{Bits: 4, Scale: tensor.F16}
	return &plan.Plan{Model: &m, Parts: []*plan.Part{{Items: []plan.Item{
		{Slot: &lower.Slot{Kind: lower.LinearSlot}, Choice: quant.Choice{Spec: spec}, Layout: quant.Layout{Rows: 8, Cols: cols, Blocks: blocks}},
		{Slot: &lower.Slot{Kind: lower.TableSlot, Lookup: true}, Choice: quant.Choice{Spec: spec}, Layout: quant.Layout{Rows: 8, Cols: cols, Blocks: 1}},
	}}}}
}

func TestRunConfig(t *testing.T) {
	t.Parallel()
	// With 40 inputs there are 3, 5 or 10 packs: of 5 and of 10, 4 threads leave one without any.
	for _, c := range []struct {
		name         string
		cols, blocks int
		model        lower.Model
		want         runConfig
		condition    string
	}{
		{"safe", 256, 1, lower.Model{}, runConfig{Threads: 4, Precision: "low"}, ""},
		{"unsafe in blocks", 40, 5, lower.Model{}, runConfig{Threads: 4, Precision: "low", DynamicOption: 2}, "dynamic_option 2"},
		{"unsafe in rows", 40, 1, lower.Model{}, runConfig{Threads: 4, Precision: "low", Chunk: 255}, "chunk 255"},
		{"whole and safe", 256, 1, lower.Model{Whole: true}, runConfig{Threads: 4, Precision: "low"}, ""},
		{"whole in blocks", 40, 5, lower.Model{Whole: true}, runConfig{Threads: 4, Precision: "low", DynamicOption: 2}, "dynamic_option 2"},
		{"whole in rows", 40, 1, lower.Model{Whole: true}, runConfig{Threads: 3, Precision: "low"}, "thread_num 3 is set"},
		{"low", 256, 1, lower.Model{Precision: "low"}, runConfig{Threads: 4, Precision: "low"}, ""},
		{"normal", 256, 1, lower.Model{Precision: "normal"}, runConfig{Threads: 4, Precision: "normal"}, "precision normal is set"},
		{"high", 256, 1, lower.Model{Precision: "high", Conditions: []string{"as it is"}}, runConfig{Threads: 4, Precision: "high"}, "as it is"},
	} {
		p := withRows(c.cols, c.blocks, c.model)
		got := newRunConfig(p, source.Sampling{})
		if got.Threads != c.want.Threads || got.Precision != c.want.Precision || got.DynamicOption != c.want.DynamicOption || got.Chunk != c.want.Chunk {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		for _, pack := range plan.PackWidths {
			if got.DynamicOption == 0 && got.Chunk == 0 && slices.Contains(p.UnsafeThreads(pack), got.Threads) {
				t.Errorf("%s: %d threads are unsafe with %d channels", c.name, got.Threads, pack)
			}
		}
		list := conditions(&Planned{Source: &source.Source{Decoder: &arch.Decoder{}}, Plan: p}, got)
		if !strings.Contains(strings.Join(list[1:], "\n"), c.condition) || c.condition == "" && len(list) > 1 {
			t.Errorf("%s: conditions %q", c.name, list)
		}
	}
	for bits, cached := range map[int]bool{2: false, 3: false, 4: true, 8: true, 16: false} {
		p := withRows(256, 1, lower.Model{})
		p.Parts[0].Items[0].Choice.Spec.Bits = bits
		if got := newRunConfig(p, source.Sampling{}).CachedMmap; got == nil != cached {
			t.Errorf("%d bits: use_cached_mmap %v", bits, got)
		}
	}
	c := runConfig{Precision: "high"}
	if c.atLeast("normal") || c.Precision != "high" {
		t.Errorf("precision %s", c.Precision)
	}
	c = runConfig{Precision: "low"}
	if !c.atLeast("normal") || c.Precision != "normal" {
		t.Errorf("precision %s", c.Precision)
	}
}

func TestLLMConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model lower.Model
		want  map[string]any
	}{
		{lower.Model{Context: 100, Caches: 3}, map[string]any{"attention_type": "full", "sliding_window": nil, "max_position_embeddings": 100., "layer_nums": 3.}},
		{lower.Model{Context: 64, Caches: 1, Window: 16}, map[string]any{"attention_type": "mix", "sliding_window": 16.,
			"max_position_embeddings": 64., "layer_nums": 1.}},
	} {
		p := &Planned{Source: &source.Source{Decoder: &arch.Decoder{MaxPositions: 4096}}, Plan: withRows(64, 1, c.model)}
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

// The configuration of a package says where its logits depend on more than distances.
func TestAbsolutePositions(t *testing.T) {
	t.Parallel()
	d := &arch.Decoder{Ropes: []*arch.Rope{{Long: []float64{1}}}}
	p := &Planned{Source: &source.Source{Decoder: d}, Plan: withRows(64, 1, lower.Model{})}
	for _, want := range []string{d.AbsolutePositions(), ""} {
		b, err := p.runConfig().json("")
		if err != nil || strings.Contains(string(b), "absolute_positions") != (want != "") || !strings.Contains(string(b), want) {
			t.Errorf("%s, %v", b, err)
		}
		d.Ropes = nil
	}
}
