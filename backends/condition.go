package backends

import "slices"

// Condition is what a package and its settings have to have for a rule. Everything that is set must hold; nothing set always holds.
type Condition struct {
	Masks           bool `json:"masks,omitempty"`
	Sinks           bool `json:"sinks,omitempty"`
	Scaled          bool `json:"scaled,omitempty"`
	SharedCache     bool `json:"shared_cache,omitempty"`
	LinearAttention bool `json:"linear_attention,omitempty"`
	ShortConv       bool `json:"short_conv,omitempty"`
	PlainDelta      bool `json:"plain_delta,omitempty"`
	NormedDelta     bool `json:"normed_delta,omitempty"`
	RaggedDelta     bool `json:"ragged_delta,omitempty"`
	EvenDelta       bool `json:"even_delta,omitempty"`
	WideDelta       bool `json:"wide_delta,omitempty"`
	PackedRest      bool `json:"packed_rest,omitempty"`
	ExactGELU       bool `json:"exact_gelu,omitempty"`
	IntDivision     bool `json:"int_division,omitempty"`
	Experts         bool `json:"experts,omitempty"`
	RaggedChoice    bool `json:"ragged_choice,omitempty"`
	Classic         bool `json:"classic,omitempty"`
	// HeadDimMultiple holds if a head dimension is not a multiple of it, HeadDimOver if one is larger.
	HeadDimMultiple int `json:"head_dim_multiple,omitempty"`
	HeadDimOver     int `json:"head_dim_over,omitempty"`
	// NormRest holds if the rest of a row, that a norm takes in groups of four elements, falls to another work-item than the first.
	NormRest bool `json:"norm_rest,omitempty"`
	// Linear holds for the storage form of any linear layer.
	Linear *LinearCondition `json:"linear,omitempty"`
	// Needs are values of [Features].Needs.
	Needs []string `json:"needs,omitempty"`
	// Half holds if the backend stores activations in fp16 at the precision that is set.
	Half          bool     `json:"half,omitempty"`
	Precision     []string `json:"precision,omitempty"`
	Memory        []string `json:"memory,omitempty"`
	AttentionMode []int    `json:"attention_mode,omitempty"`
}

// LinearCondition is what one storage form has to have.
type LinearCondition struct {
	Bits []int `json:"bits,omitempty"`
	// Asymmetric holds for codes with zero terms.
	Asymmetric bool `json:"asymmetric,omitempty"`
	// Header holds if aMaxOrBits is not 8.
	Header bool `json:"header,omitempty"`
	// BlockMultiple holds for blocks whose length is not a multiple of it.
	BlockMultiple int `json:"block_multiple,omitempty"`
}

// holds reports whether a package with some settings meets the condition on a backend.
func (c *Condition) holds(f *Features, s Settings, p *Profile) bool {
	for _, x := range []struct{ wanted, has bool }{
		{c.Masks, f.Masks}, {c.Sinks, f.Sinks}, {c.Scaled, f.Scaled}, {c.SharedCache, f.SharedCache},
		{c.LinearAttention, f.LinearAttention}, {c.ShortConv, f.ShortConv}, {c.PlainDelta, f.PlainDelta},
		{c.NormedDelta, f.NormedDelta}, {c.RaggedDelta, f.RaggedDelta}, {c.EvenDelta, f.EvenDelta},
		{c.WideDelta, f.WideDelta}, {c.PackedRest, f.PackedRest}, {c.NormRest, slices.ContainsFunc(f.NormWidths, rest)},
		{c.ExactGELU, f.ExactGELU}, {c.IntDivision, f.IntDivision}, {c.Experts, f.Experts}, {c.RaggedChoice, f.RaggedChoice},
		{c.Classic, f.Classic}, {c.Half, p.HalfAt(s.Precision)},
		{c.HeadDimMultiple > 0, slices.ContainsFunc(f.HeadDims, func(n int) bool { return c.HeadDimMultiple > 0 && n%c.HeadDimMultiple != 0 })},
		{c.HeadDimOver > 0, slices.ContainsFunc(f.HeadDims, func(n int) bool { return n > c.HeadDimOver })},
		{c.Linear != nil, slices.ContainsFunc(f.Linears, c.Linear.holds)},
		{c.Needs != nil, slices.Contains(c.Needs, f.Needs)},
		{c.Precision != nil, slices.Contains(c.Precision, s.Precision)},
		{c.Memory != nil, slices.Contains(c.Memory, s.Memory)},
		{c.AttentionMode != nil, slices.Contains(c.AttentionMode, s.AttentionMode)},
	} {
		if x.wanted && !x.has {
			return false
		}
	}
	return true
}

// workItems is the most work-items that OpenCL gives to a row of a norm. There are as many as the largest power of two that the row has
// groups for.
const workItems = 256

// rest reports whether rows of n elements end with a group of fewer than four that is not the first work-item's.
func rest(n int) bool {
	items := 1
	for items*2 <= min(n/4, workItems) {
		items *= 2
	}
	return n%4 != 0 && n/4%items != 0
}

func (c *LinearCondition) holds(l Linear) bool {
	return c != nil && (c.Bits == nil || slices.Contains(c.Bits, l.Bits)) && (!c.Asymmetric || l.Bits != 16 && !l.Symmetric) &&
		(!c.Header || l.Header != 8) && (c.BlockMultiple == 0 || l.Block%c.BlockMultiple != 0)
}
