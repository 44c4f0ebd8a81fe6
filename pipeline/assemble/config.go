package assemble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// indented is v as JSON of several lines, with <, > and & unescaped, because chat templates are full of them.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// modelConfig is llm_config.json: facts of the model, which a user cannot override in config.json.
type modelConfig struct {
	ModelType string `json:"model_type"`
	Hidden    int    `json:"hidden_size"`
	Caches    int    `json:"layer_nums"`
	Mask      string `json:"attention_mask"`
	Attention string `json:"attention_type"`
	Window    int    `json:"sliding_window,omitempty"`
	MRope     bool   `json:"is_mrope"`
	Positions int    `json:"max_position_embeddings"`
	Jinja     struct {
		Template string `json:"chat_template"`
		EOS      string `json:"eos"`
	} `json:"jinja"`
	Tie any `json:"tie_embeddings"` // *tableConfig, or a list of numbers
	*pictureConfig
	*soundConfig
}

// pictureConfig says how the engine reads pictures.
type pictureConfig struct {
	Visual bool       `json:"is_visual"`
	Size   int        `json:"image_size"`
	Unit   int        `json:"image_size_unit"`
	Mean   [3]float32 `json:"image_mean"`
	Norm   [3]float32 `json:"image_norm"`
	Pad    int32      `json:"image_pad"`
	Start  int32      `json:"vision_start"`
	End    int32      `json:"vision_end"`
	// Most and Whole are those of a tower that reads tiles.
	Most  int   `json:"image_max_size,omitempty"`
	Whole int32 `json:"global_image,omitempty"`
	*sliceConfig
	// Side is that of the square of learned positions, and Deep says that the text model takes rows after its first layers too.
	Side int  `json:"num_grid_per_side,omitempty"`
	Deep bool `json:"has_deepstack,omitempty"`
	// LeastPixels and MostPixels bound a picture in the library. Engines up to 3.6.1 do not read them, callers do.
	LeastPixels int `json:"image_min_pixels,omitempty"`
	MostPixels  int `json:"image_max_pixels,omitempty"`
}

// sliceConfig has the tokens around slices and around the number of a picture.
type sliceConfig struct {
	SliceStart  int32 `json:"vision_slice_start_id"`
	SliceEnd    int32 `json:"vision_slice_end_id"`
	NumberStart int32 `json:"vision_id_start_id"`
	NumberEnd   int32 `json:"vision_id_end_id"`
}

// soundConfig says how the engine reads sound.
type soundConfig struct {
	Audio bool   `json:"is_audio"`
	Type  string `json:"audio_type"`
	Pad   int32  `json:"audio_pad"`
}

// tableConfig is the place of embedding rows in the weight file.
type tableConfig struct {
	WeightOffset int64  `json:"weight_offset"`
	AlphaOffset  int64  `json:"alpha_offset"`
	AlphaSize    int64  `json:"alpha_size"`
	Bits         int    `json:"quant_bit"`
	Block        int    `json:"quant_block"`
	Alpha        string `json:"alpha_dtype"`
}

func llmConfig(p *Planned) ([]byte, error) {
	d, f, m := p.Source.Decoder, &p.Source.Facts, p.Plan.Model
	c := modelConfig{
		ModelType: d.ModelType, Hidden: max(d.Hidden, d.Lookup.Cols), Caches: m.Caches, Mask: "float", Attention: "full", Window: m.Window,
		Positions: m.Context, Tie: tie(p.Plan.Lookup(), p.Target),
	}
	if m.Window > 0 {
		c.Attention = "mix"
	}
	c.Jinja.Template, c.Jinja.EOS = f.PackagedTemplate, f.EOS
	if x := p.Source.Pictures; x != nil {
		t := p.Source.Model.Towers[0]
		size := t.Size
		c.MRope = slices.ContainsFunc(d.Ropes, func(r *arch.Rope) bool { return r.Axes != nil })
		if t.Grid {
			size = lower.GridDefault(t)
		}
		c.pictureConfig = &pictureConfig{true, size, 1, x.Mean, x.Norm, x.Pad, x.Start, x.End, x.Most, x.Whole, nil, 0, len(t.Deep) > 0, x.LeastPixels, x.MostPixels}
		switch {
		case t.Slices != nil:
			c.Unit, c.sliceConfig = t.Patch, &sliceConfig{x.Slice[0], x.Slice[1], x.Number[0], x.Number[1]}
		case t.Grid:
			c.Side = t.PositionSide()
		}
		if t.Tiles != nil {
			c.Unit = t.Size
		}
	}
	if x := p.Source.Sounds; x != nil {
		c.soundConfig = &soundConfig{true, p.Source.Model.Ear.Features, x.Pad}
	}
	return indented(c)
}

