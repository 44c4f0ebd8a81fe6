package calibrate

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestSites(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(name))
			sites := Sites(d)
			want := 4 * len(d.Layers)
			if !d.Tied {
				want++
				head := sites[len(sites)-1]
				if head.Name != "head" || head.Producers[0] != d.FinalNorm.Gamma || head.Consumers[0] != d.Head.Weight {
					t.Errorf("head: %+v", head)
				}
			}
			if len(sites) != want {
				t.Fatalf("%d sites, want %d", len(sites), want)
			}
			l := pairOf(d, 1)
			o := sites[5]
			if o.Name != "layers.1.attention.o" || o.Producers[0] != l.Attention.V.Weight ||
				len(o.Producers) != 1+strings.Count(l.Attention.V.Bias.Tensor+" ", ".bias ") {
				t.Errorf("%+v", o)
			}
			// Four query heads on two key-value heads.
			dim := l.Attention.HeadDim
			for j, c := range o.Of {
				if want := j/dim/2*dim + j%dim; c != want {
					t.Fatalf("column %d has channel %d, want %d", j, c, want)
				}
			}
			if o.Channels != 2*dim || len(o.Of) != 4*dim {
				t.Errorf("%d channels of %d columns", o.Channels, len(o.Of))
			}
			for _, s := range sites {
				q, err := s.Load(src, fourBits, &quant.Stats{Cols: s.Consumers[0].Cols})
				if err != nil || len(q.Consumers) != len(s.Consumers) || len(q.Specs) != len(s.Consumers) {
					t.Fatalf("%s: %v, %v", s.Name, q, err)
				}
			}
		})
	}
}

// Sites that a form of layers does not have are left out; norms within attention and MLPs are producers of their own.
func TestSitesOfForms(t *testing.T) {
	for _, c := range []struct {
		name  string
		sites string // of a layer, by their producers
	}{
		{"starcoder2", "attention.input: input_layernorm.weight input_layernorm.bias, attention.o: self_attn.v_proj.weight self_attn.v_proj.bias, " +
			"mlp.input: post_attention_layernorm.weight post_attention_layernorm.bias"},
		{"olmo2", "attention.o: self_attn.v_proj.weight, mlp.down: mlp.up_proj.weight"},
		{"olmo", "attention.o: self_attn.v_proj.weight, mlp.down: mlp.up_proj.weight"},
		{"olmo-clip", "mlp.down: mlp.up_proj.weight"},
		{"bitnet", "attention.input: input_layernorm.weight, attention.o: self_attn.attn_sub_norm.weight, mlp.input: post_attention_layernorm.weight, " +
			"mlp.down: mlp.ffn_sub_norm.weight"},
		{"gemma3_text", "attention.input: input_layernorm.gamma, attention.o: self_attn.v_proj.weight, mlp.input: pre_feedforward_layernorm.gamma, " +
			"mlp.down: mlp.up_proj.weight"},
		{"phi3", "attention.input: input_layernorm.weight, attention.o: self_attn.qkv_proj.v.weight, mlp.input: post_attention_layernorm.weight, " +
			"mlp.down: mlp.gate_up_proj.up.weight"},
	} {
		d, _ := openCheckpoint(t, familyDir(c.name))
		var got []string
		for _, s := range Sites(d) {
			name, ok := strings.CutPrefix(s.Name, "layers.0.")
			if !ok {
				continue
			}
			name += ":"
			for _, w := range s.Producers {
				name += " " + strings.TrimPrefix(w.Tensor, "model.layers.0.")
			}
			got = append(got, name)
		}
		if got := strings.Join(got, ", "); got != c.sites {
			t.Errorf("%s: %s, want %s", c.name, got, c.sites)
		}
	}
}

// Rows of a sample are spread over the matrix and stand for all of them.
func TestLoadSamples(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	s := Sites(d)[2]
	w := s.Consumers[0] // 768 rows
	q, err := s.Load(src, fourBits, &quant.Stats{Cols: w.Cols})
	check(t, err)
	all := floats(t, src, w)
	for _, c := range []struct{ sample, row int }{{0, 0}, {1, 1}, {2, 3}, {511, 766}} {
		for j, v := range q.Consumers[0].Row(c.sample) {
			if v != all[c.row*w.Cols+j] {
				t.Fatalf("row %d of the sample is not row %d", c.sample, c.row)
			}
		}
	}
	if q.Consumers[0].Rows != 512 || q.Weights[0] != 1.5 {
		t.Errorf("%d rows that stand for %g each", q.Consumers[0].Rows, q.Weights[0])
	}
}

func TestSiteRefuses(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	s := Sites(d)[0]
	o := NewOverlay(src)
	for name, scale := range map[string][]float32{"length": {1}, "zero": make([]float32, s.Channels)} {
		if err := s.Apply(o, scale); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := s.Load(src, fourBits, nil); err == nil {
		t.Error("no statistics: accepted")
	}
	in := &quant.Stats{Cols: d.Hidden}
	bad := s
	bad.Consumers = append(bad.Consumers[:0:0], bad.Consumers...)
	bad.Consumers[0].Rows++
	if _, err := bad.Load(src, fourBits, in); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("shape: %v", err)
	}
	bad.Consumers[0].Tensor = "none"
	if _, err := bad.Load(src, fourBits, in); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("name: %v", err)
	}
	inf := make([]float32, d.Hidden)
	for i := range inf {
		inf[i] = 3e38
	}
	check(t, o.ScaleColumns(s.Consumers[0].Tensor, inf))
	check(t, o.ScaleRows(s.Consumers[0].Tensor, inf[:s.Consumers[0].Rows]))
	if _, err := s.Load(o, fourBits, in); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("overflow: %v", err)
	}
}
