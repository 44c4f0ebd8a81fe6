//go:build transformers

package transformerstest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/safetensors"
)

// TestEveryKey tries, one at a time, other values, null and the absence of every key that a config or its class has, and keys
// of other classes: each is refused, by either side, or computed alike.
func TestEveryKey(t *testing.T) {
	foreign := foreignKeys(t)
	eachFamily(t, func(t *testing.T, f family, c *checkpoint) {
		prefix, config := "", c.config
		if inner, ok := config["text_config"].(object); ok {
			prefix, config = "text_config.", inner
		}
		a := do(t, job{Defaults: config["model_type"].(string)})
		if a.Error != "" {
			t.Fatal(a.Error)
		}
		own := parse(t, a.Keys)
		maps.Copy(own, config)
		s := sweep{c: c}
		shared := func(key string) bool { return universal[key] && config["model_type"] != "llama" }
		for _, key := range sortedKeys(own) {
			if shared(key) {
				continue
			}
			s.all(t, prefix+key, own[key], config)
			within, _ := config[key].(object)
			for _, k := range sortedKeys(within) {
				s.all(t, prefix+key+"."+k, within[k], within)
			}
		}
		for _, key := range sortedKeys(foreign) {
			if _, known := own[key]; known || shared(key) {
				continue
			}
			for _, v := range foreign[key] {
				s.try(t, object{prefix + key: v})
			}
		}
		if t.Logf("%d alike, %d of them other than before; %d refused", s.alike, s.changed, s.refused); s.changed == 0 {
			t.Error("no key has changed anything")
		}
	})
}

// sweep counts what became of single keys.
type sweep struct {
	c                       *checkpoint
	alike, changed, refused int
}

// all tries the values of a key, of which the config has an object.
func (s *sweep) all(t *testing.T, key string, value any, config object) {
	if slices.Contains(untried, key[strings.LastIndexByte(key, '.')+1:]) {
		return
	}
	if _, there := config[key[strings.LastIndexByte(key, '.')+1:]]; there {
		s.try(t, object{key: removed})
	}
	for _, v := range values(value) {
		s.try(t, object{key: v})
	}
}

// try runs a change, unless it is refused at once.
func (s *sweep) try(t *testing.T, change object) {
	if s.c.refusesKeys(t, change) {
		s.refused++
		return
	}
	t.Run(text(change), func(t *testing.T) {
		r := s.c.run(t, change, 0)
		if r.refusal != nil || r.rejection != "" {
			s.refused++
			return
		}
		r.wantEqual(t)
		if s.alike++; r.changed > r.bound.worst {
			s.changed++
		}
	})
}

// refusesKeys reports whether config.json alone is refused with a change.
func (c *checkpoint) refusesKeys(t *testing.T, change object) bool {
	t.Helper()
	b, err := json.Marshal(edited(c.config, change))
	if err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.OpenDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	_, err = arch.Describe(b, src.Tensors(), arch.Options{})
	return err != nil && strings.HasPrefix(err.Error(), "config.json")
}

// untried are keys that say which class is meant, and those whose values are no numbers to compute with.
var untried = strings.Fields(`model_type architectures transformers_version id2label label2id per_layer_config text_config vision_config
	dtype torch_dtype initializer_range attention_dropout bos_token_id eos_token_id pad_token_id tie_last_hidden_states problem_type`)

// universal are keys that every family takes and no class computes with. They are tried on one.
var universal = map[string]bool{
	"_name_or_path": true, "attention_dropout": true, "chunk_size_feed_forward": true, "initializer_range": true, "is_decoder": true,
	"is_encoder_decoder": true, "num_labels": true, "output_attentions": true, "output_hidden_states": true, "pretraining_tp": true,
	"pruned_heads": true, "return_dict": true, "use_cache": true, "sep_token_id": true,
}

// formerKeys are keys that no class has any more, or that files have for other code.
var formerKeys = map[string][]any{
	"rope_theta": {300, nil}, "rope_scaling": {nil, object{"type": "linear", "factor": 4}}, "partial_rotary_factor": {0.5, 1}, "rotary_pct": {0.5, 1},
	"rope_pct": {0.5}, "rope_percent": {0.5, 0.25}, "rotary_dim": {8, 4}, "rotary_emb_base": {300}, "rope_local_base_freq": {300}, "rope_ratio": {2},
	"rope_interleaved": {true}, "rope_interleave": {false}, "head_dim": {24, 32}, "attention_head_dim": {24}, "kv_channels": {24}, "sliding_window_pattern": {2},
	"sliding_window_size": {5}, "full_attention_interval": {2}, "layer_switch": {2}, "n_embed": {32}, "n_inner": {96}, "n_layer": {2}, "n_head": {2},
	"num_experts": {3}, "num_local_experts": {3}, "n_routed_experts": {3}, "num_experts_per_tok": {1}, "moe_topk": {1}, "moe_k": {1}, "num_layers": {2},
	"block_ff_dim": {96}, "tie_embedding": {true, false}, "attn_output_gate": {false}, "full_attn_idxs": {[]int{0}}, "clip_qkv": {0.5}, "alibi": {true},
	"multi_query": {true}, "parallel_attn": {true}, "use_alibi": {true}, "scale_attn_weights": {false}, "attn_scale": {2.5}, "logit_scale": {0.5},
	"scoring_func": {"softmax", "sigmoid"}, "topk_method": {"greedy", "noaux_tc"}, "moe_layer_freq": {2, 1}, "num_nextn_predict_layers": {1},
	"use_bidirectional_attention": {true}, "is_causal": {false}, "prefix_lm": {true}, "qkv_bias": {true}, "bias": {true}, "mlp_bias": {true}, "o_bias": {true},
	"attention_bias": {true, false}, "use_bias": {true}, "residual_scale": {0.5}, "embedding_scale": {0.5}, "norm_type": {"rms_norm"},
	"layernorm_epsilon": {0.1}, "layer_norm_epsilon": {0.1}, "layer_norm_eps": {0.1}, "rms_norm_eps": {0.1}, "norm_eps": {0.1}, "norm_epsilon": {0.1},
}

// foreignKeys are the keys of all classes, and former ones, with values to try where a class does not have them.
func foreignKeys(t *testing.T) map[string][]any {
	t.Helper()
	out := maps.Clone(formerKeys)
	for _, modelType := range arch.ModelTypes() {
		a := do(t, job{Defaults: modelType})
		if a.Error != "" {
			continue
		}
		for key, v := range parse(t, a.Keys) {
			if _, have := out[key]; !have && !slices.Contains(untried, key) {
				out[key] = append([]any{v}, values(v)[1:min(len(values(v)), 3)]...)
			}
		}
	}
	return out
}

// values are other values than one, null first.
func values(v any) []any {
	switch x := v.(type) {
	case nil:
		return []any{nil, 1, 5, 0.5, true}
	case bool:
		return []any{nil, !x}
	case string:
		return []any{nil, "gelu", "silu", "other"}
	case json.Number:
		if n, err := x.Int64(); err == nil && !strings.ContainsAny(string(x), ".e") {
			list := []any{nil, n + 1, 2 * n, n / 2, 0}
			if n < 32 { // widths of 1 are all rounding
				list = append(list, 1)
			}
			return list
		}
		f, _ := x.Float64()
		return []any{nil, 1.5*f + 0.03, float("0.0"), float("1.0"), 3.5 * f}
	case []any:
		if len(x) > 1 {
			turned := slices.Clone(x)
			slices.Reverse(turned)
			return []any{nil, turned, x[1:], []any{}}
		}
	}
	return []any{nil}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
