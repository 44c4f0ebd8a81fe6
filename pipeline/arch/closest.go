package arch

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// partsText lists the parts of the layers of known model types, one line for every checkpoint in testdata; its test
// rewrites it with -update.
//
//go:embed parts.txt
var partsText string

// partLists are the lines of parts.txt.
var partLists = sync.OnceValue(func() (list []struct {
	modelType string
	parts     []string
}) {
	for line := range strings.Lines(partsText) {
		modelType, parts, _ := strings.Cut(strings.TrimSpace(line), ": ")
		list = append(list, struct {
			modelType string
			parts     []string
		}{modelType, strings.Split(parts, ", ")})
	}
	return list
})

// closest names the known model type whose layers have the same or nearly the same parts as those of a checkpoint of an
// unknown type, and the differences. It helps to add the family: it classifies tensors by their roles,
// regardless of names and config keys, and equal parts do not imply the same computation.
func closest(modelType string, infos []tensor.Info) string {
	found := parts(infos)
	if found == nil {
		return ""
	}
	have := slices.Sorted(maps.Keys(found))
	var best string
	var lacks, wants []string
	least, alike := 0, 0
	for _, known := range partLists() {
		without := func(part string) bool { return slices.Contains(known.parts, part) }
		l := slices.DeleteFunc(slices.Clone(have), without)
		w := slices.DeleteFunc(slices.Clone(known.parts), func(part string) bool { return found[part] != "" })
		score, a := distance(l)+distance(w), likeness(modelType, known.modelType)
		if best == "" || score < least || score == least && (a > alike || a == alike && len(known.modelType) < len(best)) {
			best, lacks, wants, least, alike = known.modelType, l, w, score, a
		}
	}
	for i, part := range lacks {
		lacks[i] = fmt.Sprintf("%s (%s)", part, found[part])
	}
	text := best + ", which lacks " + enumerate(lacks, maxListedTensors, ", ")
	if len(lacks) == 0 {
		text = best + ", which has all of its parts"
	}
	if len(wants) > 0 {
		text += ", and also has " + enumerate(wants, maxListedTensors, ", ")
	}
	return text
}

// distance weighs differing parts: biases are often an option of a family.
func distance(parts []string) (n int) {
	for _, p := range parts {
		if n += 2; strings.HasSuffix(p, " bias") {
			n--
		}
	}
	return n
}

// likeness ranks model types with the same parts: those whose names begin alike come first, then Llama, the ancestor of
// most. Among equals, the shorter name is the simpler model.
func likeness(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n < 3 {
		if n = 0; b == "llama" {
			n = 1
		}
	}
	return n
}

// towers matches tensors of other modalities.
var towers = regexp.MustCompile(visionTensors + `|` + joinerTensors + `|` + audioTensors + `|^(talker|token2wav|vpm|resampler|conformer|audio_adapter)\.|` + speechTensors)

// number matches the number of a layer or an expert in the name of a tensor.
var number = regexp.MustCompile(`(^|\.)[0-9]+(\.|$)`)

// maxRoles bounds the kinds of tensors. Models have a few dozen.
const maxRoles = 1 << 10

// parts returns the parts of the layers of a checkpoint, with the name of one tensor of each; nil if it has no layers.
func parts(infos []tensor.Info) map[string]string {
	roles, layers := map[string]bool{}, false
	found, norms := map[string]string{}, map[string]bool{}
	for _, info := range infos {
		name := number.ReplaceAllString(info.Name, "$1*$2")
		if roles[name] || len(roles) == maxRoles || drafts.MatchString(name) || towers.MatchString(info.Name) {
			continue
		}
		roles[name] = true
		_, inner, within := strings.Cut(name, "*.")
		layers = layers || within
		if !within {
			inner = name
		}
		part := partOf(inner, within)
		if within && part == "norm" {
			norms[inner] = true
		}
		if _, ok := found[part]; part != "" && !ok {
			found[part] = printable(name)
		}
	}
	if !layers {
		return nil
	}
	if name, ok := found["norm"]; ok {
		delete(found, "norm")
		found[fmt.Sprintf("norms: %d", len(norms))] = name
	}
	return found
}

