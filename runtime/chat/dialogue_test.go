package chat_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// scratch holds the packages that the tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "chat"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// trained makes, once, a package of the trained checkpoint, which has a chat template.
var trained = sync.OnceValues(func() (string, error) {
	return stagetest.Export(context.Background(), scratch, "../../testdata/tiny-qwen3", "quantize: {block: 32}\nverify: {enabled: false}")
})

func open(t *testing.T) (*runtime.Package, *runtime.Session) {
	t.Helper()
	dir, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	return openDir(t, dir)
}

func openDir(t *testing.T, dir string) (*runtime.Package, *runtime.Session) {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

func dialogue(t *testing.T, context int) *chat.Dialogue {
	t.Helper()
	p, s := open(t)
	tmpl, err := chat.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	return chat.New(p, tmpl, s, context)
}

func ask(t *testing.T, d *chat.Dialogue, message string, most int) (string, chat.Stats) {
	t.Helper()
	var b strings.Builder
	stats, err := d.Ask(t.Context(), message, runtime.GenerateOptions{MaxTokens: most}, func(text string) error {
		_, err := b.WriteString(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), stats
}

// TestDialogue: later answers are those of a dialogue that starts with the same turns, and compute only what is new.
func TestDialogue(t *testing.T) {
	t.Parallel()
	d := dialogue(t, 512)
	d.System = "You are a king."
	first, stats := ask(t, d, "Who comes here?", 8)
	if stats.Cached != 0 || stats.Generated == 0 || stats.Prompt == 0 {
		t.Errorf("first answer: %+v", stats)
	}
	second, again := ask(t, d, "And who are you?", 8)
	if again.Cached < stats.Prompt || again.Cached >= again.Prompt {
		t.Errorf("second answer: %+v after %+v", again, stats)
	}
	want := []chat.Turn{
		{Role: "user", Content: "Who comes here?"}, {Role: "assistant", Content: first},
		{Role: "user", Content: "And who are you?"}, {Role: "assistant", Content: second},
	}
	if !slices.Equal(d.Turns, want) {
		t.Errorf("%+v", d.Turns)
	}
	fresh := dialogue(t, 512)
	fresh.System, fresh.Turns = d.System, slices.Clone(d.Turns[:2])
	if got, stats := ask(t, fresh, "And who are you?", 8); got != second || stats.Cached != 0 {
		t.Errorf("%q instead of %q, %+v", got, second, stats)
	}
	if message, ok := d.Undo(); !ok || message != "And who are you?" || len(d.Turns) != 2 {
		t.Errorf("undo: %q, %v, %d turns left", message, ok, len(d.Turns))
	}
	if used, limit := d.Used(); used == 0 || limit != 512 {
		t.Errorf("%d of %d used", used, limit)
	}
	d.Reset()
	if used, _ := d.Used(); used != 0 || len(d.Turns) != 0 || d.System == "" {
		t.Errorf("reset: %d used, %d turns, system %q", used, len(d.Turns), d.System)
	}
}

// TestDialogueFull: old turns are dropped in pairs, and a message that does not fit is refused.
func TestDialogueFull(t *testing.T) {
	t.Parallel()
	d := dialogue(t, 96)
	dropped := 0
	for i := range 12 {
		_, stats := ask(t, d, strings.Repeat("Good my lord, ", 2)+string(rune('a'+i)), 8)
		if stats.Prompt+stats.Generated > 96 {
			t.Fatalf("%+v in a context of 96", stats)
		}
		dropped += stats.Dropped
		if d.Turns[0].Role != "user" || len(d.Turns)%2 != 0 {
			t.Fatalf("turns begin with %s, there are %d", d.Turns[0].Role, len(d.Turns))
		}
	}
	if dropped == 0 || dropped+len(d.Turns) != 24 {
		t.Errorf("%d turns dropped, %d left", dropped, len(d.Turns))
	}
	before := len(d.Turns)
	_, err := d.Ask(t.Context(), strings.Repeat("word ", 200), runtime.GenerateOptions{}, func(string) error { return nil })
	if !errors.Is(err, chat.ErrFull) || len(d.Turns) != before {
		t.Errorf("%v, %d turns instead of %d", err, len(d.Turns), before)
	}
	if _, stats := ask(t, d, "Go on", 0); stats.Prompt+stats.Generated > 96 {
		t.Errorf("no limit of tokens: %+v", stats)
	}
}

// TestDialogueStopped: a stopped answer is kept as far as it came; an answer that never began leaves no trace.
func TestDialogueStopped(t *testing.T) {
	t.Parallel()
	d := dialogue(t, 512)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var text strings.Builder
	_, err := d.Ask(ctx, "Speak", runtime.GenerateOptions{MaxTokens: 50}, func(piece string) error {
		if text.WriteString(piece); text.Len() > 5 {
			cancel(stop)
		}
		return nil
	})
	if !errors.Is(err, stop) || len(d.Turns) != 2 || d.Turns[1].Content != text.String() {
		t.Errorf("%v, turns %+v, text %q", err, d.Turns, text.String())
	}
	if _, err := d.Ask(ctx, "Speak", runtime.GenerateOptions{}, func(string) error { return nil }); !errors.Is(err, stop) || len(d.Turns) != 2 {
		t.Errorf("%v, %d turns", err, len(d.Turns))
	}
	closed := errors.New("closed")
	if _, err := d.Ask(t.Context(), "Speak", runtime.GenerateOptions{}, func(string) error { return closed }); !errors.Is(err, closed) {
		t.Errorf("a writer that fails: %v", err)
	}
}

func TestSavedDialogue(t *testing.T) {
	t.Parallel()
	d := dialogue(t, 512)
	d.System, d.Turns = "Be <brief>.", []chat.Turn{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Hello"}}
	d.Variables = chat.Thinking(false)
	file, err := d.Save()
	if err != nil {
		t.Fatal(err)
	}
	other := dialogue(t, 512)
	if err := other.Load(t.Context(), "saved.json", file); err != nil {
		t.Fatal(err)
	}
	if other.System != d.System || !slices.Equal(other.Turns, d.Turns) || other.Variables["enable_thinking"] != false {
		t.Errorf("%q, %+v, %v", other.System, other.Turns, other.Variables)
	}
	for name, text := range map[string]string{
		"no JSON": "{", "no messages": "[]", "parts": `[{"role":"user","content":[{"type":"text","text":"x"}]}]`,
		"begins with an answer": `[{"role":"assistant","content":"x"}]`, "ends with a question": `[{"role":"user","content":"x"}]`,
		"system in the middle": `[{"role":"user","content":"x"},{"role":"system","content":"x"}]`,
		"a call":               `[{"role":"user","content":"x"},{"role":"assistant","content":"x","tool_calls":[]}]`,
	} {
		err := other.Load(t.Context(), "f.json", []byte(text))
		if !errors.Is(err, tensor.ErrUnsupported) && !errors.Is(err, tensor.ErrCorrupt) || len(other.Turns) != 2 {
			t.Errorf("%s: %v, %d turns", name, err, len(other.Turns))
		}
	}
}

// TestKnows: what a template does with thinking and tools shows in its prompts.
func TestKnows(t *testing.T) {
	t.Parallel()
	dir, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, add       string
		thinking, tools bool
	}{
		{"neither", "", false, false},
		{"thinking", "{%- if enable_thinking is defined and not enable_thinking %}<think></think>{%- endif %}", true, false},
		{"tools", "{%- if tools %}{{ tools | tojson }}{%- endif %}", false, true},
	} {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(copied, "llm_config.json")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), `"chat_template": "`, `"chat_template": "`+c.add, 1)
		if c.add != "" && text == string(b) {
			t.Fatal("no template in llm_config.json")
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		p, _ := openDir(t, copied)
		tmpl, err := chat.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{tmpl.KnowsThinking(t.Context()), tmpl.KnowsTools(t.Context())}; got != [2]bool{c.thinking, c.tools} {
			t.Errorf("%s: thinking %v, tools %v", c.name, got[0], got[1])
		}
		if _, err := tmpl.Render(t.Context(), conversations.Conversation{Messages: []*template.Object{chat.Message("user", "x")}}, template.Limits{}); err != nil {
			t.Error(err)
		}
	}
}

// TestRecurrent: a model whose layers remember everything at once computes a changed conversation from its beginning.
func TestRecurrent(t *testing.T) {
	t.Parallel()
	dir, err := stagetest.Export(t.Context(), t.TempDir(), "../../pipeline/arch/testdata/qwen3_next", "quantize: {bits: 16}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	_, s := openDir(t, dir)
	if _, err := s.Prefill(t.Context(), []int32{1, 2, 3, 4, 5, 6}); err != nil {
		t.Fatal(err)
	}
	other := []int32{1, 2, 3, 9, 9, 9}
	if n := s.Resume(&runtime.Prompt{Tokens: other}); n != 0 || s.Len() != 0 {
		t.Errorf("%d tokens kept, %d there", n, s.Len())
	}
	if _, err := s.Prefill(t.Context(), other[:3]); err != nil {
		t.Fatal(err)
	}
	if n := s.Resume(&runtime.Prompt{Tokens: other}); n != 3 || s.Len() != 3 {
		t.Errorf("the whole conversation: %d tokens kept, %d there", n, s.Len())
	}
	got, err := s.Prefill(t.Context(), other[3:])
	if err != nil {
		t.Fatal(err)
	}
	f := s.Fork()
	if _, err = f.Prefill(t.Context(), other[:3]); err != nil {
		t.Fatal(err)
	}
	want, err := f.Prefill(t.Context(), other[3:])
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: other logits", err)
	}
}
