package chat_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const files = "../picture/testdata/files/"

// seeing opens a package of a family with a tower.
func seeing(t *testing.T, family string) (*runtime.Package, *runtime.Session, *runtime.Tower) {
	t.Helper()
	dir, err := stagetest.Export(t.Context(), t.TempDir(), "../../pipeline/arch/testdata/"+family, "quantize: {block: auto}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := openDir(t, dir)
	o := runtime.Options{Mode: backend.Float, Threads: 1} // in int8 mode, answers are computed differently from prompts
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	tower, err := runtime.NewTower(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, s, tower
}

// continued is what generate makes of a prompt.
func continued(t *testing.T, p *runtime.Package, s *runtime.Session, tower *runtime.Tower, text string, n int) (string, int) {
	t.Helper()
	in, err := (&runtime.Reader{Package: p, Tower: tower}).Read(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	f := s.Fork()
	f.Show(in.Pictures...)
	var out []int32
	err = f.Generate(t.Context(), in.Tokens, runtime.GenerateOptions{MaxTokens: n}, func(token int32) bool {
		out = append(out, token)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := p.Tokenizer.Stream()
	var b strings.Builder
	for _, token := range out {
		b.WriteString(stream.Next(token))
	}
	return b.String() + stream.Close(), len(in.Tokens)
}

// TestPictures: a conversation with pictures is the one that the template and the tower make of it; what was computed for a
// picture is used again for it alone.
func TestPictures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ family, size, before, after string }{
		{"llava", "", "", "\n"},
		{"internvl", "", "", "\n"},
		{"gemma3", "", "\n\n", "\n\n"},
		{"qwen2_vl", "<hw>56,84</hw>", "", " "},
		{"smolvlm", "<hw>32,64</hw>", "", " "},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			p, s, tower := seeing(t, c.family)
			tmpl, err := chat.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			d := chat.New(p, tmpl, s, 256)
			d.Tower = tower
			mark := func(file string) string { return "<img>" + c.size + files + file + "</img>" }
			prompt := "<s>user\nLook at " + c.before + mark("rgb.jpg") + c.after + "now.</s>\n<s>assistant\n"
			want, n := continued(t, p, s, tower, prompt, 6)
			message := "Look at " + mark("rgb.jpg") + " now."
			first, stats := ask(t, d, message, 6)
			if first != want || stats.Prompt != n || stats.Cached != 0 {
				t.Errorf("%q from %+v, want %q from %d tokens", first, stats, want, n)
			}
			prompt += d.Turns[1].Content + "</s>\n<s>user\nAnd " + c.before + mark("gray.jpg") + c.after + "</s>\n<s>assistant\n"
			message = "And " + mark("gray.jpg")
			if c.after == " " {
				message += " "
			}
			want, n = continued(t, p, s, tower, prompt, 6)
			second, again := ask(t, d, message, 6)
			if second != want || again.Prompt != n || again.Cached < stats.Prompt-8 {
				t.Errorf("%q from %+v, want %q from %d tokens", second, again, want, n)
			}
			file, err := d.Save()
			if err != nil || !strings.Contains(string(file), files+"gray.jpg</img>") {
				t.Fatalf("%v: %s", err, file)
			}
			other := chat.New(p, tmpl, s.Fork(), 256)
			other.Tower = tower
			if err := other.Load(t.Context(), "saved.json", file); err != nil {
				t.Fatal(err)
			}
			third, _ := ask(t, d, "More?", 6)
			if got, all := ask(t, other, "More?", 6); got != third || all.Cached != 0 {
				t.Errorf("loaded: %q from %+v, want %q", got, all, third)
			}
			before := len(d.Turns)
			var unread *chat.PictureError
			for message, want := range map[string]error{
				"<img>" + filepath.Join(t.TempDir(), "none.png") + "</img>": nil, mark("drawing.tif"): tensor.ErrUnsupported,
			} {
				if _, err := d.Ask(t.Context(), message, runtime.GenerateOptions{}, nil); !errors.As(err, &unread) || want != nil && !errors.Is(err, want) {
					t.Errorf("%s: %v", message, err)
				}
			}
			pad := p.Tokenizer.Decode([]int32{p.Config.ImagePad})
			if _, err := d.Ask(t.Context(), "What is "+pad, runtime.GenerateOptions{}, nil); !errors.Is(err, tensor.ErrUnsupported) || !errors.As(err, &unread) {
				t.Errorf("a text with %s: %v", pad, err)
			}
			stopped, stop := context.WithCancel(t.Context())
			stop()
			if _, err := d.Ask(stopped, mark("rgb.jpg"), runtime.GenerateOptions{}, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("stopped: %v", err)
			}
			if len(d.Turns) != before {
				t.Errorf("%d turns, %d before", len(d.Turns), before)
			}
		})
	}
}

// TestMarks: a picture is where its mark was, and a template that leaves one out or repeats one is refused.
func TestMarks(t *testing.T) {
	t.Parallel()
	p, _, _ := seeing(t, "llava")
	seen := func(id int32) *runtime.Prompt { return &runtime.Prompt{Tokens: []int32{id, id}} }
	m := chat.NewMarks()
	a, b := m.Next(), m.Next()
	if m.Len() != 2 || a == b {
		t.Fatalf("%d marks, %q and %q", m.Len(), a, b)
	}
	pictures := []*runtime.Prompt{seen(7), seen(9)}
	got, err := m.Encode(p, "x"+a+b+"y", pictures)
	if err != nil {
		t.Fatal(err)
	}
	want := "x" + p.Tokenizer.Decode([]int32{7, 7}) + "\n" + p.Tokenizer.Decode([]int32{9, 9}) + "\ny"
	if text := p.Tokenizer.Decode(got.Tokens); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	for name, text := range map[string]string{"one": a + "x", "none": "x", "another order": b + a, "twice": a + b + a} {
		if _, err := m.Encode(p, text, pictures); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