// drafts matches layers for speculative decoding.
var drafts = regexp.MustCompile(`(^|\.)mtp(_layers)?\.`)

// roles are the roles of tensors in layers, by parts of their names; the first match counts.
var roles = []struct {
	name *regexp.Regexp
	part string // "" for what is no part of the text model, or none to tell families apart by
}{
	{regexp.MustCompile(`rotary|inv_freq|masked_bias|(^|\.)(attn|attention)\.bias$|vision|visual|audio|projector`), ""},
	{regexp.MustCompile(`shared_?(expert|mlp)`), "shared experts"},
	{regexp.MustCompile(`router|(moe|mlp|feed_forward|ffn)\.gate\.(\w+\.)?(weight|bias)$|correction_bias|expert_bias`), "router"},
	{regexp.MustCompile(`experts|moe\.(input|output)_linear`), "experts"},
	{regexp.MustCompile(`linear_attn|delta`), "linear attention"},
	{regexp.MustCompile(`mamba|ssm|mixer|A_log|dt_proj`), "Mamba"},
	{regexp.MustCompile(`conv`), "convolution"},
	{regexp.MustCompile(`(kv|q)_(a|b)_|kv_lora|q_lora|compress`), "latent attention"},
	{regexp.MustCompile(`sink`), "sinks"},
	{regexp.MustCompile(`(^|[._])(qk?|k|query|key)_?(layer)?(norm|ln)`), "norms of q and k"},
	{regexp.MustCompile(`sub_norm|(attn|attention)\.(inner_)?(norm|ln)`), "norms within blocks"},
	{regexp.MustCompile(`act_fn`), "learned activation"},
	{regexp.MustCompile(`layer_scalar`), "factor of the layer"},
	{regexp.MustCompile(`per_layer_(input_gate|projection)`), "vectors of the layer"},
	{regexp.MustCompile(`norm|(^|[._])ln`), "norm"},
	{regexp.MustCompile(`qkv|query_key_value|c_attn|in_proj`), "fused q-k-v"},
	{regexp.MustCompile(`(^|\.)(w?[qkv]|[qkv]_proj|query|key|value)\.`), "q-k-v"},
	{regexp.MustCompile(`(attn|attention)\w*\.(\w+\.)?(w?o|o_proj|out_proj|c_proj|dense|proj)\.|^(o|out)_proj|wo\.`), "o"},
	{regexp.MustCompile(`gate_up|gate_and_up|h_to_4h_gate`), "fused gate and up"},
	{regexp.MustCompile(`gate|w3\.`), "gate"},
	{regexp.MustCompile(`up_proj|c_fc|fc1|fc_in|h_to_4h|w1\.`), "up"},
	{regexp.MustCompile(`down_proj|c_proj|fc2|fc_out|4h_to_h|w2\.`), "down"},
}

// outside are the parts outside the layers that distinguish families.
var outside = []struct {
	name *regexp.Regexp
	part string
}{
	{regexp.MustCompile(`wpe|position_embed|embed_position`), "learned positions"},
	{regexp.MustCompile(`(word_)?embeddings?_(layer)?norm`), "norm of the embedding"},
}

// partOf returns the part that a tensor belongs to, "" for none.
func partOf(name string, within bool) string {
	table := outside
	if within {
		table = roles
	}
	for _, r := range table {
		if !r.name.MatchString(name) {
			continue
		}
		if within && strings.HasSuffix(name, ".bias") && r.part != "" {
			switch r.part {
			case "norm", "q-k-v", "fused q-k-v", "o", "gate", "fused gate and up", "up", "down":
				return strings.TrimPrefix(r.part, "fused ") + " bias"
			}
		}
		return r.part
	}
	if within {
		return "unknown " + printable(name)
	}
	return ""
}
