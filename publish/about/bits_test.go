package about

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/manifest"
)

func TestBitsOf(t *testing.T) {
	tensors := []manifest.Tensor{
		{Op: "/layers.1/mlp/experts.0/up_proj/Linear", Spec: "w4-b64-asym", Size: 100},
		{Op: "/layers.1/mlp/experts.1/up_proj/Linear", Spec: "w2-b64-asym", Size: 50},
		{Op: "/layers.1/mlp/shared_expert/up_proj/Linear", Spec: "w8-b64-asym", Size: 1},
		{Op: "/layers.1/mlp/router/Linear", Spec: "f16", Size: 1},
		{Op: "/layers.0/mlp/down_proj/Linear", Spec: "w3-row-sym", Size: 1},
		{Op: "/layers.0/self_attn/gate_proj/Linear", Spec: "w4-b32-sym", Size: 1},
		{Op: "/layers.0/self_attn/q_proj/Linear", Spec: "w4-b32-sym", Size: 1},
		{Op: "/layers.0/input_layernorm", Spec: "f32", Size: 1},
		{Op: "/layers.99999999999999999999/self_attn/q_proj/Linear", Spec: "w4-b32-sym", Size: 1},
		{Op: "/layers.5000/self_attn/q_proj/Linear", Spec: "w4-b32-sym", Size: 1},
		{Op: "/lm/lm_head/Linear", Spec: "w8-b64-asym", Size: 1},
	}
	want := &BitMap{Layers: 2, Roles: []string{"q", "down", "router", "attention gate", "experts up", "shared up"}, Bits: [][]float64{
		{4, 0}, {3, 0}, {0, 16}, {4, 0}, {0, 3}, {0, 8},
	}}
	if diff := cmp.Diff(want, BitsOf(tensors)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := BitsOf(nil); got != nil {
		t.Errorf("no tensors: %+v", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 999: "999 bytes", 1234: "1.23 kB", 413_400_000: "413 MB", 12_990_000: "13.0 MB", 999_900_000_000: "1.00 TB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
