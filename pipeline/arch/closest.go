package arch

import (
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// closest says what the family that comes nearest to a checkpoint of an unknown model type lacks of it: the keys of
// config.json that it does not understand, and the tensors that it would not use or does not find. It is meant for whoever
// wants to add the family; that nothing is missing does not say that the model is computed the same way.
func closest(config []byte, infos []tensor.Info) string {
	var architecture string
	if c, err := ParseConfig(config); err == nil {
		if list := c.Strings("architectures"); len(list) == 1 {
			architecture = list[0]
		}
	}
	best, fewest, score, byName := "", []string(nil), 0, tensor.ByName(infos)
	for _, f := range families {
		lacks := lacking(f.modelType, f.family, config, infos, byName)
		s := 2 * len(lacks)
		if f.family.Architectures()[0] != architecture {
			s++
		}
		if lacks != nil && (best == "" || s < score) {
			best, fewest, score = f.modelType, lacks, s
		}
	}
	switch {
	case best == "":
		return ""
	case len(fewest) == 0:
		return best + ", which lacks nothing that config.json and the tensors show"
	}
	return best + ", which lacks " + enumerate(fewest, maxListedTensors, ", ")
}

// lacking lists what a family does not understand of a checkpoint; nil if it cannot say.
func lacking(modelType string, f Family, config []byte, infos []tensor.Info, byName map[string]*tensor.Info) []string {
	lacks := []string{}
	var ignore []string
	for range 2 {
		c, err := ParseConfig(config)
		if err != nil {
			return nil
		}
		c.ignore(ignore)
		c.take("model_type")
		c.take("architectures")
		c.know(modelType, byName)
		d, err := f.Describe(c)
		if err == nil {
			return append(lacks, unmatched(d, infos, byName)...)
		}
		if ignore != nil {
			// What cannot be overridden says the rest.
			return lacks
		}
		for _, p := range c.problems {
			key, _, _ := strings.Cut(p.text, ":")
			lacks = append(lacks, "key "+key)
			ignore = append(ignore, key)
		}
		if len(ignore) == 0 {
			return nil
		}
	}
	return lacks
}

// layerNumber is the number of a layer or an expert in the name of a tensor.
var layerNumber = regexp.MustCompile(`\.[0-9]+\.`)

// unmatched lists tensors that a description wants or does not use.
func unmatched(d *Decoder, infos []tensor.Info, byName map[string]*tensor.Info) []string {
	var list []string
	add := func(text string) { // what all layers lack is said once
		if text = layerNumber.ReplaceAllString(text, ".*."); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	of := make(map[string]string, len(d.Views))
	for _, v := range d.Views {
		of[v.Name] = v.Tensor
	}
	used := map[string]bool{}
	d.weights(func(w Weight) {
		name := w.Tensor
		if t, ok := of[name]; ok {
			name = t
		}
		if name != "" && byName[name] == nil && !used[name] {
			add("a tensor " + name)
		}
		used[name] = true
	})
	for _, info := range infos {
		if !used[info.Name] && !strings.HasSuffix(info.Name, rotarySuffix) && info.Name != d.HeadTensor {
			add("a place for " + printable(info.Name))
		}
	}
	return list
}
