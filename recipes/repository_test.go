package recipes

import (
	"errors"
	"strings"
	"testing"
)

func TestMeantRepo(t *testing.T) {
	for s, want := range map[string][2]string{
		"https://huggingface.co/Qwen/Qwen3-0.6B":                             {"Qwen/Qwen3-0.6B", ""},
		"https://huggingface.co/Qwen/Qwen3-0.6B/":                            {"Qwen/Qwen3-0.6B", ""},
		"https://huggingface.co/Qwen/Qwen3-0.6B.git":                         {"Qwen/Qwen3-0.6B", ""},
		"https://huggingface.co/Qwen/Qwen3-0.6B/tree/main":                   {"Qwen/Qwen3-0.6B", "main"},
		"https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/model.safetensors": {"Qwen/Qwen3-0.6B", "main"},
		"HTTP://hf.co/a/b":           {"a/b", ""},
		"huggingface.co/a/b":         {"a/b", ""},
		"git@hf.co:a/b":              {"a/b", ""},
		"git@huggingface.co:a/b.git": {"a/b", ""},
		"hf:/a/b":                    {"a/b", ""},
		"hf:a/b":                     {"a/b", ""},
		"HF://a/b":                   {"a/b", ""},
		"hf://a/b@v1.0":              {"a/b", "v1.0"},
		" hf://a/b/ ":                {"a/b", ""},
		"a/b":                        {"a/b", ""},
		"a/b@refs/pr/1":              {"a/b", "refs/pr/1"},

		"": {}, "a": {}, "./a/b": {}, "/a/b": {}, "../b": {}, "a/..": {}, "a/b/c": {}, "datasets/a": {}, "a b/c": {}, "ä/b": {},
		"https://huggingface.co/datasets/a/b": {}, "https://huggingface.co/Qwen": {}, "https://example.com/a/b": {}, "oci://a/b": {},
		"s3://a/b": {}, "~/a": {}, "a\\b": {}, "a/b\nc": {},
	} {
		if repo, revision := MeantRepo(s); repo != want[0] || revision != want[1] {
			t.Errorf("%q: %q, %q", s, repo, revision)
		}
	}
}

// An error about a repository says which one is meant.
func TestMeant(t *testing.T) {
	for repo, want := range map[string]string{
		"https://hf.co/a/b":         `not "https://hf.co/a/b"; did you mean a/b?`,
		"hf://a/b@v1":               `not "hf://a/b@v1"; did you mean {repo: a/b, revision: "v1"}?`,
		"https://example.com/a/b/c": `not "https://example.com/a/b/c"`,
	} {
		_, err := Load([]byte("version: 1\nname: x\nmodel: {repo: \""+repo+"\"}\n"), "x.yaml", nil)
		var e *Error
		if !errors.As(err, &e) || !strings.HasSuffix(e.Message, want) {
			t.Errorf("%s: %v, want %q", repo, err, want)
		}
	}
}
