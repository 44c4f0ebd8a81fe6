package serve_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// toolTemplate writes tools, calls of them and their results, and thinks unless it is told not to.
const toolTemplate = `{%- if tools %}{{- '<|im_start|>system\n' }}
{%- for tool in tools %}{{- tool.function.name + ' ' + (tool.function.parameters | tojson) + '\n' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}{%- if message.content %}{{- message.content }}{%- endif %}
{%- if message.tool_calls %}{%- for call in message.tool_calls %}
{{- '[' + call.function.name + ' ' + (call.function.arguments | tojson) + ']' }}{%- endfor %}{%- endif %}
{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}`

// TestToolsAndThinking: requests with tools, calls, results and variables of the template are answered as their prompt is, which is
// written here by hand.
func TestToolsAndThinking(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := os.CopyFS(model, os.DirFS("../../testdata/tiny-qwen3")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "chat_template.jinja"), []byte(toolTemplate), 0o666); err != nil {
		t.Fatal(err)
	}
	pkg, err := stagetest.Export(t.Context(), dir, model, "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	s := newServerOf(t, pkg, nil)

	_, _, list := s.do("GET", "/v1/models", "")
	var models struct {
		Data []struct {
			Capabilities struct{ Chat, Tools, Thinking bool }
		}
	}
	if err := json.Unmarshal([]byte(list), &models); err != nil || len(models.Data) != 1 {
		t.Fatalf("%v: %s", err, list)
	}
	if c := models.Data[0].Capabilities; !c.Chat || !c.Tools || !c.Thinking {
		t.Errorf("capabilities %+v", c)
	}

	const (
		user   = `{"role":"user","content":"Who comes here?"}`
		tools  = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
		system = "<|im_start|>system\nweather {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}\n<|im_end|>\n"
		asked  = "<|im_start|>user\nWho comes here?<|im_end|>\n"
		answer = "<|im_start|>assistant\n"
	)
	for _, tt := range []struct{ name, request, prompt string }{
		{"plain", `"messages":[` + user + `]`, asked + answer},
		{"tools", `"messages":[` + user + `]` + tools, system + asked + answer},
		{"tools, automatic choice", `"messages":[` + user + `],"tool_choice":"auto"` + tools, system + asked + answer},
		{"no choice", `"messages":[` + user + `],"tool_choice":"none"` + tools, asked + answer},
		{
			"a call and its result", `"messages":[` + user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
				"function":{"name":"weather","arguments":"{\"city\": \"Rome\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"rain"}]` + tools,
			system + asked + "<|im_start|>assistant\n[weather {\"city\": \"Rome\"}]<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n" + answer,
		},
		{"without thinking", `"messages":[` + user + `],"chat_template_kwargs":{"enable_thinking":false}`, asked + answer + "<think>\n\n</think>\n\n"},
		{"thinking", `"messages":[` + user + `],"chat_template_kwargs":{"enable_thinking":true}`, asked + answer},
	} {
		prompt, err := json.Marshal(tt.prompt)
		if err != nil {
			t.Fatal(err)
		}
		const rest = `,"max_tokens":10,"temperature":0,"seed":1}`
		got, want := s.post("/v1/chat/completions", `{`+tt.request+rest), s.post("/v1/completions", `{"prompt":`+string(prompt)+rest)
		if got.Usage.Prompt != want.Usage.Prompt || got.Choices[0].Message.Content != *want.Choices[0].Text {
			t.Errorf("%s: %d tokens and %q, want %d and %q", tt.name, got.Usage.Prompt, got.Choices[0].Message.Content, want.Usage.Prompt, *want.Choices[0].Text)
		}
	}
}
