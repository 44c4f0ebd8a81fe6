package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/serve"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// scratch holds the package that the tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "serve"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// trained makes, once, a package of the trained checkpoint.
var trained = sync.OnceValues(func() (string, error) {
	return stagetest.Export(context.Background(), scratch, "../../testdata/tiny-qwen3", "quantize: {block: 32}\nverify: {enabled: false}")
})

// served is a server that a test talks to.
type served struct {
	t       testing.TB
	pkg     *runtime.Package
	session *runtime.Session
	handler *serve.Server
	url     string
	token   string
}

// options are those of the tests that do not set others.
func options() serve.Options {
	return serve.Options{
		Name: "tiny", Context: 256, Sessions: 2, Queue: 4, CacheBytes: 64 << 20, MaxBody: 64 << 10, Timeout: time.Minute, Grace: time.Minute,
		Loopback: true,
	}
}

func newServer(t testing.TB, change func(o *serve.Options)) *served {
	t.Helper()
	dir, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	return newServerOf(t, dir, change)
}

// newServerOf serves another package.
func newServerOf(t testing.TB, dir string, change func(o *serve.Options)) *served {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	session, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	if o.Template, err = chat.Open(p); err != nil {
		t.Fatal(err)
	}
	if p.Task() != runtime.Generate {
		o.Template = nil
	}
	if change != nil {
		change(&o)
	}
	h, err := serve.New(t.Context(), p, session, o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &served{t: t, pkg: p, session: session, handler: h, url: s.URL, token: o.Token}
}

// do sends a request and returns the status and the document of the answer.
func (s *served) do(method, path, body string, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// answer is what the tests read of answers.
type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index   int
		Text    *string
		Message struct{ Role, Content string }
		Delta   struct {
			Role    string
			Content string
		}
		Finish   string `json:"finish_reason"`
		Logprobs *struct {
			Tokens        []string             `json:"tokens"`
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			TextOffset    []int                `json:"text_offset"`
			Content       []struct {
				Token       string
				Logprob     float64
				Bytes       []byte            `json:"-"`
				TopLogprobs []json.RawMessage `json:"top_logprobs"`
			}
		}
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct {
		Message, Type string
		Param, Code   *string
	}
}

// post sends a request that has to succeed.
func (s *served) post(path, body string) answer {
	s.t.Helper()
	status, _, text := s.do("POST", path, body)
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
		s.t.Fatalf("%s: status %d, %v: %s", body, status, err, text)
	}
	return a
}

// stream sends a request for a stream and returns its events.
func (s *served) stream(path, body string) (events []answer) {
	s.t.Helper()
	status, h, text := s.do("POST", path, body)
	if status != http.StatusOK || h.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%s: status %d, %s: %s", body, status, h.Get("Content-Type"), text)
	}
	rest, done := strings.CutSuffix(text, "data: [DONE]\n\n")
	if !done {
		s.t.Fatalf("the stream does not end: %s", text)
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(rest, "\n\n"), "\n\n") {
		var a answer
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &a); err != nil {
			s.t.Fatalf("%q: %v", event, err)
		}
		events = append(events, a)
	}
	return events
}

const greeting = `"messages":[{"role":"system","content":"You are a king."},{"role":"user","content":"Who comes here?"}]`

