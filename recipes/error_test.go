package recipes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// bad holds recipes with one mistake each; testdata/bad has what is said about them.
var bad = []struct {
	name      string
	text      string
	overrides []string
}{
	{name: "alias-bomb", text: head + "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nquantize: {method: [*b, *b]}\n"},
	{name: "alias-unquoted-pattern", text: head + "quantize:\n  overrides:\n    - match: *.weight\n"},
	{name: "backend-twice", text: head + "target: {backends: [cpu, cpu]}\n"},
	{name: "backends-empty", text: head + "target: {backends: []}\n"},
	{name: "backends-word", text: head + "target: {backends: cpu}\n"},
	{name: "context-negative", text: head + "target: {context: -1}\n"},
	{name: "context-word", text: head + "target: {context: all}\n"},
	{name: "context-zero", text: head + "target:\n  context: 0\n"},
	{name: "control-character", text: head + "# \x1b[31m\n"},
	{name: "date", text: head + "fetch: 2024-01-01\n"},
	{name: "deep", text: head + "quantize: " + strings.Repeat("[", 5000) + "\n"},
	{name: "deep-dashes", text: head + "quantize:\n" + strings.Repeat("- ", 5000) + "\n"},
	{name: "deep-middle", text: head + "quantize:\n" + strings.Repeat("- ", 70) + "a\n"},
	{name: "device-memory-little", text: head + "limits: {device_memory: 1023MiB}\n"},
	{name: "duplicate-key", text: head + "quantize:\n  bits: 4\n  block: 64\n  bits: 8\n"},
	{name: "duplicate-top", text: head + "name: y\n"},
	{name: "empty"},
	{name: "empty-comments", text: "# nothing\n\n# here\n"},
	{name: "engine-unknown", text: head + "target: {engine: \"3.4\"}\n"},
	{name: "engine-unquoted", text: head + "target:\n  engine: 3.6\n"},
	{name: "infinity", text: head + "quantize: {damp: .inf}\n"},
	{name: "inside-union-type", text: head + "verify:\n  texts:\n    - path: a.txt\n      weight: heavy\n"},
	{name: "inside-union-unknown", text: head + "verify:\n  texts:\n    - path: a.txt\n      wieght: 2\n"},
	{name: "key-not-a-word", text: head + "quantize:\n  labels: {3.6: x}\n"},
	{name: "list-at-top", text: "- version: 1\n- name: x\n"},
	{name: "long-line", text: head + "quantize: {labels: {a: \"" + strings.Repeat("x", 300) + "\"}, bitz: 4, more: \"" + strings.Repeat("x", 300) + "\"}\n"},
	{name: "memory-negative", text: head + "limits:\n  memory: -1GiB\n"},
	{name: "memory-negative-number", text: head + "limits:\n  memory: -1\n"},
	{name: "memory-unit", text: head + "limits: {memory: 2G}\n"},
	{name: "memory-zero", text: head + "limits: {memory: 0}\n"},
	{name: "malformed-brace", text: head + "quantize:\n}\n"},
	{name: "malformed-key", text: head + "{? {? \n"},
	{name: "merge-key", text: head + "quantize:\n  <<: {bits: 4}\n"},
	{name: "misspelt-key", text: head + "quantize:\n  # four\n  bitz: 4\n"},
	{name: "misspelt-section", text: head + "quantise: {bits: 4}\n"},
	{name: "model-both", text: "version: 1\nname: x\nmodel:\n  repo: a/b\n  path: ../c\n"},
	{name: "model-missing", text: "version: 1\nname: x\n"},
	{name: "model-neither", text: "version: 1\nname: x\nmodel: {}\n"},
	{name: "model-path-revision", text: "version: 1\nname: x\nmodel: {path: ../c, revision: main}\n"},
	{name: "model-repo", text: "version: 1\nname: x\nmodel: {repo: \"https://huggingface.co/a/b\"}\n"},
	{name: "model-revision-number", text: "version: 1\nname: x\nmodel: {repo: a/b, revision: 1234567}\n"},
	{name: "name-missing", text: "version: 1\nmodel: {repo: a/b}\n"},
	{name: "name-path", text: "version: 1\nname: ../x\nmodel: {repo: a/b}\n"},
	{name: "not-utf8", text: head + "quantize: {labels: {a: \"caf\xe9\"}}\n"},
	{name: "null-number", text: head + "quantize:\n  bits:\n  block: 64\n"},
	{name: "number-octal", text: head + "limits: {threads: 010}\n"},
	{name: "number-overflow", text: head + "fetch: {retries: 300}\n"},
	{name: "number-quoted", text: head + "quantize: {bits: \"4\"}\n"},
	{name: "second-document", text: head + "---\nname: y\n"},
	{name: "string-at-top", text: "hello\n"},
	{name: "tab", text: head + "quantize:\n\tbits: 4\n"},
	{name: "tag", text: head + "quantize: {labels: {a: !!binary aGVsbG8=}}\n"},
	{name: "threads-negative", text: head + "limits: {threads: -1}\n"},
	{name: "too-large", text: head + strings.Repeat("# comment\n", 110_000)},
	{name: "too-many-values", text: head + "quantize: [" + strings.Repeat("1,", 40_000) + "1]\n"},
	{name: "unclosed-list", text: head + "target: {backends: [cpu, opencl}\n"},
	{name: "unclosed-quote", text: head + "quantize: {method: \"rtn}\n"},
	{name: "union", text: head + "quantize:\n  block: big\n"},
	{name: "union-list", text: head + "quantize:\n  method: [rtn, 4]\n"},
	{name: "unknown-key", text: head + "target: {device: npu}\n"},
	{name: "unknown-key-escape", text: head + "quantize: {\"\\e[31m\": 1}\n"},
	{name: "unknown-section", text: head + "prune: {}\n"},
	{name: "variant-memory", text: head + "variants:\n  - {name: y, limits: {memory: lots}}\n"},
	{name: "variant-model", text: head + "variants:\n  - {name: y, model: {repo: c/d}}\n"},
	{name: "variant-name", text: head + "variants:\n  - {quantize: {bits: 8}}\n"},
	{name: "variant-name-twice", text: head + "variants:\n  - {name: X, quantize: {bits: 8}}\n"},
	{name: "variants-many", text: head + "variants: [" + strings.Repeat("{name: y}, ", 101) + "]\n"},
	{name: "variants-mapping", text: head + "variants: {y: {}}\n"},
	{name: "version-missing", text: "name: x\nmodel: {repo: a/b}\n"},
	{name: "version-two", text: "version: 2\nmodels: []\n"},
	{name: "wrong-type", text: head + "quantize:\n  symmetric: sometimes\n"},
	{name: "wrong-type-list", text: head + "quantize:\n  overrides: {match: x}\n"},
	{name: "wrong-type-section", text: head + "verify: [a]\n"},

	{name: "set-alias", text: head, overrides: []string{"name=*x"}},
	{name: "set-index", text: head + "publish: [{dir: a}]\n", overrides: []string{"publish[5].dir=x"}},
	{name: "set-into-list", text: head + "publish: [{dir: a}]\n", overrides: []string{"publish.dir=x"}},
	{name: "set-into-scalar", text: head, overrides: []string{"name.first=x"}},
	{name: "set-no-value", text: head, overrides: []string{"quantize.bits"}},
	{name: "set-no-path", text: head, overrides: []string{"[0].x=1"}},
	{name: "set-syntax", text: head, overrides: []string{"quantize.method=[rtn"}},
	{name: "set-unknown-key", text: head, overrides: []string{"quantize.bitz=8"}},
	{name: "set-unknown-section", text: head, overrides: []string{"quantise.bits=8"}},
	{name: "set-wrong-type", text: head, overrides: []string{"target.engine=3.6"}},
}

func TestBad(t *testing.T) {
	for _, tt := range bad {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Load([]byte(tt.text), "recipes/x.yaml", sectionNames, tt.overrides...)
			if err == nil {
				_, err = decodeAll(r)
			} else if r != nil { // its sections may have more
				_, _ = decodeAll(r)
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("want an *Error, got %T: %v", err, err)
			}
			golden(t, "bad/"+tt.name+".txt", fmt.Appendf(nil, "%v\n", err))
		})
	}
}