// tie returns the place of embedding rows. Engine 3.5 reads five numbers and fp32 scales only; newer ones take an object, and
// would read fp32 scales after five numbers too.
func tie(l plan.Lookup, t lower.Target) any {
	if t.Minimum < "3.6" {
		return []int64{l.WeightOffset, l.AlphaOffset, l.AlphaSize, int64(l.Bits), int64(l.Block)}
	}
	alpha := "fp32"
	if l.FP16 {
		alpha = "fp16"
	}
	return &tableConfig{l.WeightOffset, l.AlphaOffset, l.AlphaSize, l.Bits, l.Block, alpha}
}

// runConfig is config.json: how the package is run, which a user can override.
type runConfig struct {
	Graph     string `json:"llm_model"`
	Weights   string `json:"llm_weight"`
	Tokenizer string `json:"tokenizer_file"`
	Backend   string `json:"backend_type"`
	Threads   int    `json:"thread_num"`
	Precision string `json:"precision"`
	Memory    string `json:"memory"`
	// DynamicOption and Chunk are 0 where the engine's default is right.
	DynamicOption int `json:"dynamic_option,omitempty"`
	Chunk         int `json:"chunk,omitempty"`
	// AttentionMode is the engine's form of keys and values, 0 for its default.
	AttentionMode int `json:"attention_mode,omitempty"`
	// CachedMmap, if false, disables the engine's second-load path, which misreads weights of fewer than 4 bits and ends in a crash with
	// weights of 16 bits.
	CachedMmap *bool `json:"use_cached_mmap,omitempty"`
	// Reply limits the tokens of a reply if the engine's default exceeds the positions; otherwise 0.
	Reply int `json:"max_new_tokens,omitempty"`
	// Towers is how the other parts are run; nil if there are none.
	Towers *towerConfig `json:"mllm,omitempty"`
	sampler
	Own struct {
		MinimumEngine string `json:"minimum_engine"`
		// Content is the digest of the package's other files.
		Content digest.Digest `json:"content"`
		// Absolute is AbsolutePositions of the model.
		Absolute string `json:"absolute_positions,omitempty"`
		// Parts are the names of the parts other than the text model.
		Parts []string `json:"parts,omitempty"`
		// Before and After are what stands around a picture in conversations.
		Before string `json:"before_picture,omitempty"`
		After  string `json:"after_picture,omitempty"`
		// BeforeClip and AfterClip are the same of a clip; {n} is its number.
		BeforeClip string `json:"before_clip,omitempty"`
		AfterClip  string `json:"after_clip,omitempty"`
	} `json:"llmexport"`

	// measured reports whether the option was chosen because it measured better.
	measured bool
}

// towerConfig is how the engine runs towers. Without it they share the options of the text model. Halves are too narrow for the
// activations of some towers, so the precision is not low.
type towerConfig struct {
	Backend   string `json:"backend_type"`
	Threads   int    `json:"thread_num"`
	Precision string `json:"precision"`
	Memory    string `json:"memory"`
}

