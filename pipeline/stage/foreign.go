package stage

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// foreignMethods are names that other programs give to ways of quantizing, without punctuation and in lower case, and the methods
// of a recipe that are nearest.
var foreignMethods = map[string]string{
	"autoround": "gptq", "autogptq": "gptq", "gptqmodel": "gptq", "gptqmarlin": "gptq", "marlin": "gptq", "exl2": "gptq", "exl3": "gptq",
	"exllama": "gptq", "exllamav2": "gptq", "quip": "gptq", "aqlm": "gptq", "spqr": "gptq", "imatrix": "gptq",
	"autoawq": "[awq, gptq]", "awqmarlin": "[awq, gptq]", "smoothquant": "omniquant", "bitsandbytes": "search", "bnb": "search",
	"quarot": "[rotation, gptq]", "spinquant": "[rotation, gptq]", "hadamard": "[rotation, gptq]", "roundtonearest": "rtn", "mse": "search",
	"none": "rtn", "gguf": "gptq", "mlx": "rtn",
}

// foreignWidth matches the widths of other programs: Q4_K_M, IQ3_XXS, q8_0, int4, w4a16, nf4, mxfp4, fp8, 4bit, f16.
var foreignWidth = regexp.MustCompile(`(?i)^(?:(?:ud-)?i?q|tq|u?int|w|nf|(?:mx|nv)?fp|b?f)-?([1-9][0-9]?)(?:[_a-z-].*|[0-9]*)$|^([1-9][0-9]?)[-_ ]?bits?$`)

var punctuation = strings.NewReplacer("_", "", "-", "", " ", "", "+", "", "#", "")

// widths are the bits that a recipe may name, ascending.
var widths = []int{2, 3, 4, 5, 6, 8, 16}

// foreign returns what to write instead of the name that another program gives to a method; empty if the name is unknown.
func foreign(name string) string {
	if m := foreignWidth.FindStringSubmatch(name); m != nil {
		bits, _ := strconv.Atoi(m[1] + m[2])
		i, exact := slices.BinarySearch(widths, bits)
		bits = widths[min(i, len(widths)-1)]
		text := fmt.Sprintf("write method: gptq and bits: %d", bits)
		if bits == 16 {
			text = "write bits: 16"
		}
		if exact && strings.ContainsAny(name, "kK") || strings.HasPrefix(strings.ToLower(name), "iq") {
			text += "; quantize.budget mixes widths as the K types of llama.cpp do"
		}
		return text
	}
	if own := foreignMethods[punctuation.Replace(strings.ToLower(name))]; own != "" {
		return fmt.Sprintf("the nearest is method: %s", own)
	}
	return ""
}

// newMethod returns the method called name. The error for an unknown name suggests what is meant.
func newMethod(name string) (quant.Method, error) {
	m, err := quant.NewMethod(name)
	if err == nil {
		return m, nil
	}
	if near := recipes.Nearest(name, quant.Methods()); near != "" {
		return nil, fmt.Errorf("%w; did you mean %s?", err, near)
	}
	if own := foreign(name); own != "" {
		return nil, fmt.Errorf("%w; %s", err, own)
	}
	return nil, err
}
