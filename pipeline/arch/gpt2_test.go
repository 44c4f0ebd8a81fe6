package arch

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestShortPrefixes: first checkpoints of GPT-2 and OPT have no prefix before the decoder, and those of GPT-2 have the masks of
// their layers.
func TestShortPrefixes(t *testing.T) {
	for name, prefix := range map[string]string{"gpt2": "transformer.", "opt": "model."} {
		t.Run(name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", name))
			infos := slices.Clone(ck.tensors)
			for i := range infos {
				infos[i].Name = strings.TrimPrefix(infos[i].Name, prefix)
			}
			masks := []string{}
			if name == "gpt2" {
				masks = []string{"h.0.attn.bias", "h.1.attn.masked_bias"}
			}
			for _, mask := range masks {
				infos = append(infos, tensor.Info{Name: mask, DType: tensor.U8, Shape: tensor.Shape{1, 1, 128, 128}, Size: 128 * 128})
			}
			d, err := describe(ck.config, infos, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, mask := range masks {
				if d.Claimed[mask] != "mask buffer" {
					t.Errorf("%s is claimed as %q", mask, d.Claimed[mask])
				}
			}
		})
	}
}

// TestInputRows: the matrices of GPT-2 are columns of the checkpoint's tensors.
func TestInputRows(t *testing.T) {
	ck := loadCheckpoint(t, filepath.Join("testdata", "gpt2"))
	d, err := describe(ck.config, ck.tensors, Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := d.Layers[0][0].Block.(*Attention).V
	i := slices.IndexFunc(d.Views, func(x View) bool { return x.Name == v.Weight.Tensor })
	if got := d.Views[i]; !got.Transposed || got.Tensor != "transformer.h.0.attn.c_attn.weight" || got.Runs[0] != (Run{Start: 64, Count: 32}) {
		t.Errorf("%+v", got)
	}
}
