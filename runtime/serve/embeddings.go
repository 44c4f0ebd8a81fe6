package serve

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/runtime/sentence"
)

// maxTexts bounds the texts of a request for embeddings, as OpenAI's interface does.
const maxTexts = 2048

// continues passes on requests for texts to continue, if the package does that.
func (s *Server) continues(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.vectors != nil {
			badf("", "the package turns texts into vectors: only /v1/embeddings answers").write(w)
			return
		}
		next(w, r)
	}
}

// embeddingRequest is a request that was understood.
type embeddingRequest struct {
	texts  []string
	base64 bool
}

// readEmbedding reads a request for embeddings.
func (s *Server) readEmbedding(body []byte) (*embeddingRequest, error) {
	if s.vectors == nil {
		return nil, badf("", "the package continues texts; it makes no embeddings")
	}
	f, err := readFields(body)
	if err == nil {
		err = s.readModel(f)
	}
	if err != nil {
		return nil, err
	}
	var e embeddingRequest
	var one string
	switch raw := f["input"]; {
	case raw == nil:
		return nil, badf("input", "input is missing")
	case json.Unmarshal(raw, &one) == nil:
		e.texts = []string{one}
	case json.Unmarshal(raw, &e.texts) != nil:
		return nil, badf("input", "input must be a text or a list of texts; ids of tokens are not supported, because they are those of a certain tokenizer")
	}
	delete(f, "input")
	if n := len(e.texts); n == 0 || n > maxTexts {
		return nil, badf("input", "input has %d texts; 1 to %d are accepted", n, maxTexts)
	}
	format := "float"
	if _, err := f.read("encoding_format", &format, "a text"); err != nil {
		return nil, err
	}
	if format != "float" && format != "base64" {
		return nil, badf("encoding_format", "encoding_format must be float or base64, not %q", format)
	}
	e.base64 = format == "base64"
	return &e, f.done()
}

// embeddingAnswer is the vector of a text.
type embeddingAnswer struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or their bytes in base64
}

// embeddings answers a request for embeddings.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	ctx, done := s.bounded(r)
	defer done()
	status, tokens := http.StatusOK, 0
	body, err := s.readBody(w, r)
	var e *embeddingRequest
	if err == nil {
		e, err = s.readEmbedding(body)
	}
	if err == nil {
		var list []embeddingAnswer
		if list, tokens, err = s.embed(ctx, e); err == nil {
			s.json(w, map[string]any{
				"object": "list", "data": list, "model": s.o.Name, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens},
			})
		}
	}
	if err != nil {
		failure := asAPI(ctx, err)
		status = failure.status
		failure.write(w)
	}
	s.metrics.request(status)
	zerolog.Ctx(r.Context()).Debug().Str("path", r.URL.Path).Int("status", status).Int("prompt", tokens).Dur("dur", time.Since(start)).Msg("answered")
}

// embed computes the vectors of a request, and the number of tokens of its texts.
func (s *Server) embed(ctx context.Context, e *embeddingRequest) (list []embeddingAnswer, tokens int, err error) {
	inputs := make([][]int32, len(e.texts))
	longest := 0
	for i, text := range e.texts {
		if inputs[i], err = s.vectors.Tokens(ctx, text); errors.As(err, new(*sentence.LengthError)) {
			return nil, 0, badf("input", "text %d: %v", i, err)
		}
		if err != nil {
			return nil, 0, err
		}
		tokens, longest = tokens+len(inputs[i]), max(longest, len(inputs[i]))
	}
	l, err := s.pool.take(ctx, nil, longest)
	if err != nil {
		return nil, 0, err
	}
	defer s.pool.give(l)
	for i, ids := range inputs {
		v, err := l.Vector(ctx, ids)
		if err != nil {
			return nil, 0, err
		}
		a := embeddingAnswer{Object: "embedding", Index: i, Embedding: append([]float32{}, v...)}
		if e.base64 {
			raw := make([]byte, 0, 4*len(v))
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			a.Embedding = base64.StdEncoding.EncodeToString(raw)
		}
		list = append(list, a)
	}
	s.metrics.add(tokens, 0, 0)
	return list, tokens, nil
}
