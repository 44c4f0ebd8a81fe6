package quantized

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const configKey = "quantization_config"

// settings is the content of quantization_config.
type settings struct {
	method string
	// schemes are the possible ones of a matrix; the shapes of its tensors determine which one it has.
	schemes []scheme
	// anyScheme is set if single modules may differ from the scheme.
	anyScheme bool
	// zeroAdd is added to a stored zero point.
	zeroAdd int
	// tile is the rows and columns that share a scale of fp8.
	tile [2]int
	// excluded modules are not quantized.
	excluded     []func(module string) bool
	excludedText []string
}

// scheme is how a matrix is quantized.
type scheme struct {
	bits int
	// group is the number of columns that share a scale; -1 is the whole row.
	group int
	// symmetric is set if all zero points are 2^(bits-1).
	symmetric bool
}

// size is the number of columns of a group, groups the number of groups of a row.
func (c scheme) size(cols int) int {
	if c.group < 0 {
		return cols
	}
	return c.group
}

func (c scheme) groups(cols int) int { return (cols + c.size(cols) - 1) / c.size(cols) }

// excludes returns the rule by which a module is not quantized.
func (s *settings) excludes(module string) string {
	for i, f := range s.excluded {
		if f(module) {
			return s.excludedText[i]
		}
	}
	return ""
}

