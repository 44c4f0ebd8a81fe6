package main

import "testing"

func TestAppendRole(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.0.mlp.down_proj.weight":                   "mlp.down_proj",
		"model.layers.61.mlp.experts.383.gate_proj.weight":      "mlp.experts.gate_proj",
		"model.layers.3.mlp.shared_experts.up_proj.weight":      "mlp.shared_experts.up_proj",
		"model.language_model.layers.3.self_attn.q_proj.weight": "self_attn.q_proj",
		"transformer.h.11.attn.c_attn.weight":                   "attn.c_attn",
		"model.embed_tokens.weight":                             "embed_tokens",
		"lm_head.weight":                                        "lm_head",
		"visual.merger.mlp.0.weight":                            "mlp",
		"model.layers.2.block_sparse_moe.experts.7.w1.weight":   "block_sparse_moe.experts.w1",
		"weight":   "",
		"":         "",
		"..0..1..": "",
	} {
		if got := string(appendRole(nil, name)); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestStorageText(t *testing.T) {
	for spec, want := range map[string]string{
		"w4-b64-asym": "4 bits, blocks of 64", "w3-b128-sym": "3 bits, blocks of 128, symmetric", "w8-brow-sym-s32": "8 bits, whole rows, symmetric, fp32 scales",
		"f32": "32-bit floats", "f16": "16-bit floats", undecidedSpec: "chosen by run within the budget", "new": "new",
	} {
		if got := storageText(spec); got != want {
			t.Errorf("%s is %q, want %q", spec, got, want)
		}
	}
}
