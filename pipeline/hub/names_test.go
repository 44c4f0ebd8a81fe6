package hub

import (
	"slices"
	"testing"
)

func TestVocabularies(t *testing.T) {
	for _, c := range []struct{ files, want []string }{
		{[]string{"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "config.json"}, []string{"tokenizer.json", "config.json"}},
		{[]string{"tokenizer.model", "tekken.json", "added_tokens.json"}, []string{"tokenizer.model", "added_tokens.json"}},
		{[]string{"merges.txt", "vocab.json", "vocab.txt"}, []string{"merges.txt", "vocab.json"}},
		{[]string{"tiktoken.model"}, []string{"tiktoken.model"}},
		{[]string{"config.json"}, []string{"config.json"}},
	} {
		for _, name := range c.files {
			if !wanted(name) {
				t.Errorf("%s is not wanted", name)
			}
		}
		got := withoutDuplicates(slices.Clone(c.files), func(s string) string { return s })
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v: %v, want %v", c.files, got, c.want)
		}
	}
	for _, name := range []string{"pytorch_model.bin", "spiece.model.bin", "training_args.bin"} {
		if wanted(name) {
			t.Errorf("%s is wanted", name)
		}
	}
}
