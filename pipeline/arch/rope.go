package arch

import (
	"reflect"
	"slices"
	"strings"
)

// defaultTheta is the default base of the rotary frequencies, unless the family has its own.
const defaultTheta = 10000

// Bounds of scaling factors of rotary tables.
const (
	maxFactor = 1e6
	minFactor = 1e-6
)

// ropeRules are a family's rules for the rotary keys.
type ropeRules struct {
	theta float64 // default of the base; 0 stands for defaultTheta
	// partial is the default of the rotated part of a head; 0 means that the family always rotates whole heads.
	// partialKey is the family's name of partial_rotary_factor outside the object of rotary keys.
	partial    float64
	partialKey string
	// innerPartial and innerTheta mean that transformers does not read partial_rotary_factor or rope_theta outside the
	// object of rotary keys: there, they must repeat the effective value.
	innerPartial, innerTheta bool
	// alpha means that the type "dynamic" with a key alpha stretches the base permanently.
	alpha bool
	// warm means that the keys of an attention temperature, llama_4_scaling_beta and original_max_position_embeddings,
	// are among the rotary ones, for every type.
	warm bool
	// proportional enables the type of this name: partial_rotary_factor is then the part of the pairs that are rotated,
	// with the frequencies of a whole rotation.
	proportional bool
	// mrope means that mrope_section is supported: for text alone its axes are equal, and the table is the plain one.
	mrope bool
	// long means that there is no type but default and longrope, also called yarn, and that original is the original
	// length, regardless of the object.
	long     bool
	original int
	// mscales means that there is no type but default and longrope, and that short_mscale and long_mscale multiply
	// cosine and sine.
	mscales bool
	// ntk enables the type of this name, and besides only default and linear: theta times factor, and all frequencies divided by
	// factor^(2/dim).
	ntk bool
	// missing, if it has a kind, is the default if the file has neither rope_parameters nor rope_scaling.
	missing ropeParams
}

// ropeParams are the parameters of a rotary table, without the dimension. Zero means "not given" or "not of this type".
type ropeParams struct {
	kind    string
	theta   float64
	partial float64 // the rotated part of a head; 0 stands for 1
	factor  float64
	// llama3: bounds of the wavelength, as fractions of the original context length, which yarn and longrope have too.
	low, high, original float64
	// yarn: rotations within the original length above which frequencies stay and below which they are divided; exact
	// means that the bounding pairs are not rounded.
	fast, slow float64
	exact      bool
	// The multiplier of cosine and sine, or its parameters.
	attention, mscale, mscaleAll float64
	short, long                  []float64 // longrope: divisors of every frequency
	alpha                        float64   // dynamic
	warmth                       float64   // llama_4_scaling_beta
	turning                      float64   // proportional: the rotated part of the pairs
	path                         string    // path of the object in the file, ending in a dot
}

// readRope reads the rotary keys of a family without special rules.
func readRope(c *Config) ropeParams { return ropeRules{}.read(c) }

// read reads both spellings: rope_parameters of transformers 5, rope_theta and rope_scaling of 4. If a file has both,
// they must agree.
func (r ropeRules) read(c *Config) ropeParams {
	key := "partial_rotary_factor"
	if r.partialKey != "" {
		key = r.partialKey
	}
	partial := 0.0
	if key != "partial_rotary_factor" || !r.innerPartial {
		partial = r.readPartial(c, c, key)
	}
	theta := 0.0
	if !r.innerTheta {
		theta, _ = c.OptFloat("rope_theta", 1, 1e15)
	}
	p := ropeParams{kind: "default"}
	now, before := c.Object("rope_parameters"), c.Object("rope_scaling")
	switch {
	case now != nil && before != nil:
		p = r.readObject(c, now)
		old := r.readObject(c, before)
		if p.theta == 0 || old.theta == 0 {
			p.theta = max(p.theta, old.theta)
			old.theta = p.theta
		}
		if p.partial == 0 || old.partial == 0 {
			p.partial = max(p.partial, old.partial)
			old.partial = p.partial
		}
		old.path = p.path
		if now.Good("rope_type", "type") && before.Good("rope_type", "type") && !reflect.DeepEqual(p, old) {
			c.Wrong("rope_scaling", "contradicts rope_parameters")
		}
	case now != nil:
		p = r.readObject(c, now)
	case before != nil:
		p = r.readObject(c, before)
	case r.missing.kind != "":
		p = r.missing
	}
	switch {
	case p.partial == 0:
		p.partial = partial
	case partial != 0 && partial != p.partial:
		c.Wrong(key, "%g contradicts the partial_rotary_factor %g of the rope parameters", partial, p.partial)
	}
	p = r.settle(c, p, theta, "rope_theta")
	if r.innerPartial {
		c.same(p.partial, "partial_rotary_factor")
	}
	if r.innerTheta {
		c.same(p.theta, "rope_theta")
	}
	return p
}

