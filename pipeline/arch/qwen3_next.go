package arch

// describeQwen3Next describes Qwen3-Next: the layers of Qwen35, with mixtures as in Qwen3Moe and a gated shared
// expert. The rows of in_proj_qkvz and in_proj_ba are grouped by key heads: those of q, k, v and z, or b and a, of one
// key head follow each other.
func describeQwen3Next(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.onePlus = true
	b.mlpKeys("hidden_act", "silu")
	h := b.hybridKeys()
	b.Only("use_sliding_window", "false") // ignored by transformers, but probably not on purpose
	sparse := b.sparseLayers()
	m := b.softmaxKeys(softmaxKeys{experts: 512, topK: 10, intermediate: 512, shared: 512, normalize: true})
	b.skip(draftHead, false, `^mtp\.`)
	return b.finish(&h.attention, func(i int, p string) Layer {
		block := b.hybridBlock(h, i, p, b.groupedDelta)
		if !sparse(i) {
			return b.preNorm(p, block, b.mlp(p+"mlp.", b.intermediate, false))
		}
		return b.preNorm(p, block, b.softmaxExperts(p+"mlp.", m))
	})
}

// groupedDelta is for checkpoints whose projections are grouped by key heads.
func (b *builder) groupedDelta(d *DeltaNet, p string) {
	ratio := d.ValueHeads / d.KeyHeads
	// parts returns, for sizes of the parts of a group, the rows of each part in all groups.
	parts := func(sizes ...int) [][]Run {
		group := 0
		for _, n := range sizes {
			group += n
		}
		out := make([][]Run, len(sizes))
		for g := range d.KeyHeads {
			at := g * group
			for i, n := range sizes {
				out[i] = append(out[i], Run{Start: at, Count: n})
				at += n
			}
		}
		return out
	}
	wide, narrow := p+"in_proj_qkvz", p+"in_proj_ba"
	r := parts(d.KeyDim, d.KeyDim, ratio*d.ValueDim, ratio*d.ValueDim)
	d.QKV = b.part(wide+".qkv", wide, b.d.Hidden, false, append(append(r[0], r[1]...), r[2]...)...)
	d.Z = b.part(wide+".z", wide, b.d.Hidden, false, r[3]...)
	r = parts(ratio, ratio)
	d.B = b.part(narrow+".b", narrow, b.d.Hidden, false, r[0]...)
	d.A = b.part(narrow+".a", narrow, b.d.Hidden, false, r[1]...)
}
