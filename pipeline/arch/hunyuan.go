package arch

// hunyuan is Tencent's Hunyuan, version 1: heads of q and k are normalized after the rotation, whose base a "dynamic"
// scaling multiplies by alpha^(d/(d-2)). With experts, every MLP is a mixture of num_experts: softmax, moe_topk of them
// (one number, or one for every layer), normalized, and one more MLP for every token; all have intermediate_size.
type hunyuan struct{ experts bool }

func (f hunyuan) describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("HunYuanConfig", "HunYuanModel", "HunYuanForCausalLM", "HunYuanMoEV1ForCausalLM", "HunYuanDenseV1ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias := b.heads(0), b.Bool("attention_bias", false)
	a.NormAfter = true
	rope := ropeRules{alpha: true}.read(c)
	b.hunyuanTraining(&a)
	var experts, topK []int
	if f.experts {
		experts, topK = b.eachLayer("num_experts", maxExperts, 1), b.eachLayer("moe_topk", maxExperts, 1)
		for i := range experts {
			if experts[i] != experts[0] {
				b.Refuse("num_experts", "layers with different numbers of experts are not supported")
				break
			}
			if topK[i] > experts[i] {
				b.Wrong("moe_topk", "%d of %d experts in layer %d", topK[i], experts[i], i)
				break
			}
		}
		b.routerKeys()
	}
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.headNorms(x, p+"self_attn.query_layernorm", p+"self_attn.key_layernorm")
		if !f.experts {
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		q := p + "mlp."
		return b.preNorm(p, x, &Experts{
			Router: b.linear(q+"gate.wg", experts[i], b.d.Hidden, false), Scoring: Softmax, TopK: topK[i], Normalize: true,
			Experts: b.experts(q+"experts.", experts[i], b.intermediate, usualExperts),
			Shared:  b.mlp(q+"shared_mlp.", b.intermediate, false),
		})
	})
}

// hunyuanTraining checks the keys of published checkpoints that the class does not have.
func (b *builder) hunyuanTraining(a *Attention) {
	b.Inert("eod_token_id", "im_end_id", "im_newline_id", "im_start_id", "image_token_id", "text_start_id", "text_end_id",
		"video_start_id", "video_end_id", "class_num", "dense_list", "pool_type", "cla_share_factor", "head_dim_list", "moe_drop_tokens",
		"moe_random_routing_dropped_token", "capacity_factor", "org_vocab_size", "max_image_size", "mask_init_id", "num_media_embeds",
		"pad_id", "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views", "skip_cls_token")
	b.Only("norm_type", `"rms"`, `"hf_rms"`, `"fused"`)
	b.same(float64(a.HeadDim), "attention_head_dim")
	b.Only("use_qk_norm", "true")
	b.Only("use_rotary_pos_emb", "true")
	b.Only("mlp_bias", "false")
	b.Only("use_cla", "false")
	b.Only("add_classification_head", "false")
	b.Only("position_embedding_xdrope", "false")
	b.Only("use_mixed_mlp_moe", "true")
	b.Only("moe_layer_num_skipped", "0")
	b.Only("group_limited_greedy", "false")
	b.Only("use_mla", "false")
	b.Only("norm_topk_prob", "true")
	b.Only("routed_scaling_factor", "1.0", "1")
	b.sameInLayers(1, "num_shared_expert")
	b.sameInLayers(b.intermediate, "moe_intermediate_size")
}

// sameInLayers is same for a key with one number, or one for every layer.
func (b *builder) sameInLayers(want int, key string) {
	for i, n := range b.eachLayer(key, maxIntermediate, want) {
		if n != want {
			b.Refuse(key, "%d in layer %d is not supported, only %d", n, i, want)
			return
		}
	}
}