// readByType reads the parameters of families whose rotation depends on the kind of layer: full_attention and
// sliding_attention within rope_parameters; in older files global (rope_theta) and rope_scaling for full layers, and local
// for sliding ones. Other keys next to the two kinds have no effect in transformers and none here, except truncate, see
// [readKind].
func readByType(c *Config, full, sliding ropeRules, global, local string) (f, s ropeParams) {
	f, s = ropeParams{kind: "default"}, ropeParams{kind: "default"}
	theta, _ := c.OptFloat(global, 1, 1e15)
	localTheta := 0.0
	if local != "" {
		localTheta, _ = c.OptFloat(local, 1, 1e15)
	}
	now, before := c.Object("rope_parameters"), c.Object("rope_scaling")
	if now != nil {
		nf, ns := now.Object("full_attention"), now.Object("sliding_attention")
		switch {
		case nf == nil && ns == nil && len(now.fields.keys) > 0:
			c.Refuse("rope_parameters", "has neither full_attention nor sliding_attention")
			now.Inert(now.fields.keys...)
		default:
			now.Inert("rope_theta", "rope_type", "type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow",
				"attention_factor", "mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor")
			now.Only("truncate", "true")
		}
		if nf != nil {
			f = full.readKind(c, nf)
		}
		if ns != nil {
			s = sliding.readKind(c, ns)
		}
	}
	if before != nil {
		if before.Has("type") && !before.Has("rope_type") {
			before.Refuse("type", "is not supported without rope_type: transformers 4 reads it, transformers 5 does not")
		}
		old := full.readKind(c, before)
		if now != nil {
			if old.theta == 0 {
				old.theta = f.theta
			}
			old.path = f.path
			if !reflect.DeepEqual(f, old) {
				c.Wrong("rope_scaling", "contradicts rope_parameters")
			}
		}
		f = old
	}
	return full.settle(c, f, theta, global), sliding.settle(c, s, localTheta, local)
}

// readKind is readObject for the layers of one kind. transformers reads truncate next to the kinds, not within them, so
// that it is the same for both.
func (r ropeRules) readKind(c, o *Config) ropeParams {
	p := r.readObject(c, o)
	if p.exact {
		o.Refuse("truncate", "false is not supported: transformers does not read it here")
		p.exact = false
	}
	return p
}

// settle fills in the values that the object leaves open: theta is the base outside of it, under key.
func (r ropeRules) settle(c *Config, p ropeParams, theta float64, key string) ropeParams {
	switch {
	case p.theta == 0 && theta == 0:
		p.theta = defaultTheta
		if r.theta != 0 {
			p.theta = r.theta
		}
	case p.theta == 0:
		p.theta = theta
	case theta != 0 && theta != p.theta:
		c.Wrong(key, "%g contradicts the rope_theta %g of the rope parameters", theta, p.theta)
	}
	if p.partial == 0 {
		p.partial = r.partial
	}
	if p.kind == "yarn" && p.theta <= 1 {
		c.Wrong(key, "%g gives yarn no range to interpolate", p.theta)
	}
	return p
}