// readConfig returns nil settings if config.json has no quantization_config, and the config without it.
func readConfig(config []byte) (*settings, []byte, error) {
	if _, err := arch.ParseConfig(config); err != nil { // rejects duplicate keys, and text after the end
		return nil, nil, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(config, &top); err != nil {
		return nil, nil, fmt.Errorf("config.json: %w: %w", err, tensor.ErrCorrupt)
	}
	raw, ok := top[configKey]
	if !ok || string(raw) == "null" {
		return nil, nil, nil
	}
	delete(top, configKey)
	rest, err := json.Marshal(top)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	f := newFields("config.json: "+configKey, raw, &errs)
	s := &settings{}
	switch s.method, _ = f.text("quant_method"); s.method {
	case "gptq":
		s.readGPTQ(f)
	case "awq":
		s.readAWQ(f)
	case "compressed-tensors":
		s.readCompressed(f)
	case "fp8":
		s.readFP8(f)
	case "mxfp4":
		s.readNotConverted(f)
	default:
		if len(errs) == 0 {
			f.refuse("quant_method", "%q is not supported, only gptq, awq, compressed-tensors, fp8 and mxfp4", s.method)
		}
		return nil, nil, errs[0] // the keys of an unknown method are not checked
	}
	if err := f.finish(); err != nil {
		return nil, nil, err
	}
	return s, rest, nil
}

// producers lists keys with which programs that write GPTQ and AWQ describe how codes were chosen and how to run them.
var producers = []string{
	"act_group_aware", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs", "damp_auto_increment", "damp_percent",
	"dataset", "desc_act", "disable_exllama", "do_fuse", "exllama_config", "failsafe", "fallback", "foem", "fuse_max_seq_len", "gptaq",
	"hessian", "lm_head", "max_input_length", "meta", "model_file_base_name", "model_name_or_path", "model_seqlen",
	"module_name_preceding_first_block", "modules_in_block_to_quantize", "modules_to_fuse", "mse", "pack_impl", "pad_token_id",
	"static_groups", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
}

// common reads the keys that GPTQ and AWQ share.
func (s *settings) common(f *fields, bits ...int) *scheme {
	f.inert(producers...)
	f.absent("adapter", "rotation", "is_marlin_format")
	c := scheme{}
	c.bits = f.bits("bits", bits...)
	c.group = f.group("group_size")
	if t, ok := f.text("pack_dtype"); ok && t != "int32" {
		f.refuse("pack_dtype", "%q is not supported, only int32", t)
	}
	if m, ok := f.text("method"); ok && m != s.method {
		f.refuse("method", "%q is not %s", m, s.method)
	}
	s.schemes = []scheme{c}
	return &s.schemes[0]
}

func (s *settings) readGPTQ(f *fields) {
	c := s.common(f, gptqBits...)
	c.symmetric, _ = f.flag("sym")
	s.zeroAdd = 1
	for _, key := range []string{"checkpoint_format", "format"} {
		switch v, ok := f.text(key); {
		case !ok || v == "gptq":
		case v == "gptq_v2":
			s.zeroAdd = 0
		default:
			f.refuse(key, "%q is not supported, only gptq and gptq_v2", v)
		}
	}
	if a, ok := f.text("checkpoint_format"); ok {
		if b, ok := f.text("format"); ok && a != b {
			f.wrong("format", "%q contradicts checkpoint_format %q", b, a)
		}
	}
	// Rules for single modules change bits and groups, which the shapes show, and symmetry, which the zero points show.
	f.used["dynamic"] = true
	if v := string(f.raw["dynamic"]); v != "" && v != "null" && v != "{}" && v != "false" {
		s.anyScheme = true
	}
	f.absent("modules_to_not_convert")
}

func (s *settings) readAWQ(f *fields) {
	c := s.common(f, 4)
	zeros, ok := f.flag("zero_point")
	c.symmetric = ok && !zeros
	if sym, ok := f.flag("sym"); ok && sym != c.symmetric {
		f.wrong("sym", "%t contradicts zero_point", sym)
	}
	for _, key := range []string{"version", "format", "checkpoint_format"} {
		if v, ok := f.text(key); ok && strings.ToLower(v) != "gemm" {
			f.refuse(key, "%q is not supported, only gemm", v)
		}
	}
	f.absent("dynamic")
	s.readNotConverted(f)
}

// readNotConverted reads the names, or parts of names, of modules that are not quantized.
func (s *settings) readNotConverted(f *fields) {
	for _, name := range f.list("modules_to_not_convert") {
		first, last, within := name+".", "."+name, "."+name+"."
		s.exclude("modules_to_not_convert "+quote(name), func(m string) bool {
			return m == name || strings.HasPrefix(m, first) || strings.HasSuffix(m, last) || strings.Contains(m, within)
		})
	}
}

func (s *settings) readFP8(f *fields) {
	// Activations are not quantized here; the scales are already rounded.
	f.inert("act_per_tensor", "activation_scheme", "scale_fmt")
	// The second is PyTorch's name of the same format; MiniMax-M2 uses it.
	if v, ok := f.text("fmt"); ok && v != "e4m3" && v != "float8_e4m3fn" {
		f.refuse("fmt", "%q is not supported, only e4m3", v)
	}
	if whole, _ := f.flag("weight_per_tensor"); whole {
		f.refuse("weight_per_tensor", "true is not supported")
	}
	var tile []int
	if !f.take("weight_block_size", &tile, "a list of two numbers") {
		f.refuse("weight_block_size", "missing: one scale for a whole matrix is not supported")
	} else if len(tile) != 2 || tile[0] < 1 || tile[1] < 1 {
		f.wrong("weight_block_size", "%v is not two positive numbers", tile)
	} else {
		s.tile = [2]int(tile)
	}
	s.readNotConverted(f)
}

func (s *settings) readCompressed(f *fields) {
	f.inert("global_compression_ratio", "version")
	f.absent("kv_cache_scheme", "moe_sparsity_config", "transform_config")
	f.packed("format", true)
	if v, ok := f.text("quantization_status"); ok && v != "compressed" {
		f.refuse("quantization_status", "%q is not supported, only compressed", v)
	}
	if sparse := f.object("sparsity_config"); sparse != nil {
		if v, ok := sparse.text("format"); ok && v != "dense" {
			sparse.refuse("format", "%q is not supported, only dense", v)
		}
		sparse.inert("global_sparsity", "ignore", "registry_requires_subclass", "sparsity_structure", "targets")
	}
	groups := f.object("config_groups")
	if groups == nil || len(groups.raw) == 0 {
		f.wrong("config_groups", "missing or empty")
		return
	}
	for _, name := range groups.keys() {
		if g := groups.object(name); g != nil {
			g.inert("targets") // the shapes of modules show which have the scheme
			g.absent("input_activations", "output_activations")
			g.packed("format", false)
			if w := g.object("weights"); w != nil {
				s.schemes = append(s.schemes, w.compressedScheme())
			} else {
				g.wrong("weights", "missing")
			}
		}
	}
	for _, name := range f.list("ignore") {
		pattern, isPattern := strings.CutPrefix(name, "re:")
		if !isPattern {
			s.exclude("ignore "+quote(name), func(m string) bool { return m == name })
			continue
		}
		re, err := regexp.Compile("^(?:" + pattern + ")")
		if err != nil {
			f.refuse("ignore", "pattern %s: %v", quote(pattern), err)
			continue
		}
		s.exclude("ignore "+quote(name), re.MatchString)
	}
}

// compressedScheme reads the weights of a group of compressed-tensors.
func (f *fields) compressedScheme() scheme {
	f.inert("actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "is_mse")
	f.absent("block_structure", "dynamic")
	if t, ok := f.text("type"); ok && t != "int" {
		f.refuse("type", "%q is not supported, only int", t)
	}
	c := scheme{bits: f.bits("num_bits", 2, 3, 4, 5, 6, 8), group: -1, symmetric: true}
	if v, ok := f.flag("symmetric"); ok {
		c.symmetric = v
	}
	switch v, _ := f.text("strategy"); v {
	case "group":
		c.group = f.group("group_size")
	case "channel":
		f.inert("group_size")
	default:
		f.refuse("strategy", "%q is not supported, only group and channel", v)
	}
	return c
}

// bits reads the width of a code.
func (f *fields) bits(key string, allowed ...int) int {
	v, ok := f.number(key)
	switch {
	case !ok:
		f.wrong(key, "missing")
	case !slices.Contains(allowed, v):
		f.refuse(key, "%d is not supported, only %v", v, allowed)
	}
	return v
}

// group reads a group size.
func (f *fields) group(key string) int {
	v, ok := f.number(key)
	switch {
	case !ok:
		f.wrong(key, "missing")
	case v == 0 || v < -1:
		f.wrong(key, "%d is neither a positive number nor -1 for a whole row", v)
	}
	return v
}

// packed reads the format of compressed-tensors.
func (f *fields) packed(key string, must bool) {
	if v, ok := f.text(key); v != "pack-quantized" && (ok || must) {
		f.refuse(key, "%q is not supported, only pack-quantized", v)
	}
}

func (s *settings) exclude(text string, f func(string) bool) {
	s.excluded, s.excludedText = append(s.excluded, f), append(s.excludedText, text)
}

func quote(name string) string { return fmt.Sprintf("%.100q", name) }
