package arch

import (
	"regexp"
	"strconv"
	"strings"
)

// fastViTHead is the number of elements of a head of FastViTHD, which is in its code.
const fastViTHead = 32

// fastVLMTower describes FastViTHD, the tower of convolutions of FastVLM, in the form in which it is published: every convolution is one
// again, without the branches that training has. config.json names the tower and the edge of a picture; how many blocks and channels
// there are is in the tensors.
func fastVLMTower(c *Config, width int) *vision {
	v := &vision{Config: c, outer: c, t: &Tower{Cell: 1, ModelType: "mobileclip_l", Patch: 64, Pad: -1, After: "\n"}, eps: 1e-5}
	t := v.t
	t.Deviation = [3]float64{1, 1, 1}
	c.Inert("freeze_mm_mlp_adapter", "image_grid_pinpoints", "mm_projector_lr", "mm_vision_select_feature", "mm_vision_select_layer",
		"tokenizer_model_max_length", "tokenizer_padding_side", "tune_mm_mlp_adapter", "unfreeze_mm_vision_tower", "use_mm_proj")
	c.Only("mm_projector_type", `"mlp2x_gelu"`)
	c.Only("mm_patch_merge_type", `"flat"`)
	c.Only("mm_use_im_start_end", "false")
	c.Only("mm_use_im_patch_token", "false")
	const key, aspect, hidden = "mm_vision_tower", "image_aspect_ratio", "mm_hidden_size"
	name := c.String(key)
	if edge, ok := strings.CutPrefix(name, "mobileclip_l_"); ok {
		t.Size, _ = strconv.Atoi(edge)
	}
	if (t.Size < t.Patch || t.Size > maxPixels || t.Size%t.Patch != 0) && c.Good(key) {
		c.unsupported(key, "%s is not supported, only \"mobileclip_l_N\" with a multiple N of %d", show(name), t.Patch)
	}
	if word, ok := c.OptString(aspect); ok {
		if t.Squared = word == "pad"; !t.Squared && word != "square" {
			c.Refuse(aspect, "%s is not supported, only %s", show(word), quoted([]string{"pad", "square"}))
		}
	}
	t.Hidden = c.Int(hidden, maxHidden)
	v.prefix, v.joiner = "model.vision_tower.vision_tower.model.", "model.mm_projector."
	f := &fastViT{vision: v}
	f.describe()
	if f.channels != t.Hidden && c.Good(hidden, key) && f.has("conv_exp.reparam_conv.weight") {
		c.Wrong(hidden, "%d, but the tower ends in %d channels", t.Hidden, f.channels)
	}
	t.In, t.Out, t.Activation = linearOf(v.joiner+"0", width, t.Hidden, true), linearOf(v.joiner+"2", width, width, true), GELU
	v.skip(`head\.proj$`)
	v.skips = append(v.skips, Skip{
		Match:  regexp.MustCompile(`^` + regexp.QuoteMeta(v.prefix) + `network\.[0-9]+\.[0-9]+\.convffn\.conv\.bn\.num_batches_tracked$`),
		Reason: "not used by the vision tower",
	})
	return v
}

// fastViT describes the stages of FastViTHD, one convolution after the other.
type fastViT struct {
	*vision
	channels int // of what was described last
}

// describe fills Stages. A block that ends early lacks tensors, which are reported as all that are missing.
func (f *fastViT) describe() {
	f.channels = 3
	stage := Stage{Enter: []Convolution{
		f.convolution("patch_embed.0.reparam_conv", 3, 2, false, GELU), f.convolution("patch_embed.1.reparam_conv", 3, 2, true, GELU),
		f.convolution("patch_embed.2.reparam_conv", 1, 1, false, GELU),
	}}
	for i := 0; ; i++ {
		at := "network." + strconv.Itoa(i) + "."
		if f.has(at + "proj.0.lkb_reparam.weight") {
			f.t.Stages = append(f.t.Stages, stage)
			stage = Stage{Enter: []Convolution{
				f.convolution(at+"proj.0.lkb_reparam", 7, 2, true, GELU), f.convolution(at+"proj.1.reparam_conv", 1, 1, false, GELU),
			}}
			continue
		}
		if f.has(at + "reparam_conv.weight") {
			stage.Enter = append(stage.Enter, f.convolution(at+"reparam_conv", 7, 1, true, ""))
			continue
		}
		if !f.has(at + "0.convffn.fc1.weight") {
			break
		}
		for k := 0; f.has(at + strconv.Itoa(k) + ".convffn.fc1.weight"); k++ {
			stage.Blocks = append(stage.Blocks, f.block(at+strconv.Itoa(k)+"."))
		}
	}
	end := f.convolution("conv_exp.reparam_conv", 3, 1, true, GELU)
	inner := max(1, f.channels/16) // as the library's code has it
	end.Reduce, end.Expand = f.dense("conv_exp.se.reduce", inner, f.channels), f.dense("conv_exp.se.expand", f.channels, inner)
	f.t.Stages = append(f.t.Stages, stage, Stage{Enter: []Convolution{end}})
}

