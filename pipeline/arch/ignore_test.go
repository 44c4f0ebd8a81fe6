package arch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestDescribeIgnore(t *testing.T) {
	type object = map[string]any
	proportional := object{"type": "proportional", "factor": 4}
	for _, tt := range []struct {
		name    string
		changes object
		ignore  []string
	}{
		{"unknown key", object{"clip_qkv": 8}, []string{"clip_qkv"}},
		{"key with a dot", object{"rope_parameters": object{"rope_theta": 1e6, "my.key": 8}}, []string{"rope_parameters.my.key"}},
		{"two keys, one twice", object{"alibi": true, "quantization_config": object{}}, []string{"quantization_config", "alibi", "alibi"}},
		{"layer types", object{"layer_types": []any{"x", "y", "z"}}, []string{"layer_types"}},
		{"activation", object{"hidden_act": "gelu"}, []string{"hidden_act"}},
		{"rope type", object{"rope_parameters": removed, "rope_theta": 1e6, "rope_scaling": proportional}, []string{"rope_scaling.type"}},
		{"rope object", object{"rope_parameters": removed, "rope_theta": 1e6, "rope_scaling": proportional}, []string{"rope_scaling"}},
		{"rope key", object{"rope_parameters": object{"rope_theta": 1e6, "x": 1, "y": 2}}, []string{"rope_parameters.x", "rope_parameters.y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ck := loadCheckpoint(t, "testdata/qwen2-tied")
			want, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(tt.ignore)
			want.Ignored = slices.Compact(slices.Clone(tt.ignore))
			config := edit(t, ck.config, tt.changes)
			if _, err := describe(config, ck.tensors, Options{}); !errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("without the option: %v", err)
			}
			got, err := describe(config, ck.tensors, Options{IgnoreConfig: tt.ignore})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}

	ck := loadCheckpoint(t, "testdata/qwen2-tied")
	for _, tt := range []struct {
		name   string
		ignore string
		want   string
	}{
		{"absent", "clip_qkv", `clip_qkv: cannot be ignored: no such key`},
		{"empty", "", `"": cannot be ignored: no such key`},
		{"absent in the object", "rope_parameters.x", `rope_parameters.x: cannot be ignored: no such key`},
		{"inert", "use_cache", `use_cache: cannot be ignored: the value is accepted`},
		{"consumed", "hidden_size", `hidden_size: cannot be ignored: the value is accepted`},
		{"object", "rope_parameters", `rope_parameters: cannot be ignored: the value is accepted`},
		{"in the object", "rope_parameters.rope_theta", `rope_parameters.rope_theta: cannot be ignored: the value is accepted`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantError(t, ck.config, ck.tensors, Options{IgnoreConfig: []string{tt.ignore}}, nil, "config.json: "+tt.want)
		})
	}
	t.Run("wrong values stay", func(t *testing.T) {
		config := edit(t, ck.config, object{"hidden_size": 0, "architectures": []any{"X"}})
		wantError(t, config, ck.tensors, Options{IgnoreConfig: []string{"architectures", "hidden_size"}}, tensor.ErrCorrupt,
			`config.json: architectures: "X" is not supported for model_type qwen2 (known: Qwen2ForCausalLM); `+
				`hidden_size: 0 is not a positive number; architectures: cannot be ignored; `+
				`hidden_size: cannot be ignored`)
	})
	t.Run("many unknown keys", func(t *testing.T) {
		keys := object{}
		for i := range 150 {
			keys[fmt.Sprintf("zz%03d", i)] = i
		}
		_, err := describe(edit(t, ck.config, object{"rope_parameters": keys}), ck.tensors, Options{})
		if err == nil || !strings.HasSuffix(err.Error(), "rope_parameters.zz099: unknown key; and 50 more") {
			t.Errorf("%v", err)
		}
	})
}
