package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDescribeDefaults leaves out or spells otherwise what transformers does not need.
func TestDescribeDefaults(t *testing.T) {
	type object = map[string]any
	for _, tt := range []struct {
		base    string
		changes object
	}{
		{"llama", object{"tie_word_embeddings": removed, "head_dim": nil, "hidden_act": removed, "attention_bias": removed, "mlp_bias": removed}},
		{"llama", object{"quantization_config": nil, "rope_scaling": nil, "is_decoder": true, "partial_rotary_factor": 1.0}},
		{"qwen2-untied", object{"tie_word_embeddings": removed, "use_sliding_window": removed, "sliding_window": 4096, "max_window_layers": 1}},
		{"qwen2-untied", object{"head_dim": 16, "layer_types": removed, "use_mrope": false}},
		{"qwen3-untied", object{"tie_word_embeddings": removed, "attention_bias": removed, "layer_types": nil, "torch_dtype": "bfloat16"}},
		{"llama3-rope", object{"rope_theta": 500000}},
	} {
		ck := loadCheckpoint(t, filepath.Join("testdata", tt.base))
		want, err := describe(ck.config, ck.tensors, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := describe(edit(t, ck.config, tt.changes), ck.tensors, Options{})
		if err != nil {
			t.Errorf("%s with %v: %v", tt.base, tt.changes, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %v: -want +got\n%s", tt.base, tt.changes, diff)
		}
	}
	t.Run("qwen3 head_dim", func(t *testing.T) {
		config, err := os.ReadFile("testdata/hub/Qwen3-0.6B.json")
		if err != nil {
			t.Fatal(err)
		}
		d, err := describe(edit(t, config, object{"head_dim": removed}), synthetic(t, config), Options{})
		if err != nil || d.Ropes[0].Dim != 128 {
			t.Fatalf("%v %v", d, err)
		}
	})
}

// TestDescribeSpellings rewrites a config of transformers 5 to the spelling of 4.
func TestDescribeSpellings(t *testing.T) {
	for _, tt := range supported {
		for _, typeKey := range []string{"type", "rope_type"} {
			t.Run(tt.name+" "+typeKey, func(t *testing.T) {
				ck := loadCheckpoint(t, filepath.Join("testdata", tt.name))
				var now struct {
					DType string         `json:"dtype"`
					Rope  map[string]any `json:"rope_parameters"`
				}
				if err := json.Unmarshal(ck.config, &now); err != nil {
					t.Fatal(err)
				}
				theta := now.Rope["rope_theta"]
				changes := map[string]any{"rope_parameters": removed, "dtype": removed, "layer_types": removed,
					"torch_dtype": now.DType, "rope_theta": theta, "rope_scaling": nil}
				if kind := now.Rope["rope_type"]; kind != "default" {
					scaling := map[string]any{typeKey: kind}
					for k, v := range now.Rope {
						if k != "rope_theta" && k != "rope_type" {
							scaling[k] = v
						}
					}
					changes["rope_scaling"] = scaling
				}
				before := edit(t, ck.config, changes)
				if strings.Contains(string(before), "rope_parameters") {
					t.Fatal("nothing was rewritten")
				}
				want, err := describe(ck.config, ck.tensors, Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := describe(before, ck.tensors, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
				// Both spellings of the same facts are fine too.
				changes["rope_parameters"] = now.Rope
				if _, err := describe(edit(t, ck.config, changes), ck.tensors, Options{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