// sampler configures how tokens are drawn. The engine applies only the samplers that are named.
type sampler struct {
	Type              string   `json:"sampler_type"`
	Mixed             []string `json:"mixed_samplers,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	Temperature       *float64 `json:"temperature,omitempty"`
}

// engineReply is the engine's default limit of a reply (max_new_tokens). The engine does not limit conversations: releases up to
// 3.6.1 copy max_all_tokens and never compare it, later ones only warn when they pass max_position_embeddings.
const engineReply = 512

// shippedThreads is the engine's own default.
const shippedThreads = 4

// precisions are the engine's names for precisions, the lowest first.
var precisions = []string{"low", "normal", "high"}

// atLeast raises the precision, and reports whether it was lower.
func (c *runConfig) atLeast(precision string) bool {
	if slices.Index(precisions, precision) <= slices.Index(precisions, c.Precision) {
		return false
	}
	c.Precision = precision
	return true
}

// runConfig is that of a planned package, before anything is measured.
func (p *Planned) runConfig() runConfig {
	c := newRunConfig(p.Plan, p.Source.Facts.Sampling)
	c.AttentionMode = p.AttentionMode
	c.Own.MinimumEngine, c.Own.Absolute = p.Target.Minimum, p.Source.Decoder.AbsolutePositions()
	if p.Source.Pictures != nil {
		t := p.Source.Model.Towers[0]
		c.Own.Before, c.Own.After = t.Before, t.After
	}
	if p.Source.Sounds != nil {
		e := p.Source.Model.Ear
		c.Own.BeforeClip, c.Own.AfterClip = e.Before, e.After
	}
	return c
}

// newRunConfig decides the run-time options that follow from the plan.
func newRunConfig(p *plan.Plan, s source.Sampling) runConfig {
	c := runConfig{
		Graph: mnn.GraphFile(""), Weights: mnn.WeightFile(""), Tokenizer: TokenizerFile, Backend: "cpu", Threads: shippedThreads,
		Precision: precisions[0], Memory: "low", sampler: newSampler(s),
	}
	c.atLeast(p.Model.Precision)
	if n := p.Model.Context; n < engineReply && !p.Model.Pooled {
		c.Reply = n
	}
	for _, part := range p.Parts[1:] {
		c.Own.Parts = append(c.Own.Parts, part.Lowered.Name)
		if part.Lowered.Name == mnn.VisualPart || part.Lowered.Name == mnn.AudioPart {
			c.Towers = &towerConfig{c.Backend, c.Threads, "normal", c.Memory}
			unsafeAt := set(p.UnsafeTowerThreads)
			for unsafeAt[c.Towers.Threads] {
				c.Towers.Threads--
			}
		}
	}
	unsafeAt, blocks := set(p.UnsafeThreads), true
	for it := range p.Items() {
		if it.Slot.Kind != lower.LinearSlot {
			continue
		}
		if bits := it.Choice.Spec.Bits; bits < 4 || bits == 16 {
			c.CachedMmap = new(bool)
		}
		blocks = blocks && (it.Choice.Spec.Bits == 16 || it.Layout.Blocks > 1 || it.Slot.Tower)
	}
	// Both options avoid the engine's path that reads stale scales; per-block activations are also more accurate, but need
	// weights in blocks. If a prompt must not be split, only a different thread count helps; 1 is always safe.
	switch {
	case !unsafeAt[c.Threads]:
	case blocks:
		c.DynamicOption = 2
	case p.Model.Whole:
		for unsafeAt[c.Threads] {
			c.Threads--
		}
	default:
		c.Chunk = 255
	}
	return c
}

// set has the thread counts that are unsafe with any pack width.
func set(unsafe func(pack int) []int) map[int]bool {
	all := map[int]bool{}
	for _, pack := range plan.PackWidths {
		for _, t := range unsafe(pack) {
			all[t] = true
		}
	}
	return all
}

// json is config.json; content is the digest of the package's other files.
func (c runConfig) json(content digest.Digest) ([]byte, error) {
	c.Own.Content = content
	return indented(c)
}

// newSampler converts generation_config.json without inventing values: without do_sample, decoding is greedy.
func newSampler(s source.Sampling) sampler {
	if s.DoSample == nil || !*s.DoSample {
		return sampler{Type: "greedy"}
	}
	m := sampler{Type: "mixed", Temperature: s.Temperature}
	if s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1 {
		m.Mixed, m.RepetitionPenalty = append(m.Mixed, "penalty"), s.RepetitionPenalty
	}
	if s.TopK != nil && *s.TopK > 0 {
		m.Mixed, m.TopK = append(m.Mixed, "topK"), s.TopK
	}
	if s.TopP != nil && *s.TopP < 1 {
		m.Mixed, m.TopP = append(m.Mixed, "topP"), s.TopP
	}
	if m.Temperature == nil {
		one := 1.0
		m.Temperature = &one
	}
	m.Mixed = append(m.Mixed, "temperature")
	return m
}

// Conditions returns the sentences for manifest and card, as far as they follow from the plan.
func (p *Planned) Conditions() []string {
	return conditions(p, p.runConfig())
}

// conditions returns the sentences in manifest and card about this package.
func conditions(p *Planned, c runConfig) []string {
	m := p.Plan.Model
	positions := fmt.Sprintf("positions up to %d", m.Context)
	if len(p.Source.Decoder.Ropes) > 0 {
		positions += "; the rotary tables end there"
	}
	if !m.Pooled {
		positions += "; the engine does not stop there: end or shorten conversations before, because further output is undefined"
	} else {
		positions += "; the engine does not stop there: shorten texts before, because results of longer ones are undefined"
	}
	list := slices.Concat([]string{positions}, p.Source.Decoder.Notes, m.Conditions)
	if p.Source.Pictures != nil {
		list = append(list, p.Source.Pictures.Conditions...)
	}
	if c.Reply != 0 {
		list = append(list, fmt.Sprintf("max_new_tokens %d is set because the engine's default length of a reply, %d, exceeds the positions",
			c.Reply, engineReply))
	}
	if c.measured {
		list = append(list, "dynamic_option 2 is set because quantizing activations by whole rows measured worse")
	} else if c.DynamicOption == 2 {
		list = append(list, "dynamic_option 2 is set because otherwise the engine may read stale activation scales with the thread_num set here")
	}
	if c.Chunk != 0 {
		list = append(list, "chunk 255 is set because the engine may read stale activation scales in longer calls with the thread_num set here")
	}
	if c.Threads != shippedThreads {
		list = append(list, fmt.Sprintf(
			"thread_num %d is set because the engine may read stale activation scales in longer calls with %d threads",
			c.Threads, shippedThreads))
	}
	if c.Towers != nil && c.Towers.Threads != shippedThreads {
		what := "pictures"
		switch {
		case p.Source.Sounds != nil && p.Source.Pictures != nil:
			what = "pictures and clips"
		case p.Source.Sounds != nil:
			what = "clips"
		}
		list = append(list, fmt.Sprintf("thread_num %d is set in mllm because the engine may read stale activation scales of %s with %d threads",
			c.Towers.Threads, what, shippedThreads))
	}
	if m.Precision != "" && m.Precision != precisions[0] {
		list = append(list, fmt.Sprintf("precision %s is set because the model needs it", c.Precision))
	}
	if c.AttentionMode != 0 {
		kept := "keys"
		if c.AttentionMode == attentionModes[recipes.CacheInt8] {
			kept = "keys and values"
		}
		list = append(list, fmt.Sprintf("attention_mode %d keeps %s in int8 in the engine, which verification does not compute; "+
			"on the small models measured it cost less than 0.001 nats", c.AttentionMode, kept))
	}
	if c.CachedMmap != nil {
		list = append(list, "use_cached_mmap is off: engines misread weights of fewer than 4 bits from their own cache files, and crash on those of 16 bits")
	}
	if minP := p.Source.Facts.Sampling.MinP; minP != nil && *minP > 0 {
		list = append(list, "min_p of generation_config.json is left out: the engine treats it as an absolute probability, "+
			"not as one relative to the likeliest token")
	}
	return append(list, p.backendConditions()...)
}
