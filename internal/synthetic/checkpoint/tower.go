package checkpoint

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// vision holds the keys that determine the tensors of a tower of siglip_vision_model.
type vision struct {
	Hidden       int64 `json:"hidden_size"`
	Intermediate int64 `json:"intermediate_size"`
	Layers       int   `json:"num_hidden_layers"`
	Image        int64 `json:"image_size"`
	Patch        int64 `json:"patch_size"`
}

// tower adds a tower without a pooling head, and the projector of llava.
func (l *list) tower(v *vision) {
	biased := func(name string, rows, cols int64) {
		l.matrix(name, rows, cols)
		l.add(name+".bias", tensor.BF16, rows)
	}
	norm := func(name string) {
		l.add(name+".weight", tensor.BF16, v.Hidden)
		l.add(name+".bias", tensor.BF16, v.Hidden)
	}
	const at = "vision_tower."
	edge := v.Image / v.Patch
	l.add(at+"embeddings.patch_embedding.weight", tensor.BF16, v.Hidden, 3, v.Patch, v.Patch)
	l.add(at+"embeddings.patch_embedding.bias", tensor.BF16, v.Hidden)
	l.add(at+"embeddings.position_embedding.weight", tensor.BF16, edge*edge, v.Hidden)
	for i := range v.Layers {
		p := fmt.Sprintf("%sencoder.layers.%d.", at, i)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "out_proj"} {
			biased(p+"self_attn."+name, v.Hidden, v.Hidden)
		}
		biased(p+"mlp.fc1", v.Intermediate, v.Hidden)
		biased(p+"mlp.fc2", v.Hidden, v.Intermediate)
		norm(p + "layer_norm1")
		norm(p + "layer_norm2")
	}
	norm(at + "post_layernorm")
	biased("multi_modal_projector.linear_1", l.Hidden, v.Hidden)
	biased("multi_modal_projector.linear_2", l.Hidden, l.Hidden)
}