// has reports whether the tower has a tensor.
func (f *fastViT) has(name string) bool {
	_, ok := f.Tensor(f.prefix + name)
	return ok
}

// rows is the first dimension of a tensor of a convolution; of others the shape is wrong, which is reported with that of all.
func (f *fastViT) rows(name string) int {
	info, ok := f.Tensor(f.prefix + name + ".weight")
	if !ok || len(info.Shape) != 4 || info.Shape[0] < 1 || info.Shape[0] > maxIntermediate {
		return f.channels
	}
	return int(info.Shape[0])
}

// convolution describes a convolution of the channels that there are, and counts those that it makes.
func (f *fastViT) convolution(name string, kernel, stride int, each bool, act Activation) Convolution {
	n := f.channels
	f.channels = f.rows(name)
	if each {
		f.channels = max(1, f.channels/n) * n // each channel makes as many
	}
	c := Convolution{In: n, Kernel: kernel, Stride: stride, Each: each, Activation: act}
	cols := kernel * kernel
	if !each {
		cols *= n
	}
	c.Linear = f.dense(name, f.channels, cols)
	return c
}

// dense is the matrix of a convolution's kernels, with its bias.
func (f *fastViT) dense(name string, rows, cols int) Linear {
	name = f.prefix + name
	return Linear{
		Weight: f.view(View{Name: name + "_matrix.weight", Tensor: name + ".weight", Rows: rows, Cols: cols, Flat: true}),
		Bias:   Weight{Tensor: name + ".bias", Rows: rows},
	}
}

// vector is a tensor of n elements, whatever its dimensions.
func (f *fastViT) vector(name string, n int) Weight {
	return f.view(View{Name: f.prefix + name + ".vector", Tensor: f.prefix + name, Rows: n, Flat: true})
}

// block describes a block of the channels that there are: of the early stages with a convolution, of the late ones with attention.
func (f *fastViT) block(p string) StageBlock {
	n := f.channels
	var b StageBlock
	factors := "layer_scale"
	if f.has(p + "token_mixer.qkv.weight") {
		b.Attend, factors = f.attention(p, n), "layer_scale_2"
	} else {
		mix := f.convolution(p+"token_mixer.reparam_conv", 3, 1, true, "")
		b.Mix = &mix
	}
	f.channels = n
	near := f.prefix + p + "convffn.conv."
	norm := &Batch{Gamma: near + "bn.weight", Beta: near + "bn.bias", Mean: near + "bn.running_mean", Variance: near + "bn.running_var", Eps: f.eps}
	b.Near = Convolution{In: n, Kernel: 7, Stride: 1, Each: true, Linear: Linear{
		Weight: f.view(View{Name: near + "folded.weight", Tensor: near + "conv.weight", Rows: n, Cols: 49, Flat: true, Batch: norm}),
		Bias:   f.view(View{Name: near + "folded.bias", Rows: n, Batch: norm}),
	}}
	inner := f.rows(p + "convffn.fc1")
	b.MLP = MLP{Intermediate: inner, Activation: GELU, Up: f.dense(p+"convffn.fc1", inner, n), Down: f.dense(p+"convffn.fc2", n, inner)}
	b.Factors = f.vector(p+factors, n)
	return b
}

// attention describes the layer of a block with attention.
func (f *fastViT) attention(p string, n int) Layer {
	at := f.prefix + p + "token_mixer."
	a := &Attention{Heads: max(1, n/fastViTHead), HeadDim: fastViTHead, Bidirectional: true, O: linearOf(at+"proj", n, n, true)}
	a.KVHeads = a.Heads
	if a.Heads*fastViTHead != n {
		f.outer.unsupported("mm_hidden_size", "attention of %d channels is not supported, which do not divide into heads of %d", n, fastViTHead)
	}
	for k, x := range []*Linear{&a.Q, &a.K, &a.V} {
		*x = f.third(at+"qkv", n, k, false)
	}
	return Layer{{Norm: f.norm(f.prefix+p+"norm", n), Block: a, Factors: f.vector(p+"layer_scale_1", n)}}
}
