package assemble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
)

// object is a JSON object whose keys keep their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encode(&b, m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encode(&b, m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode leaves <, > and & as they are: chat templates are full of them.
func encode(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func indented(o object) ([]byte, error) {
	raw, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, raw, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

// llmConfig is llm_config.json: facts of the model, which a user cannot override in config.json.
func llmConfig(p *Planned) ([]byte, error) {
	d := p.Source.Decoder
	f, m := p.Source.Facts, p.Plan.Model
	o := object{
		{"model_type", d.ModelType},
		{"hidden_size", d.Hidden},
		{"layer_nums", m.Caches},
		{"attention_mask", "float"},
	}
	if m.Window > 0 {
		o = append(o, member{"attention_type", "mix"}, member{"sliding_window", m.Window})
	} else {
		o = append(o, member{"attention_type", "full"})
	}
	return indented(append(o,
		member{"is_mrope", false},
		member{"max_position_embeddings", m.Context},
		member{"jinja", object{{"chat_template", f.PackagedTemplate}, {"eos", f.EOS}}},
		member{"tie_embeddings", tie(p.Plan.Lookup(), p.Target)},
	))
}

// tie tells the engine where embedding rows are. Engine 3.5 reads five numbers and fp32 scales only; newer ones
// take an object, and would read fp32 scales after five numbers too.
func tie(l plan.Lookup, t lower.Target) any {
	if t.Minimum < "3.6" {
		return []int64{l.WeightOffset, l.AlphaOffset, l.AlphaSize, int64(l.Bits), int64(l.Block)}
	}
	dtype := "fp32"
	if l.FP16 {
		dtype = "fp16"
	}
	return object{
		{"weight_offset", l.WeightOffset},
		{"alpha_offset", l.AlphaOffset},
		{"alpha_size", l.AlphaSize},
		{"quant_bit", l.Bits},
		{"quant_block", l.Block},
		{"alpha_dtype", dtype},
	}
}

// runConfig holds the settings of config.json.
type runConfig struct {
	threads   int
	precision string
	// halfAtNormal says that a backend of the target stores halves at precision normal, so that what needs more needs high.
	halfAtNormal bool
	// dynamicOption and chunk are 0 where the engine's default is right.
	dynamicOption, chunk int
	// measured reports whether the option was chosen because it measured better.
	measured bool
	// noCachedMmap keeps the engine from its second-load path, which misreads weights of fewer than 4 bits.
	noCachedMmap bool
	sampling     source.Sampling
	// absolute is AbsolutePositions of the model.
	absolute string
	// reply bounds the tokens of a reply where the engine's own bound goes beyond the positions; otherwise 0.
	reply int
}

// engineReply is the engine's own bound of a reply (max_new_tokens). It has none for a conversation: releases up to 3.6.1 copy
// max_all_tokens and never compare it, later ones warn when they pass max_position_embeddings and go on.
const engineReply = 512

// shippedThreads is the engine's own default.
const shippedThreads = 4

// precisions are the engine's words, the lowest first.
var precisions = []string{"low", "normal", "high"}

// atLeast raises the precision, and reports whether it was lower.
func (c *runConfig) atLeast(precision string) bool {
	if precision == "normal" && c.halfAtNormal {
		precision = "high"
	}
	if slices.Index(precisions, precision) <= slices.Index(precisions, c.precision) {
		return false
	}
	c.precision = precision
	return true
}

// runConfig is that of a planned package, before anything is measured.
func (p *Planned) runConfig() runConfig {
	halfAtNormal := slices.ContainsFunc(p.Profiles, func(x *backends.Profile) bool { return x.HalfAtNormal })
	c := newRunConfig(p.Plan, p.Source.Facts.Sampling, halfAtNormal)
	c.absolute = p.Source.Decoder.AbsolutePositions()
	return c
}

// newRunConfig decides the run-time options that follow from the plan.
func newRunConfig(p *plan.Plan, s source.Sampling, halfAtNormal bool) runConfig {
	c := runConfig{threads: shippedThreads, precision: precisions[0], halfAtNormal: halfAtNormal, sampling: s}
	c.atLeast(p.Model.Precision)
	if n := p.Model.Context; n < engineReply {
		c.reply = n
	}
	unsafeAt, blocks := map[int]bool{}, true
	for _, pack := range plan.PackWidths {
		for _, t := range p.UnsafeThreads(pack) {
			unsafeAt[t] = true
		}
	}
	for i := range p.Items {
		it := &p.Items[i]
		if it.Slot.Kind != lower.LinearSlot || it.Choice.Spec.Bits == 16 {
			continue
		}
		blocks = blocks && it.Layout.Blocks > 1
		c.noCachedMmap = c.noCachedMmap || it.Choice.Spec.Bits < 4
	}
	// Both options take the engine off the path that reads stale scales; per-block activations are also the more
	// exact of the two, but only weights in blocks take that path. A prompt that must stay whole leaves other counts, of
	// which 1 is always safe.
	switch {
	case !unsafeAt[c.threads]:
	case blocks:
		c.dynamicOption = 2
	case p.Model.Whole:
		for unsafeAt[c.threads] {
			c.threads--
		}
	default:
		c.chunk = 255
	}
	return c
}

// json writes config.json. content is the digest of the package's other files.
func (c runConfig) json(t lower.Target, content manifest.Digest) ([]byte, error) {
	o := object{
		{"llm_model", GraphFile},
		{"llm_weight", WeightFile},
		{"tokenizer_file", TokenizerFile},
		{"backend_type", "cpu"},
		{"thread_num", c.threads},
		{"precision", c.precision},
		{"memory", "low"},
	}
	if c.dynamicOption != 0 {
		o = append(o, member{"dynamic_option", c.dynamicOption})
	}
	if c.chunk != 0 {
		o = append(o, member{"chunk", c.chunk})
	}
	if c.noCachedMmap {
		o = append(o, member{"use_cached_mmap", false})
	}
	if c.reply != 0 {
		o = append(o, member{"max_new_tokens", c.reply})
	}
	o = append(o, c.sampler()...)
	own := object{{"minimum_engine", t.Minimum}, {"content", content}}
	if c.absolute != "" {
		own = append(own, member{"absolute_positions", c.absolute})
	}
	return indented(append(o, member{"llmexport", own}))
}

// sampler carries generation_config.json over and invents nothing: without do_sample the model is meant to be run
// greedily. The engine applies only the samplers that are named.
func (c runConfig) sampler() object {
	s := c.sampling
	if s.DoSample == nil || !*s.DoSample {
		return object{{"sampler_type", "greedy"}}
	}
	var names []string
	var values object
	if s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1 {
		names, values = append(names, "penalty"), append(values, member{"repetition_penalty", *s.RepetitionPenalty})
	}
	if s.TopK != nil && *s.TopK > 0 {
		names, values = append(names, "topK"), append(values, member{"top_k", *s.TopK})
	}
	if s.TopP != nil && *s.TopP < 1 {
		names, values = append(names, "topP"), append(values, member{"top_p", *s.TopP})
	}
	temperature := 1.0
	if s.Temperature != nil {
		temperature = *s.Temperature
	}
	names, values = append(names, "temperature"), append(values, member{"temperature", temperature})
	return append(object{{"sampler_type", "mixed"}, {"mixed_samplers", names}}, values...)
}

// Conditions are the sentences that manifest and card will carry, as far as they follow from the plan.
func (p *Planned) Conditions() []string {
	return conditions(p, p.runConfig())
}

// conditions are the sentences that a manifest and a card carry about this package.
func conditions(p *Planned, c runConfig) []string {
	m := p.Plan.Model
	positions := fmt.Sprintf("positions up to %d", m.Context)
	if len(p.Source.Decoder.Ropes) > 0 {
		positions += "; the rotary tables end there"
	}
	positions += "; the engine does not stop there: end or shorten conversations before, what it writes beyond is undefined"
	list := slices.Concat([]string{positions}, p.Source.Decoder.Notes, m.Conditions)
	if c.reply != 0 {
		list = append(list, fmt.Sprintf("max_new_tokens %d is set because the engine's own bound of a reply, %d, goes beyond the positions", c.reply, engineReply))
	}
	if c.measured {
		list = append(list, "dynamic_option 2 is set because activations in int8 for whole rows were measured to cost more")
	} else if c.dynamicOption == 2 {
		list = append(list, "dynamic_option 2 is set because the engine may read stale activation scales at the shipped thread count otherwise")
	}
	if c.chunk != 0 {
		list = append(list, "chunk 255 is set because the engine may read stale activation scales in longer calls at the shipped thread count")
	}
	if c.threads != shippedThreads {
		list = append(list, fmt.Sprintf("thread_num %d is set because the engine may read stale activation scales in longer calls at %d threads", c.threads, shippedThreads))
	}
	if m.Precision != "" && m.Precision != precisions[0] {
		list = append(list, fmt.Sprintf("precision %s is set because the model needs it", c.precision))
	}
	if c.noCachedMmap {
		list = append(list, "use_cached_mmap is off: engines misread weights of fewer than 4 bits from their own cache files")
	}
	if c.sampling.MinP != nil && *c.sampling.MinP > 0 {
		list = append(list, "min_p of generation_config.json is left out: the engine takes it as an absolute probability, not relative to the likeliest token")
	}
	return append(list, p.backendConditions()...)
}
