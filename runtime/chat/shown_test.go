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

const (
	files = "../picture/testdata/files/"
	clips = "../sound/testdata/files/"
)

// shown opens a package of a family that sees or hears.
func shown(t *testing.T, family string) (*runtime.Session, *runtime.Reader) {
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
	r, err := runtime.NewReader(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// continued is what generate makes of a prompt.
func continued(t *testing.T, s *runtime.Session, r *runtime.Reader, text string, n int) (string, int) {
	t.Helper()
	in, err := r.Read(t.Context(), text)
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
	stream := r.Package.Tokenizer.Stream()
	var b strings.Builder
	for _, token := range out {
		b.WriteString(stream.Next(token))
	}
	return b.String() + stream.Close(), len(in.Tokens)
}

// TestShown: a conversation with pictures or clips is the one that the template and the package's reader make of it; what was computed for
// one is used again for it alone.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		family, size, before, after string
		clips, long                 bool
	}{
		{family: "llava", after: "\n"},
		{family: "internvl", after: "\n", long: true},
		{family: "gemma3", before: "\n\n", after: "\n\n"},
		{family: "qwen2_vl", size: "<hw>56,84</hw>"},
		{family: "smolvlm", size: "<hw>32,64</hw>"},
		{family: "qwen2_audio", before: "Audio {n}: <|audio_bos|>", after: "<|audio_eos|>\n", clips: true},
		{family: "qwen2_5_omni_thinker", before: "<|audio_bos|>", after: "<|audio_eos|>", clips: true, long: true},
	} {
		t.Run(c.family, func(t *testing.T) {
			t.Parallel()
			if c.long && testing.Short() {
				t.Skip("one family of each kind is enough in short mode")
			}
			s, r := shown(t, c.family)
			p := r.Package
			tmpl, err := chat.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			d := chat.New(p, tmpl, s, 256)
			d.Reader = r
			mark := func(file string) string { return "<img>" + c.size + files + file + "</img>" }
			one, other, unreadable, pad := "rgb.jpg", "gray.jpg", "drawing.tif", p.Config.ImagePad
			if c.clips {
				mark = func(file string) string { return "<audio>" + clips + file + "</audio>" }
				one, other, unreadable, pad = "rising.wav", "16000.flac", "law.wav", p.Config.AudioPad
			}
			around := func(n, file, text string) string {
				if strings.HasSuffix(c.after, "\n") {
					text = strings.TrimLeft(text, " ")
				}
				return strings.ReplaceAll(c.before, "{n}", n) + mark(file) + c.after + text
			}
			prompt := "<s>user\nLook at " + around("1", one, " now.") + "</s>\n<s>assistant\n"
			want, n := continued(t, s, r, prompt, 6)
			first, stats := ask(t, d, "Look at "+mark(one)+" now.", 6)
			if first != want || stats.Prompt != n || stats.Cached != 0 {
				t.Errorf("%q from %+v, want %q from %d tokens", first, stats, want, n)
			}
			prompt += d.Turns[1].Content + "</s>\n<s>user\nAnd " + around("2", other, "") + "</s>\n<s>assistant\n"
			want, n = continued(t, s, r, prompt, 6)
			second, again := ask(t, d, "And "+mark(other), 6)
			if second != want || again.Prompt != n || again.Cached < stats.Prompt-8 {
				t.Errorf("%q from %+v, want %q from %d tokens", second, again, want, n)
			}
			file, err := d.Save()
			if err != nil || !strings.Contains(string(file), mark(other)) {
				t.Fatalf("%v: %s", err, file)
			}
			loaded := chat.New(p, tmpl, s.Fork(), 256)
			loaded.Reader = r
			if err := loaded.Load(t.Context(), "saved.json", file); err != nil {
				t.Fatal(err)
			}
			third, _ := ask(t, d, "More?", 6)
			if got, all := ask(t, loaded, "More?", 6); got != third || all.Cached != 0 {
				t.Errorf("loaded: %q from %+v, want %q", got, all, third)
			}
			before := len(d.Turns)
			var unread *chat.ShownError
			for message, want := range map[string]error{
				"<img>" + filepath.Join(t.TempDir(), "none.png") + "</img>":     nil,
				"<audio>" + filepath.Join(t.TempDir(), "none.wav") + "</audio>": nil, mark(unreadable): tensor.ErrUnsupported,
				"Hear <audio>" + clips + "empty.wav</audio>": nil,
			} {
				if _, err := d.Ask(t.Context(), message, runtime.GenerateOptions{}, nil); !errors.As(err, &unread) || want != nil && !errors.Is(err, want) {
					t.Errorf("%s: %v", message, err)
				}
			}
			message := mark(one) + " is " + p.Tokenizer.Decode([]int32{pad})
			if _, err := d.Ask(t.Context(), message, runtime.GenerateOptions{}, nil); !errors.Is(err, tensor.ErrUnsupported) || !errors.As(err, &unread) {
				t.Errorf("%s: %v", message, err)
			}
			stopped, stop := context.WithCancel(t.Context())
			stop()
			if _, err := d.Ask(stopped, mark(one), runtime.GenerateOptions{}, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("stopped: %v", err)
			}
			if len(d.Turns) != before {
				t.Errorf("%d turns, %d before", len(d.Turns), before)
			}
		})
	}
}

// TestShownTogether: a picture and clips of one message, next to each other, each with what is written around it. Words that the writer put
// around a clip, as a prompt of generate needs them, are not written twice.
func TestShownTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("two packages")
	}
	const picture, a, b = "<img><hw>56,84</hw>" + files + "rgb.jpg</img>", "<audio>" + clips + "rising.wav</audio>", "<audio>" + clips + "16000.wav</audio>"
	for _, c := range []struct{ family, message, content string }{
		{"qwen2_5_omni_thinker", picture + a + b + "Well?", picture + "<|audio_bos|>" + a + "<|audio_eos|><|audio_bos|>" + b + "<|audio_eos|>Well?"},
		{"qwen2_5_omni_thinker", "<|audio_bos|>" + a + "<|audio_eos|> in " + picture, "<|audio_bos|>" + a + "<|audio_eos|> in " + picture},
		{"qwen2_audio", "Hear " + a + b, "Hear Audio 1: <|audio_bos|>" + a + "<|audio_eos|>\nAudio 2: <|audio_bos|>" + b + "<|audio_eos|>\n"},
		{"qwen2_audio", "<|audio_bos|>" + a + "<|audio_eos|>Well?", "Audio 1: <|audio_bos|>" + a + "<|audio_eos|>\nWell?"},
	} {
		s, r := shown(t, c.family)
		tmpl, err := chat.Open(r.Package)
		if err != nil {
			t.Fatal(err)
		}
		d := chat.New(r.Package, tmpl, s, 256)
		d.Reader = r
		want, n := continued(t, s, r, "<s>user\n"+c.content+"</s>\n<s>assistant\n", 6)
		if got, stats := ask(t, d, c.message, 6); got != want || stats.Prompt != n {
			t.Errorf("%s: %q from %+v, want %q from %d tokens", c.message, got, stats, want, n)
		}
	}
}

// TestMarks: a picture is where its mark was, and a template that leaves one out or repeats one is refused.
func TestMarks(t *testing.T) {
	t.Parallel()
	_, r := shown(t, "llava")
	p := r.Package
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
