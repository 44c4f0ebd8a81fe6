package arch

// context returns max_position_embeddings.
func (ropeRules) context(c *Config) float64 {
	n, _ := integer(c.fields.values["max_position_embeddings"], 1, maxPositions)
	return float64(n)
}

// originalOf returns the context length of the original training, before it was extended, by default
// max_position_embeddings.
func (r ropeRules) originalOf(c, o *Config) func() float64 {
	return func() float64 {
		if r.original != 0 {
			o.Inert("original_max_position_embeddings")
			return float64(r.original)
		}
		if n, ok := o.OptInt("original_max_position_embeddings", maxPositions); ok {
			return float64(n)
		}
		return r.context(c)
	}
}

// readScaling reads the keys of a type.
func (p *ropeParams) readScaling(o *Config, context float64, original func() float64) {
	switch p.kind {
	case "linear", "ntk":
		p.factor = o.Float("factor", 1, maxFactor)
	case "llama3":
		p.factor = o.Float("factor", 1, maxFactor)
		p.low = o.Float("low_freq_factor", minFactor, maxFactor)
		p.high = o.Float("high_freq_factor", minFactor, maxFactor)
		p.original = float64(o.Int("original_max_position_embeddings", maxPositions))
		if o.Good("low_freq_factor", "high_freq_factor") && p.high < p.low {
			o.Wrong("high_freq_factor", "%g is less than low_freq_factor %g", p.high, p.low)
		}
	case "yarn":
		p.factor, p.original = o.Float("factor", 1, maxFactor), original()
		if p.fast, _ = o.OptFloat("beta_fast", 0, maxFactor); p.fast == 0 {
			p.fast = 32
		}
		if p.slow, _ = o.OptFloat("beta_slow", 0, maxFactor); p.slow == 0 {
			p.slow = 1
		}
		if p.fast < p.slow && o.Good("beta_fast", "beta_slow") {
			o.Wrong("beta_fast", "%g is less than beta_slow %g", p.fast, p.slow)
		}
		if reach := p.factor * p.original; reach < context {
			o.note("rotary frequencies are stretched (yarn) for %.0f positions, fewer than the %.0f that %s declares", reach, context, configName)
		}
		p.exact = !o.Bool("truncate", true)
		p.attention, _ = o.OptFloat("attention_factor", minFactor, maxFactor)
		p.mscale, _ = o.OptFloat("mscale", 0, maxFactor)
		p.mscaleAll, _ = o.OptFloat("mscale_all_dim", 0, maxFactor)
	case "longrope":
		p.original = original()
		p.short = p.factors(o, "short_factor")
		p.long = p.factors(o, "long_factor")
		p.attention, _ = o.OptFloat("attention_factor", minFactor, maxFactor)
		var ok bool
		if p.factor, ok = o.OptFloat("factor", 1, maxFactor); !ok {
			p.factor = context / p.original
		}
		if p.original < 2 {
			o.Wrong("original_max_position_embeddings", "%g is too short", p.original)
		}
	case "dynamic":
		p.alpha = o.Float("alpha", 1, 1e9)
		// Other keys of the checkpoints with alpha. A factor would only act beyond max_position_embeddings.
		o.Inert("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
	}
}

// readMscales reads the multipliers of cosine and sine in short and in long texts, which replace factor and
// attention_factor.
func (p *ropeParams) readMscales(o *Config) {
	short, long := o.Float("short_mscale", minFactor, maxFactor), o.Float("long_mscale", minFactor, maxFactor)
	if o.Good("short_mscale", "long_mscale") && short != long {
		o.Refuse("long_mscale", "%g is not supported, only that of short_mscale, %g", long, short)
	}
	p.attention = short
}

// factors reads a list that longrope requires.
func (*ropeParams) factors(o *Config, key string) []float64 {
	list := o.Floats(key, minFactor, maxFactor)
	if list == nil && o.Good(key) {
		o.missing(key)
	}
	return list
}
