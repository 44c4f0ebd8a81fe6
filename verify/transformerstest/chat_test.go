//go:build transformers

package transformerstest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
	"github.com/llmexport/llmexport/verify"
)

// instructions is the template of Llama 2, whose tokenizer comes without it; it leaves out the system prompt.
const instructions = "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}" +
	"{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + ' ' + " +
	"eos_token }}{% endif %}{% endfor %}"

// chatModels are tokenizers of models, by their names in the folder of LLMEXPORT_TOKENIZERS, with what puts bos before a
// prompt: both the post-processor and the template where bos is set, and neither where it is not.
var chatModels = []struct {
	name, config, template, bos string
}{
	{"qwen3", `"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]`, "", ""},
	{"llama3_2", `"model_type": "llama", "architectures": ["LlamaForCausalLM"]`, "", "<|begin_of_text|>"},
	{"gemma3", `"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": 64, "hidden_activation": "gelu_pytorch_tanh"`, "", "<bos>"},
	{"mistral_nemo", `"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": null`, "", "<s>"},
	{"llama2", `"model_type": "llama", "architectures": ["LlamaForCausalLM"]`, instructions, "<s>"},
}

// TestChats: the ids that the engine makes of a conversation by a package are those of apply_chat_template, for all
// conversations that the template of the model takes.
func TestChats(t *testing.T) {
	tokenizers := os.Getenv("LLMEXPORT_TOKENIZERS")
	if tokenizers == "" {
		tokenizers = filepath.Join("..", "..", ".venv", "tokenizer-files")
	}
	for _, m := range chatModels {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
				b, err := os.ReadFile(filepath.Join(tokenizers, m.name, "models", name))
				if os.IsNotExist(err) {
					b, err = os.ReadFile(filepath.Join(tokenizers, m.name, name))
				}
				if os.IsNotExist(err) {
					t.Skip("LLMEXPORT_TOKENIZERS names no folder with ", m.name, "/", name)
				}
				if err != nil {
					t.Fatal(err)
				}
				write(t, dir, name, b)
			}
			if m.template != "" {
				write(t, dir, "chat_template.jinja", []byte(m.template))
			}
			tok, err := source.LoadTokenizer(dir)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "config.json", fmt.Appendf(nil, `{%s, "vocab_size": %d, "hidden_size": 64, "head_dim": 64, "intermediate_size": 64,
				"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": true, "max_position_embeddings": 4096,
				"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": 1}`, m.config, tok.VocabSize()))
			seed := 1
			if a := do(t, job{Dir: dir, IDs: [][]int32{{1}}, Out: filepath.Join(dir, "logits"), Seed: &seed}); a.Error != "" {
				t.Fatal(a.Error)
			}
			pkg, err := stagetest.Export(t.Context(), t.TempDir(), dir, "quantize: {bits: 4}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			compareChats(t, dir, pkg, m.bos)
		})
	}
}

// compareChats compares the ids of all conversations.
func compareChats(t *testing.T, dir, pkg, bos string) {
	p, err := runtime.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tmpl, err := engine.Parse(p.Config.Jinja.ChatTemplate)
	if err != nil {
		t.Fatal(err)
	}
	first := p.Tokenizer.Encode(bos)
	var list []conversations.Conversation
	var chats []object
	for _, c := range conversations.All() {
		c, _ = verify.EngineOrder(c) // the engine knows no other order
		list = append(list, c)
		variables := maps.Clone(c.Context)
		if variables == nil {
			variables = object{}
		}
		chats = append(chats, object{
			"messages": c.Messages, "tools": c.Tools, "context": variables,
			"add_generation_prompt": c.AddGenerationPrompt, "continue_final_message": c.Continue,
		})
	}
	a := do(t, job{Dir: dir, Chats: chats})
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	equal, refused := 0, 0
	for i, c := range list {
		want := a.Prompts[i]
		if want.Error != "" {
			refused++
			continue
		}
		text, err := c.Render(tmpl.Renderer(t.Context(), "", p.Config.Jinja.EOS, template.Limits{}))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		got := p.Tokenizer.Encode(text)
		if !slices.Equal(got, want.IDs) {
			at := 0
			for at < min(len(got), len(want.IDs)) && got[at] == want.IDs[at] {
				at++
			}
			t.Errorf("%s: from id %d of %d on %v, want %v of %d; the text is %.300q", c.Name, at, len(got), clip(got[at:]), clip(want.IDs[at:]), len(want.IDs), text)
			continue
		}
		equal++
		if bos == "" {
			continue
		}
		if id := first[len(first)-1]; got[0] != id || slices.Contains(got[1:2], id) {
			t.Errorf("%s: the prompt begins with %v, want one %d", c.Name, got[:2], id)
		}
	}
	if equal < 5 {
		t.Errorf("only %d conversations were compared", equal)
	}
	t.Logf("the same ids of %d conversations, %d refused", equal, refused)
}

func clip(ids []int32) []int32 { return ids[:min(len(ids), 8)] }

func write(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
		t.Fatal(err)
	}
}
