package arch

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestLenient describes files as transformers 5.23 takes them, with the notes for the user.
func TestLenient(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for _, tt := range []struct {
		name, base string
		changes    object
		notes      []string
	}{
		{"token ids", "llama", object{"image_token_id": 3, "vision_token_ids": []any{1, 2}},
			[]string{"keys of config.json without effect: image_token_id, vision_token_ids"}},
		{"keys that no class reads", "qwen3-tied", object{"my.key": 1, "a\x1b[31mb": 2, "_my": object{"hidden_size": 7}},
			[]string{`keys of config.json without effect: _my, "a\x1b[31mb", my.key`}},
		{"null of a key that the class lacks", "llama", object{"clip_qkv": nil, "sliding_window": nil}, nil},
		{"state of the library", "llama", object{"_sliding_window_pattern": 4},
			[]string{"keys of config.json without effect: _sliding_window_pattern"}},
		{"null that the class takes", "llama", object{"head_dim": nil, "attention_dropout": nil, "rope_scaling": nil}, nil},
		{"tensor parallel", "llama", object{"pretraining_tp": 2}, nil},
		{"windows of another class", "llama", object{"use_sliding_window": false}, nil},
		{"no positions", "llama", object{"max_position_embeddings": removed},
			[]string{"config.json has no max_position_embeddings: 2048 is the default of transformers 5.23.0"}},
		{"no architectures", "llama", object{"architectures": removed},
			[]string{"config.json names no architecture: LlamaForCausalLM is that of model_type llama"}},
		{"null architectures", "qwen2-tied", object{"architectures": nil},
			[]string{"config.json names no architecture: Qwen2ForCausalLM is that of model_type qwen2"}},
		{"dynamic", "llama", object{"rope_parameters": object{"rope_type": "dynamic", "factor": 6, "rope_theta": 500000}},
			[]string{"rotary frequencies grow with texts beyond 512 positions (dynamic) in the original model only"}},
		{"yarn too short", "llama", object{"rope_parameters": object{"rope_type": "yarn", "factor": 4, "rope_theta": 500000,
			"original_max_position_embeddings": 64}},
			[]string{"rotary frequencies are stretched (yarn) for 256 positions, fewer than the 512 that config.json declares"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", tt.base))
			want, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := describe(edit(t, ck.config, tt.changes), ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want.Notes = tt.notes
			if _, ok := tt.changes["max_position_embeddings"]; ok {
				want.MaxPositions = 2048
			}
			if tt.name == "dynamic" {
				want.Ropes[0].Type = "dynamic"
			}
			if tt.name == "yarn too short" {
				*want.Ropes[0] = *got.Ropes[0]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestNull refuses null where the class in transformers has a type without it.
func TestNull(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"hidden_act", "rms_norm_eps", "attention_bias", "use_cache", "tie_word_embeddings", "initializer_range"} {
		ck := loadCheckpoint(t, "testdata/llama")
		_, err := describe(edit(t, ck.config, map[string]any{key: nil}), ck.tensors, Options{IgnoreConfig: []string{}})
		if err == nil || !strings.Contains(err.Error(), key+": null") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestUnknownClass: what code that transformers does not have reads is not known.
func TestUnknownClass(t *testing.T) {
	t.Parallel()
	c, err := ParseConfig([]byte(`{"my_key": 1, "null_key": null, "_my_key": 3, "eod_token_id": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	c.know("baichuan", nil)
	const want = "config.json: my_key: unknown to family baichuan; null_key: unknown to family baichuan"
	if err := c.Finish(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestBare reads checkpoints that were saved from the model without its head.
func TestBare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ base, prefix, head, architecture string }{
		{"qwen3-tied", "model.", "lm_head.weight", "Qwen3Model"},
		{"llama", "model.", "lm_head.weight", "LlamaForCausalLM"},
		{"phi", "model.", "lm_head.", "PhiModel"},
		{"falcon_h1", "model.", "lm_head.weight", "FalconH1Model"},
		{"lfm2", "model.", "lm_head.weight", "Lfm2Model"},
		{"gpt_neox", "gpt_neox.", "embed_out.weight", "GPTNeoXModel"},
		{"bloom", "transformer.", "lm_head.weight", "BloomModel"},
	} {
		t.Run(tt.base, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", tt.base))
			bare := slices.Clone(ck.tensors)
			bare = slices.DeleteFunc(bare, func(i tensor.Info) bool { return strings.HasPrefix(i.Name, tt.head) })
			for i := range bare {
				bare[i].Name = strings.TrimPrefix(bare[i].Name, tt.prefix)
			}
			var fields struct {
				Tied *bool `json:"tie_word_embeddings"`
			}
			if err := json.Unmarshal(ck.config, &fields); err != nil {
				t.Fatal(err)
			}
			changes := map[string]any{"architectures": []any{tt.architecture}}
			d, err := describe(edit(t, ck.config, changes), bare, Options{})
			if fields.Tied != nil && !*fields.Tied {
				if err == nil || !strings.HasPrefix(err.Error(), "tensors: missing: "+strings.TrimSuffix(tt.head, ".")) {
					t.Fatalf("a model without head: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Claimed) != len(bare) {
				t.Errorf("%d of %d tensors", len(d.Claimed), len(bare))
			}
		})
	}
}
