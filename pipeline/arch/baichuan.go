package arch

// Constants that distinguish the generations and sizes, for which there is no key.
const (
	baichuan2Vocab     = 125696
	baichuan7BHidden   = 4096
	baichuan13BHidden  = 5120
	baichuanHeadSuffix = ".unit_rows"
)

// describeBaichuan describes Baichuan 1 and 2 with 7B and 13B parameters: Llama with q, k and v in one matrix. The 7B
// models, which have the key max_position_embeddings, use rotation; the 13B ones, which have model_max_length instead,
// use ALiBi. Baichuan 2 divides the rows of the head by their length. The source is the code in the repositories of the
// checkpoints (modeling_baichuan.py); the class is not in transformers.
func describeBaichuan(c *Config) (*Decoder, error) {
	length := "max_position_embeddings"
	if !c.Has(length) {
		length = "model_max_length"
	}
	b := &builder{
		Config: c,
		d: &Decoder{
			Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("vocab_size", maxVocab), MaxPositions: c.Int(length, maxPositions),
		},
		layers: c.Int("num_hidden_layers", maxLayers), eps: 1e-6, activation: SiLU,
		prefix: "model.", embedding: "model.embed_tokens", finalNorm: "model.norm", head: "lm_head",
	}
	b.code("BaichuanConfig", "BaiChuanConfig", "BaichuanModel", "BaichuanForCausalLM", "BaiChuanForCausalLM")
	if eps, ok := b.OptFloat("rms_norm_eps", 1e-30, 1); ok {
		b.eps = eps
	}
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("_from_model_config", "gradient_checkpointing", "gradient_checkpointing_enable", "model_max_length", "z_loss_weight")
	a, rotates := b.unshared("num_attention_heads"), c.Has("max_position_embeddings")
	if rotates && b.d.Hidden == baichuan13BHidden || !rotates && b.d.Hidden == baichuan7BHidden {
		b.unsupported(length, "with hidden_size %d, it is unclear whether the model uses rotation", b.d.Hidden)
	}
	var rope ropeParams
	if rotates {
		rope = readRope(c)
	} else {
		a.Slopes = alibi(a.Heads)
	}
	second := b.Has("z_loss_weight") || b.d.Vocab == baichuan2Vocab
	if second && b.d.Tied {
		b.unsupported("tie_word_embeddings", "true is not supported: the rows of the head are divided by their length")
	}
	d, err := b.finish(&a, func(_ int, p string) Layer {
		x, pack := a, p+"self_attn.W_pack"
		for i, l := range []*Linear{&x.Q, &x.K, &x.V} {
			*l = b.part(pack+[]string{".q", ".k", ".v"}[i], pack, b.d.Hidden, false, Run{Start: i * b.d.Hidden, Count: b.d.Hidden})
		}
		x.O = b.linear(p+"self_attn.o_proj", b.d.Hidden, b.d.Hidden, false)
		if rotates {
			x.Rope = b.rope(rope, a.HeadDim)
		}
		return b.preNorm(p, &x, b.mlp(p+"mlp.", b.intermediate, false))
	})
	if err != nil || !second {
		return d, err
	}
	d.Head.Weight = b.view(View{
		Name: b.head + baichuanHeadSuffix, Tensor: b.head + ".weight", Rows: d.Vocab, Cols: d.Hidden, Map: UnitRows,
	})
	return d, nil
}