// TestChat: an answer is that of a dialogue with the package; a stream has the same text.
func TestChat(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	tmpl, err := chat.Open(s.pkg)
	if err != nil {
		t.Fatal(err)
	}
	d := chat.New(s.pkg, tmpl, s.session, 256)
	d.System = "You are a king."
	var want strings.Builder
	stats, err := d.Ask(t.Context(), "Who comes here?", runtime.GenerateOptions{MaxTokens: 12}, func(text string) error {
		_, err := want.WriteString(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	body := greeting + `,"max_tokens":12,"temperature":0`
	a := s.post("/v1/chat/completions", `{"model":"tiny",`+body+`}`)
	c := a.Choices[0]
	if a.Object != "chat.completion" || a.Model != "tiny" || c.Message.Role != "assistant" || c.Message.Content != want.String() || c.Logprobs != nil {
		t.Errorf("%+v, want %q", a, want.String())
	}
	if u := a.Usage; u.Prompt != stats.Prompt || u.Completion != stats.Generated || u.Total != u.Prompt+u.Completion {
		t.Errorf("usage %+v, want %+v", u, stats)
	}
	var text strings.Builder
	events := s.stream("/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},`+body+`}`)
	for i, e := range events[:len(events)-1] {
		if e.Object != "chat.completion.chunk" || e.ID != events[0].ID || (e.Choices[0].Delta.Role == "assistant") != (i == 0) {
			t.Errorf("event %d: %+v", i, e)
		}
		text.WriteString(e.Choices[0].Delta.Content)
	}
	last := events[len(events)-1]
	if text.String() != want.String() || len(last.Choices) != 0 || last.Usage.Completion != stats.Generated || events[len(events)-2].Choices[0].Finish == "" {
		t.Errorf("stream %q, want %q; last %+v", text.String(), want.String(), last)
	}
	// The same conversation is cached; one with a seed is computed.
	if a := s.post("/v1/chat/completions", `{`+body+`}`); a.Usage.Details.Cached < stats.Prompt/2 || a.Choices[0].Message.Content != want.String() {
		t.Errorf("again: %+v", a)
	}
	if a := s.post("/v1/chat/completions", `{"seed":1,`+body+`}`); a.Usage.Details.Cached != 0 || a.Choices[0].Message.Content != want.String() {
		t.Errorf("with a seed: %+v", a)
	}
	// Parts of a content, and the developer's role.
	parts := s.post("/v1/chat/completions", `{"messages":[{"role":"developer","content":[{"type":"text","text":"You are "},{"type":"text","text":"a king."}]},
		{"role":"user","content":"Who comes here?","name":"x"}],"max_completion_tokens":12,"temperature":0,"user":"u","stop":null,"n":1,"logit_bias":{}}`)
	if parts.Choices[0].Message.Content != want.String() {
		t.Errorf("parts: %+v", parts)
	}
	lp := s.post("/v1/chat/completions", `{"logprobs":true,"top_logprobs":3,`+body+`}`).Choices[0].Logprobs
	joined := ""
	for _, p := range lp.Content {
		joined += p.Token
		if p.Logprob > 0 || len(p.TopLogprobs) != 3 {
			t.Errorf("%+v", p)
		}
	}
	if joined != want.String() {
		t.Errorf("tokens of logprobs %q, want %q", joined, want.String())
	}
}

// TestEcho: the log probabilities of a prompt are those of the runtime, for a text and for its tokens.
func TestEcho(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	const text = "My fellow citizens, good night."
	ids := s.pkg.Tokenizer.Encode(text)
	list, err := json.Marshal([][]int32{ids, ids[:3]})
	if err != nil {
		t.Fatal(err)
	}
	f := s.session.Fork()
	logits, err := f.Forward(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	width := len(logits) / len(ids)
	want := func(i int) float64 { // by the definition
		row, sum := logits[(i-1)*width:i*width], 0.0
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		return float64(row[ids[i]]) - math.Log(sum)
	}
	byText := s.post("/v1/completions", `{"prompt":"`+text+`","echo":true,"logprobs":1,"max_tokens":1,"temperature":0,"seed":1234}`)
	byTokens := s.post("/v1/completions", `{"prompt":`+string(list)+`,"echo":true,"logprobs":1,"max_tokens":0}`)
	const tolerance = 1e-5 // of float32 logits and their sum
	for name, lp := range map[string]int{"text": 0, "tokens": 1} {
		c := byText.Choices[0]
		if lp == 1 {
			c = byTokens.Choices[0]
		}
		l := c.Logprobs
		if n := len(ids) + 1 - lp; len(l.Tokens) != n || len(l.TokenLogprobs) != n || len(l.TopLogprobs) != n || len(l.TextOffset) != n {
			t.Fatalf("%s: %d tokens, want %d", name, len(l.Tokens), n)
		}
		if l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil || !strings.HasPrefix(*c.Text, text) || c.Finish != "length" {
			t.Errorf("%s: %+v", name, c)
		}
		for i := 1; i < len(ids); i++ {
			if got := *l.TokenLogprobs[i]; math.Abs(got-want(i)) > tolerance {
				t.Errorf("%s: token %d has %g, want %g", name, i, got, want(i))
			}
			if at := l.TextOffset[i]; !strings.HasPrefix(text[at:], l.Tokens[i]) {
				t.Errorf("%s: token %d, %q, is not at %d", name, i, l.Tokens[i], at)
			}
			best := math.Inf(-1)
			for _, v := range l.TopLogprobs[i] {
				best = max(best, v)
			}
			if best < *l.TokenLogprobs[i] || len(l.TopLogprobs[i]) > 2 {
				t.Errorf("%s: the likeliest tokens of %d are %v", name, i, l.TopLogprobs[i])
			}
		}
	}
	if len(byTokens.Choices) != 2 || byTokens.Choices[1].Index != 1 || byTokens.Usage.Prompt != len(ids)+3 || byTokens.Usage.Completion != 0 {
		t.Errorf("%+v", byTokens)
	}
}

// TestEchoStop: a prompt that the model ends at once has the probability of the stop token in its list, as lm_eval leaves out the last
// one.
func TestEchoStop(t *testing.T) {
	t.Parallel()
	const request = `{"prompt":[10,20,30],"max_tokens":1,"temperature":0,"echo":true,"logprobs":1,"seed":1}`
	free := newServer(t, nil)
	first := strings.TrimPrefix(*free.post("/v1/completions", request).Choices[0].Text, free.pkg.Tokenizer.Decode([]int32{10, 20, 30}))
	next := -1
	for id := range int32(free.pkg.Vocabulary()) {
		if free.pkg.Tokenizer.Decode([]int32{id}) == first {
			next = int(id)
			break
		}
	}
	b, err := os.ReadFile("../../testdata/tiny-qwen3/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	mtok, _, err := tok.MTOK(tokenizer.MTOKOptions{Stop: []int32{int32(next)}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(free.pkg.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.mtok"), mtok, 0o666); err != nil {
		t.Fatal(err)
	}
	c := newServerOf(t, dir, nil).post("/v1/completions", request).Choices[0]
	if len(c.Logprobs.TokenLogprobs) != 4 || c.Finish != "stop" || *c.Text != free.pkg.Tokenizer.Decode([]int32{10, 20, 30}) {
		t.Errorf("%+v", c)
	}
}

// TestCompletions: seeds, choices, stop texts and penalties.
func TestCompletions(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	free := s.post("/v1/completions", `{"prompt":"My lord, the king","max_tokens":20,"temperature":0}`)
	text := *free.Choices[0].Text
	if free.Usage.Completion == 0 || len(text) < 6 {
		t.Fatalf("%+v", free)
	}
	stop, err := json.Marshal([]string{"no such text", text[3:5]})
	if err != nil {
		t.Fatal(err)
	}
	cut, _, _ := strings.Cut(text, text[3:5])
	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{"prompt":"My lord, the king","max_tokens":20,"temperature":0,"stop":%s,"stream":%v}`, stop, stream)
		got, finish := "", ""
		if stream {
			for _, e := range s.stream("/v1/completions", body) {
				got += *e.Choices[0].Text
				finish = e.Choices[0].Finish
			}
		} else {
			a := s.post("/v1/completions", body)
			got, finish = *a.Choices[0].Text, a.Choices[0].Finish
		}
		if got != cut || finish != "stop" {
			t.Errorf("stream %v: %q, %s, want %q", stream, got, finish, cut)
		}
	}
	drawn := `{"prompt":["My lord","My lady"],"max_tokens":8,"temperature":2,"top_k":500,"top_p":1,"min_p":0,"n":2,"seed":-7`
	a, b := s.post("/v1/completions", drawn+`}`), s.post("/v1/completions", drawn+`}`)
	if len(a.Choices) != 4 || *a.Choices[0].Text == *a.Choices[1].Text {
		t.Errorf("%+v", a)
	}
	for i := range a.Choices {
		if a.Choices[i].Index != i || *a.Choices[i].Text != *b.Choices[i].Text {
			t.Errorf("choice %d: %q and %q", i, *a.Choices[i].Text, *b.Choices[i].Text)
		}
	}
	streamed := map[int]string{}
	for _, e := range s.stream("/v1/completions", drawn+`,"stream":true}`) {
		streamed[e.Choices[0].Index] += *e.Choices[0].Text
	}
	for i, c := range a.Choices {
		if streamed[i] != *c.Text {
			t.Errorf("choice %d as a stream: %q, want %q", i, streamed[i], *c.Text)
		}
	}
	penalized := `{"prompt":"My lord, the king","max_tokens":20,"temperature":0,"frequency_penalty":2,"presence_penalty":2}`
	if a := s.post("/v1/completions", penalized); *a.Choices[0].Text == text {
		t.Errorf("the penalties change nothing: %q", text)
	}
	if a := s.post("/v1/completions", `{"prompt":"a","max_tokens":100000,"temperature":0}`); a.Usage.Total > 256 {
		t.Errorf("more than the context: %+v", a.Usage)
	}
}

// TestRefused: what cannot be carried out is refused in the form of the interface, with the member that is the cause.
func TestRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	s := newServer(t, nil)
	const chats, texts = "/v1/chat/completions", "/v1/completions"
	user := `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		path, body string
		status     int
		param      string
	}{
		{chats, `{`, 400, ""}, {chats, `[]`, 400, ""}, {chats, `null`, 400, ""}, {chats, `{}`, 400, "messages"},
		{chats, `{"messages":[]}`, 400, "messages"}, {chats, `{"messages":"x"}`, 400, "messages"}, {chats, `{"messages":[1]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"user"}]}`, 400, "messages"}, {chats, `{"messages":[{"role":"king","content":"x"}]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"user","content":"x","color":"red"}]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"tool","content":"x"}]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]}`, 400, "messages"},
		{chats, `{"model":"other",` + user + `}`, 404, "model"}, {chats, `{"temperature":-1,` + user + `}`, 400, "temperature"},
		{chats, `{"temperature":"hot",` + user + `}`, 400, "temperature"}, {chats, `{"top_p":1.5,` + user + `}`, 400, "top_p"},
		{chats, `{"n":0,` + user + `}`, 400, "n"}, {chats, `{"n":1.5,` + user + `}`, 400, "n"}, {chats, `{"max_tokens":0,` + user + `}`, 400, "max_tokens"},
		{chats, `{"presence_penalty":3,` + user + `}`, 400, "presence_penalty"}, {chats, `{"top_logprobs":2,` + user + `}`, 400, "top_logprobs"},
		{chats, `{"logprobs":true,"top_logprobs":21,` + user + `}`, 400, "top_logprobs"}, {chats, `{"stop":"",` + user + `}`, 400, "stop"},
		{chats, `{"stop":[1],` + user + `}`, 400, "stop"}, {chats, `{"stream_options":{"include_usage":true},` + user + `}`, 400, "stream_options"},
		{chats, `{"tools":[{"type":"function","function":{"name":"f"}}],` + user + `}`, 400, "tools"},
		{chats, `{"tool_choice":"required",` + user + `}`, 400, "tool_choice"}, {chats, `{"logit_bias":{"1":2},` + user + `}`, 400, "logit_bias"},
		{chats, `{"response_format":{"type":"json_object"},` + user + `}`, 400, "response_format"}, {chats, `{"colour":1,` + user + `}`, 400, "colour"},
		{chats, `{"chat_template_kwargs":{"messages":1},` + user + `}`, 400, "chat_template_kwargs"},
		{chats, `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 300) + `"}]}`, 400, "messages"},
		{chats, `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 20000) + `"}]}`, 413, ""},
		{texts, `{}`, 400, "prompt"}, {texts, `{"prompt":""}`, 400, "prompt"}, {texts, `{"prompt":[]}`, 400, "prompt"}, {texts, `{"prompt":[[]]}`, 400, "prompt"},
		{texts, `{"prompt":[-1]}`, 400, "prompt"}, {texts, `{"prompt":[9999999]}`, 400, "prompt"}, {texts, `{"prompt":{"a":1}}`, 400, "prompt"},
		{texts, `{"prompt":[1,"a"]}`, 400, "prompt"}, {texts, `{"prompt":"x","logprobs":21}`, 400, "logprobs"},
		{texts, `{"prompt":"x","logprobs":true}`, 400, "logprobs"},
		{texts, `{"prompt":"x","max_tokens":-1}`, 400, "max_tokens"}, {texts, `{"prompt":"x","suffix":"y"}`, 400, "suffix"},
		{texts, `{"prompt":"x","best_of":2}`, 400, "best_of"}, {texts, `{"prompt":"x","seed":1.5}`, 400, "seed"},
	} {
		status, h, text := s.do("POST", c.path, c.body)
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Error == nil || a.Error.Message == "" || a.Error.Type != "invalid_request_error" {
			t.Errorf("%.100s: %d, %v: %s", c.body, status, err, text)
			continue
		}
		param := ""
		if a.Error.Param != nil {
			param = *a.Error.Param
		}
		if status != c.status || param != c.param || h.Get("Content-Type") != "application/json" {
			t.Errorf("%.100s: status %d, parameter %q, want %d and %q: %s", c.body, status, param, c.status, c.param, text)
		}
	}
	if l := s.post(texts, `{"prompt":"x","max_tokens":1}`); l.Usage.Completion != 1 {
		t.Errorf("after all that: %+v", l)
	}
}

// TestGuards: names of other hosts, other origins, other types and paths are refused; nobody gets in without the token.
func TestGuards(t *testing.T) {
	t.Parallel()
	open := newServer(t, func(o *serve.Options) { o.Origins = []string{"https://friend.example"} })
	body := `{"prompt":"x","max_tokens":1}`
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		want                     int
	}{
		{"plain", "POST", "/v1/completions", body, nil, 200},
		{"localhost", "POST", "/v1/completions", body, []string{"Host", "LOCALHOST:8080"}, 200},
		{"IPv6", "GET", "/health", "", []string{"Host", "[::1]:8080"}, 200},
		{"rebound name", "GET", "/v1/models", "", []string{"Host", "evil.example:8080"}, 403},
		{"rebound name, page", "GET", "/", "", []string{"Host", "evil.example"}, 403},
		{"another address", "GET", "/v1/models", "", []string{"Host", "10.0.0.1"}, 403},
		{"another origin", "POST", "/v1/completions", body, []string{"Origin", "https://evil.example"}, 403},
		{"another site", "POST", "/v1/completions", body, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"same origin", "POST", "/v1/completions", body, []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"a friend", "POST", "/v1/completions", body, []string{"Origin", "https://friend.example", "Sec-Fetch-Site", "cross-site"}, 200},
		{"a form", "POST", "/v1/completions", body, []string{"Content-Type", "text/plain"}, 415},
		{"a charset", "POST", "/v1/completions", body, []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		{"another path", "GET", "/v1/files", "", nil, 404}, {"another method", "GET", "/v1/completions", "", nil, 405},
		{"models", "GET", "/v1/models", "", nil, 200}, {"a model", "GET", "/v1/models/tiny", "", nil, 200}, {"no model", "GET", "/v1/models/x", "", nil, 404},
		{"page", "GET", "/", "", nil, 200}, {"script", "GET", "/chat.js", "", nil, 200}, {"style", "GET", "/chat.css", "", nil, 200},
		{"a file that is none", "GET", "/server.go", "", nil, 404}, {"metrics", "GET", "/metrics", "", nil, 200},
	} {
		status, h, text := open.do(c.method, c.path, c.body, c.headers...)
		if status != c.want {
			t.Errorf("%s: status %d, want %d: %.200s", c.name, status, c.want, text)
		}
		if allowed := h.Get("Access-Control-Allow-Origin"); (allowed != "") != (c.name == "a friend") {
			t.Errorf("%s: origin %q is allowed", c.name, allowed)
		}
		if c.name == "page" && !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("policy %q", h.Get("Content-Security-Policy"))
		}
	}
	status, h, _ := open.do("OPTIONS", "/v1/completions", "", "Origin", "https://friend.example", "Access-Control-Request-Method", "POST")
	if status != 204 || h.Get("Access-Control-Allow-Headers") == "" {
		t.Errorf("preflight: %d, %v", status, h)
	}
	closed := newServer(t, func(o *serve.Options) { o.Token, o.Loopback = "secret", false })
	for token, want := range map[string]int{
		"Bearer secret": 200, "bearer secret": 200, "Bearer wrong": 401, "Basic secret": 401, "Bearer": 401, "": 401, "Bearer secret2": 401,
	} {
		for _, path := range []string{"/v1/models", "/metrics"} {
			if status, _, text := closed.do("GET", path, "", "Authorization", token, "Host", "any.example"); status != want {
				t.Errorf("%q for %s: status %d, want %d: %s", token, path, status, want, text)
			}
		}
	}
	if status, _, _ := closed.do("GET", "/health", "", "Authorization", ""); status != 200 {
		t.Errorf("health needs a token: %d", status)
	}
}

// endless is a request that does not end by itself: all tokens are equally likely, and none of the first 4095 of this seed ends the text.
const endless = `"max_tokens":100000,"temperature":100,"top_k":0,"top_p":1,"min_p":0,"seed":3,"stream":true}`

// begin starts an endless stream and reads its first event.
func (s *served) begin(ctx context.Context) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"x",`+endless))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return resp
}

// metric reads a line of /metrics.
func (s *served) metric(name string) string {
	_, _, text := s.do("GET", "/metrics", "")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "llmexport_"+name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// await waits until a metric has a value.
func (s *served) await(name, value string) {
	s.t.Helper()
	for range 200000 {
		if s.metric(name) == value {
			return
		}
	}
	s.t.Fatalf("%s is not %s", name, value)
}

// TestQueue: requests beyond those that compute wait, those beyond the queue are refused, and clients that go away make room.
func TestQueue(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) { o.Sessions, o.Queue, o.Context = 1, 1, 4096 })
	first, leave := context.WithCancel(t.Context())
	s.begin(first)
	s.await("running", "1")
	second, leaveQueue := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(second, "POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		}
		waited <- err
	}()
	s.await("waiting", "1")
	status, h, text := s.do("POST", "/v1/completions", `{"prompt":"x"}`)
	if status != http.StatusTooManyRequests || h.Get("Retry-After") == "" || !strings.Contains(text, "rate_limit_error") {
		t.Errorf("status %d, %v: %s", status, h, text)
	}
	leaveQueue()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that left: %v", err)
	}
	s.await("waiting", "0")
	leave()
	s.await("running", "0")
	if a := s.post("/v1/completions", `{"prompt":"x","max_tokens":2}`); a.Usage.Completion == 0 {
		t.Errorf("%+v", a)
	}
}

// TestCacheMemory: a request that can never have its keys and values is refused, idle conversations give way, and what is
// reserved stays within the bound.
func TestCacheMemory(t *testing.T) {
	t.Parallel()
	probe := newServer(t, nil)
	probe.post("/v1/completions", `{"prompt":"x","max_tokens":1}`)
	block := probe.metric("cache_bytes") // of a conversation of one block
	var bytes int64
	if _, err := fmt.Sscan(block, &bytes); err != nil || bytes == 0 {
		t.Fatalf("%q: %v", block, err)
	}
	s := newServer(t, func(o *serve.Options) { o.Sessions, o.CacheBytes = 4, 2*bytes })
	if status, _, text := s.do("POST", "/v1/completions", `{"prompt":"x","max_tokens":200}`); status != 400 || !strings.Contains(text, "keys and values") {
		t.Errorf("status %d: %s", status, text)
	}
	for _, prompt := range []string{"one", "My lord", "three little words", "again"} {
		s.post("/v1/completions", `{"prompt":"`+prompt+`","max_tokens":2}`)
		var used int64
		if _, err := fmt.Sscan(s.metric("cache_bytes"), &used); err != nil || used == 0 || used > 2*bytes {
			t.Errorf("%d bytes of %d are reserved: %v", used, 2*bytes, err)
		}
	}
}

// TestTimeout: a request that takes too long ends with an error, as an event if its stream has begun.
func TestTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	s := newServer(t, func(o *serve.Options) { o.Timeout, o.Context = 200*time.Millisecond, 4096 })
	status, _, text := s.do("POST", "/v1/completions", `{"prompt":"x",`+endless)
	if status != 200 || strings.Contains(text, "[DONE]") || !strings.Contains(text, `"code":"timeout"`) {
		t.Errorf("stream: status %d: %.300s", status, text)
	}
	status, h, text := s.do("POST", "/v1/completions", `{"prompt":"x",`+strings.Replace(endless, `"stream":true`, `"stream":false`, 1))
	if status != http.StatusGatewayTimeout || h.Get("X-Should-Retry") != "false" {
		t.Errorf("whole: status %d: %.300s", status, text)
	}
}

// TestShutdown: running requests may end, those that come are refused, and at the end of the grace streams are cut with an error.
func TestShutdown(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, grace := range []time.Duration{time.Hour, time.Millisecond} {
		s := newServer(t, func(o *serve.Options) { o.Grace, o.Timeout = grace, time.Hour })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.handler.Serve(ctx, l) }()
		s.url = "http://" + l.Addr().String()
		resp := s.begin(t.Context())
		end()
		rest, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		whole := bytes.HasSuffix(rest, []byte("data: [DONE]\n\n"))
		if cut := bytes.Contains(rest, []byte("shutting_down")); whole == cut || whole != (grace == time.Hour) {
			t.Errorf("grace %v: whole %v, cut %v", grace, whole, cut)
		}
		if err := <-ended; err != nil {
			t.Errorf("grace %v: %v", grace, err)
		}
		if _, err := http.Get(s.url + "/health"); err == nil {
			t.Errorf("grace %v: the server still answers", grace)
		}
	}
}

// TestConcurrent: many clients at once have the answers of one alone.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) { o.Sessions, o.Queue = 3, 100 })
	want := map[int]string{}
	body := func(i int) string {
		return fmt.Sprintf(`{"prompt":"%s","max_tokens":10,"temperature":1.5,"top_k":100,"seed":%d}`, strings.Repeat("lord ", 1+i*9), i)
	}
	for i := range 6 {
		want[i] = *s.post("/v1/completions", body(i)).Choices[0].Text
	}
	var all sync.WaitGroup
	for n := range 24 {
		all.Go(func() {
			if got := *s.post("/v1/completions", body(n%6)).Choices[0].Text; got != want[n%6] {
				t.Errorf("request %d: %q, want %q", n%6, got, want[n%6])
			}
		})
	}
	all.Wait()
	s.await("running", "0")
}
