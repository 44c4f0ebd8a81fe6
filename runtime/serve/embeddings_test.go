package serve_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/sentence"
)

// embeddings is an answer.
type embeddings struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// TestEmbeddings: texts get the vectors that the package has of them, as numbers or in base64, at the same time or one after another.
func TestEmbeddings(t *testing.T) {
	dir, err := stagetest.Export(t.Context(), t.TempDir(), "../../testdata/sentence/xlm-roberta-mean", "quantize: {bits: 16}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	s := newServerOf(t, dir, nil)
	m, err := sentence.Open(s.pkg, false)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"The cat sat.", "", "A rather longer sentence, with commas.", "The cat sat."}
	var want [][]float32
	tokens := 0
	for _, text := range texts {
		v, n, err := m.Embed(t.Context(), s.session, text)
		if err != nil {
			t.Fatal(err)
		}
		want, tokens = append(want, slices.Clone(v)), tokens+n
	}
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			format := []string{"float", "base64"}[i%2]
			status, _, body := s.do("POST", "/v1/embeddings", fmt.Sprintf(`{"model": "tiny", "input": %s, "encoding_format": %q, "user": "x"}`, input, format))
			var a embeddings
			if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK || len(a.Data) != len(texts) ||
				a.Object != "list" || a.Model != "tiny" || a.Usage.Prompt != tokens || a.Usage.Total != tokens {
				t.Errorf("%d %s %v", status, body, err)
				return
			}
			for i, d := range a.Data {
				if v := vectorOf(t, d.Embedding, format); d.Index != i || d.Object != "embedding" || !slices.Equal(v, want[i]) {
					t.Errorf("text %d: %v, want %v", i, v, want[i])
				}
			}
		})
	}
	wait.Wait()
	if status, _, body := s.do("POST", "/v1/embeddings", `{"input": "one text"}`); status != http.StatusOK || !strings.Contains(body, `"index":0`) {
		t.Errorf("%d %s", status, body)
	}
	if _, _, body := s.do("GET", "/v1/models", ""); !strings.Contains(body, `"embeddings":true`) || strings.Contains(body, "chat") {
		t.Error(body)
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/embeddings", `{}`, 400, "input is missing"},
		{"/v1/embeddings", `{"input": []}`, 400, "0 texts"},
		{"/v1/embeddings", `{"input": [1, 2]}`, 400, "ids of tokens are not supported"},
		{"/v1/embeddings", `{"input": {"text": "x"}}`, 400, "a text or a list of texts"},
		{"/v1/embeddings", `{"input": "x", "encoding_format": "int8"}`, 400, "must be float or base64"},
		{"/v1/embeddings", `{"input": "x", "dimensions": 8}`, 400, "does not support dimensions"},
		{"/v1/embeddings", `{"input": "x", "model": "other"}`, 404, "there is no model"},
		{"/v1/embeddings", fmt.Sprintf(`{"input": %q}`, strings.Repeat("people ", 300)), 400, "text 0: the text has"},
		{"/v1/embeddings", `[`, 400, "not a JSON object"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}]}`, 400, "only /v1/embeddings answers"},
		{"/v1/completions", `{"prompt": "x"}`, 400, "only /v1/embeddings answers"},
	} {
		if status, _, body := s.do("POST", c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.body, status, body, c.status, c.want)
		}
	}
	if status, _, _ := s.do("GET", "/", ""); status != http.StatusNotFound {
		t.Errorf("a page to talk to: %d", status)
	}
	if status, _, body := newServer(t, nil).do("POST", "/v1/embeddings", `{"input": "x"}`); status != 400 || !strings.Contains(body, "makes no embeddings") {
		t.Errorf("%d %s", status, body)
	}
}

// vectorOf reads a vector in a format.
func vectorOf(t *testing.T, raw json.RawMessage, format string) (v []float32) {
	t.Helper()
	if format == "float" {
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Error(err)
		}
		return v
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Error(err)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Error(err)
	}
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}