// readObject reads rope_parameters or rope_scaling. Keys that do not belong to the type stay unread, so that Finish
// rejects them.
func (r ropeRules) readObject(c, o *Config) ropeParams {
	p := ropeParams{kind: "default", path: strings.TrimPrefix(o.prefix, c.prefix)}
	p.theta, _ = o.OptFloat("rope_theta", 1, 1e15)
	if kind, _ := o.fields.values["rope_type"].(string); r.proportional && kind == "proportional" {
		o.Inert("rope_type")
		p.kind, p.turning, p.factor = kind, 1, 1
		if f, ok := o.OptFloat("partial_rotary_factor", 0, 1); ok {
			p.turning = f
		}
		if f, ok := o.OptFloat("factor", minFactor, maxFactor); ok {
			p.factor = f
		}
		return p
	}
	p.partial = r.readPartial(c, o, "partial_rotary_factor")
	if r.warm {
		p.warmth, p.original = o.Float("llama_4_scaling_beta", 0, 1e3), float64(o.Int("original_max_position_embeddings", maxPositions))
		o.same(r.context(c), "max_position_embeddings")
	}
	if r.mrope {
		o.Ints("mrope_section", 0, maxHeadDim)
		o.Bool("mrope_interleaved", false)
	}
	key := "rope_type"
	kind, ok := o.OptString(key)
	kind = r.canonical(kind)
	if old, okOld := o.OptString("type"); okOld {
		if ok && r.canonical(old) != kind {
			o.Wrong("type", "%s contradicts rope_type %s", show(old), show(kind))
		}
		if !ok {
			key, kind, ok = "type", r.canonical(old), true
		}
	}
	if !ok {
		return p
	}
	known := []string{"default", "linear", "llama3", "longrope", "yarn"}
	if r.long || r.mscales {
		known = []string{"default", "longrope"}
	}
	if r.ntk {
		known = []string{"default", "linear", "ntk"}
	}
	switch {
	case slices.Contains(known, kind), kind == "dynamic" && r.alpha && o.Has("alpha"):
		p.kind = kind
		p.readScaling(o, r.context(c), r.originalOf(c, o))
		if kind == "longrope" && r.mscales {
			p.readMscales(o)
		}
		return p
	case kind == "dynamic" && !r.long && !r.mscales && !r.ntk:
		// The factor stretches frequencies only in texts beyond max_position_embeddings.
		o.Float("factor", 1, maxFactor)
		c.note("rotary frequencies grow with texts beyond %.0f positions (dynamic) in the original model only", r.context(c))
		p.kind = "dynamic"
		return p
	default:
		o.Refuse(key, "%s is not supported (known: %s)", show(kind), strings.Join(known, ", "))
	}
	// The other keys are parameters of that type: one refusal is enough.
	o.Inert(o.fields.keys...)
	return p
}

// canonical returns the current name of a type.
func (r ropeRules) canonical(kind string) string {
	switch {
	case kind == "su", r.long && kind == "yarn":
		return "longrope"
	case kind == "mrope" && r.mrope:
		return "default"
	}
	return kind
}

// readPartial reads the rotated part of a head, 0 if it is not given.
func (r ropeRules) readPartial(c, o *Config, key string) float64 {
	f, ok := o.OptFloat(key, 0, 1)
	switch {
	case !ok:
		return 0
	case r.partial == 0 && f != 1:
		o.Refuse(key, "%g is not supported, only 1", f)
		return 0
	case f == 0:
		o.Refuse(key, "0 is not supported: nothing would be rotated")
		return 0
	}
	return f
}

// rotary returns the number of rotated elements of a head.
func (p ropeParams) rotary(headDim int) int {
	if p.partial == 0 {
		return headDim
	}
	return int(float64(headDim) * p.partial)
}

// rope adds the rotary table for heads of headDim elements, and returns it, or an equal one.
func (b *builder) rope(p ropeParams, headDim int) *Rope {
	for _, have := range b.tables {
		if have.headDim == headDim && reflect.DeepEqual(have.p, p) {
			return have.rope
		}
	}
	r := Rope{Type: p.kind, Scale: 1}
	if dim := p.rotary(headDim); b.ropeFits(p, dim) {
		r = p.table(dim)
	}
	out := &r
	for _, have := range b.d.Ropes {
		if have.equal(&r) {
			out = have
		}
	}
	if out == &r {
		b.d.Ropes = append(b.d.Ropes, out)
	}
	b.tables = append(b.tables, ropeTable{p, headDim, out})
	return out
}

// ropeTable is a rotary table in use.
type ropeTable struct {
	p       ropeParams
	headDim int
	rope    *Rope
}

// ropeFits checks the parameters against the dimension.
func (b *builder) ropeFits(p ropeParams, dim int) bool {
	switch {
	case dim < 2 || dim%2 != 0:
		b.unsupported(p.path+"partial_rotary_factor", "%d rotated elements of a head are not pairs", dim)
	case p.alpha != 0 && dim < 4:
		b.unsupported(p.path+"alpha", "is not defined for %d elements", dim)
	case p.kind == "longrope" && len(p.short) != dim/2:
		b.Wrong(p.path+"short_factor", "%d entries for %d pairs", len(p.short), dim/2)
	case p.kind == "longrope" && len(p.long) != dim/2:
		b.Wrong(p.path+"long_factor", "%d entries for %d pairs", len(p.long), dim/2)
	default:
		return true
	}
	return false
}
