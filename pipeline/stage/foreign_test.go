package stage

import (
	"strings"
	"testing"
)

// Names of other programs lead to what a recipe says instead.
func TestForeignMethods(t *testing.T) {
	for name, want := range map[string]string{
		"Q4_K_M": "write method: gptq and bits: 4; quantize.budget", "IQ3_XXS": "bits: 3; quantize.budget", "q8_0": "write method: gptq and bits: 8",
		"UD-Q2_K_XL": "bits: 2; quantize.budget", "TQ1_0": "bits: 2", "int4": "bits: 4", "w4a16": "bits: 4", "mxfp4": "bits: 4", "nf4": "bits: 4",
		"fp8": "bits: 8", "4bit": "bits: 4", "8-bits": "bits: 8", "BF16": "write bits: 16", "f32": "write bits: 16",
		"auto_round": "the nearest is method: gptq", "AutoRound": "the nearest is method: gptq", "awq_marlin": "[awq, gptq]", "QuaRot": "[rotation, gptq]",
		"gptw": "did you mean gptq?", "serach": "did you mean search?",
	} {
		if _, err := newMethod(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	for _, name := range []string{"", "fast", "q", "40960", "qq4"} {
		if _, err := newMethod(name); err == nil || strings.Contains(err.Error(), "; write") || strings.Contains(err.Error(), "nearest") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, own := range foreignMethods {
		if err := (&Methods{}).UnmarshalJSON([]byte(quoteWords(own))); err != nil {
			t.Errorf("%s is answered by %s: %v", name, own, err)
		}
	}
}

// quoteWords turns a flow list of YAML into JSON.
func quoteWords(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("[], ", r) })
	return `["` + strings.Join(words, `","`) + `"]`
}
