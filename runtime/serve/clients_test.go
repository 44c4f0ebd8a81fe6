//go:build clients

package serve_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/serve"
)

// clientsPython returns a Python with the libraries openai and lm_eval: make serve-clients installs it, unless CLIENTS_PYTHON names one.
func clientsPython() string {
	if named := os.Getenv("CLIENTS_PYTHON"); named != "" {
		return named
	}
	return "../../.venv/clients/bin/python"
}

// TestOpenAI talks to a server by the library openai.
func TestOpenAI(t *testing.T) {
	s := newServer(t, func(o *serve.Options) { o.Token = "secret"; o.Queue = 16 })
	out, err := exec.CommandContext(t.Context(), clientsPython(), "testdata/clients.py", s.url, "tiny", "secret").Output()
	if e, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v: %s", err, e.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Models, Concurrent     []string
		Chat, Finish, Logprobs string
		Top, Echo              []int
		Usage                  int
		Stream, Completion     string
		StreamUsage            bool   `json:"stream_usage"`
		CompletionStream       string `json:"completion_stream"`
		Refused                [][]*string
		Unauthorized           []*string
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a := s.post("/v1/chat/completions", `{`+greeting+`,"max_tokens":12,"temperature":0,"seed":3}`)
	want := a.Choices[0].Message.Content
	if !slices.Equal(found.Models, []string{"tiny"}) {
		t.Errorf("models: %s", out)
	}
	if found.Chat != want || found.Stream != want || found.Logprobs != want || found.Finish != a.Choices[0].Finish {
		t.Errorf("%s, want %q", out, want)
	}
	if found.Usage != 0 || !found.StreamUsage || !slices.Equal(found.Top, []int{2}) || !slices.Equal(found.Echo, []int{3, 4}) {
		t.Errorf("%s", out)
	}
	text := *s.post("/v1/completions", `{"prompt":"My lord, the king","max_tokens":6,"temperature":0,"seed":3}`).Choices[0].Text
	if found.Completion != text || found.CompletionStream != text || !slices.Equal(found.Concurrent, []string{text}) {
		t.Errorf("%s, want %q", out, text)
	}
	for i, want := range [][2]string{{"NotFoundError", "model"}, {"BadRequestError", "temperature"}, {"BadRequestError", "tools"}} {
		if got := found.Refused[i]; len(got) != 2 || got[1] == nil || *got[0] != want[0] || *got[1] != want[1] {
			t.Errorf("refusal %d: %s, want %v", i, out, want)
		}
	}
	if len(found.Unauthorized) == 0 || *found.Unauthorized[0] != "AuthenticationError" {
		t.Errorf("without a token: %s", out)
	}
}

// TestOpenAIShown shows a server a picture, and plays clips to others, by the library openai.
func TestOpenAIShown(t *testing.T) {
	for _, c := range []struct{ family, before, file, after string }{
		{"llava", "<img>", pictureFiles + "rgb.jpg", "</img>\n"},
		{"qwen2_audio", "Audio 1: <|audio_bos|><audio>", clipFiles + "rising.wav", "</audio><|audio_eos|>\n"},
		{"qwen2_5_omni_thinker", "<|audio_bos|><audio>", clipFiles + "16000.flac", "</audio><|audio_eos|>"},
	} {
		t.Run(c.family, func(t *testing.T) {
			dir := shown(t, t.TempDir(), c.family)
			reader, set := withReader(t, dir)
			s := newServerOf(t, dir, set)
			out, err := exec.CommandContext(t.Context(), clientsPython(), "testdata/look.py", s.url, "tiny", c.file).Output()
			if e, ok := err.(*exec.ExitError); ok {
				t.Fatalf("%v: %s", err, e.Stderr)
			} else if err != nil {
				t.Fatal(err)
			}
			var found struct {
				Answer, Stream, Refused string
				Prompt                  int
			}
			if err := json.Unmarshal(out, &found); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			in, err := reader.Read(t.Context(), "<s>user\nLook at "+c.before+c.file+c.after+"now.</s>\n<s>assistant\n")
			if err != nil {
				t.Fatal(err)
			}
			want := s.continued(in)
			if found.Answer != want || found.Stream != want || found.Prompt != len(in.Tokens) || found.Refused != "messages" {
				t.Errorf("%s, want %q of %d tokens", out, want, len(in.Tokens))
			}
		})
	}
}

// TestLMEval scores a server by the library lm_eval.
func TestLMEval(t *testing.T) {
	s := newServer(t, func(o *serve.Options) { o.Context = 1024 })
	cmd := exec.CommandContext(t.Context(), clientsPython(), "runtime/serve/testdata/evaluate.py", s.url, "tiny", "testdata/tiny-qwen3", "5")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1", "HF_HOME="+t.TempDir())
	if abs, err := filepath.Abs(clientsPython()); err == nil {
		cmd.Path = abs
	}
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v: %s", err, e.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var r map[string]json.RawMessage
	var bits float64
	// The checkpoint was trained on such text; a model that knows nothing has 8 bits for a byte.
	err = json.Unmarshal(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:], &r)
	if err == nil {
		err = json.Unmarshal(r["bits_per_byte,none"], &bits)
	}
	if err != nil || bits < 1 || bits > 2 {
		t.Errorf("%v: %s", err, out)
	}
}
