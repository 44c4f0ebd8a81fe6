package serve_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llmexport/llmexport/runtime/serve"
)

// FuzzRequest: whatever is sent, the answer is a document of the interface, and a request that is refused says why.
func FuzzRequest(f *testing.F) {
	seeds := []string{
		`{"messages":[{"role":"user","content":"x"}],"max_tokens":1}`, `{"prompt":"x","max_tokens":1,"echo":true,"logprobs":1}`,
		`{"prompt":[[1,2],[3]],"max_tokens":0}`, `{"prompt":"x","max_tokens":2,"stop":["a","b"],"n":2,"seed":1,"stream":true}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"a"}]}],"tools":[],"tool_choice":"none","max_tokens":1}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}],"chat_template_kwargs":{"a":[{}]}}`, `{`, `null`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}}]}]}`, `{"stop":1}`,
		`{"messages":[{"role":"user","content":[` + clip(f, "16000.flac") + `,{"type":"text","text":"<audio>x.wav</audio>"}]}],"max_tokens":1}`,
		`{"messages":[{"role":"user","content":[` + heard("UklGRiQAAABXQVZFZm10IBAAAAABAAEA", "wav") + `]}]}`,
		`{"messages":[{"role":"user","content":[` + image(dataURL(f, "bits.png")) + `,` + heard("ZkxhQwAAACI=", "flac") + `]}],"max_tokens":1}`,
	}
	for _, s := range seeds {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	dir := shown(f, f.TempDir(), "qwen2_5_omni_thinker")
	_, set := withReader(f, dir)
	s := newServerOf(f, dir, func(o *serve.Options) { set(o); o.Context, o.MaxBody = 64, 1<<12 })
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Header().Get("Content-Type") == "text/event-stream" {
			if !bytes.HasSuffix(w.Body.Bytes(), []byte("\n\n")) {
				t.Errorf("a stream without an end: %q", w.Body)
			}
			return
		}
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("status %d, %v: %q", w.Code, err, w.Body)
		}
		switch refused := w.Code/100 == 4; {
		case w.Code != http.StatusOK && !refused:
			t.Errorf("status %d: %s", w.Code, w.Body)
		case refused != (a.Error != nil), !refused && len(a.Choices) == 0:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}
