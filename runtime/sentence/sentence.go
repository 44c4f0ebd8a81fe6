// Package sentence turns texts into vectors, and scores documents for a query, with a package, as the classes Embedding and
// Reranker of the engine do.
//
// Call [Open], then [Model.Embed] or [Model.Score] with a session of the package.
package sentence

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Model encodes texts for a package. It is safe for concurrent use.
type Model struct {
	pkg      *runtime.Package
	template *chat.Template // of embedding models
	yes, no  int32          // of a reranker that is a language model
}

// answering is the model_type of the language models that the engine uses as rerankers: its prompt is theirs.
const answering = "qwen3"

// Open returns the model of a package that embeds texts, or with rerank, of one that scores documents. Another package is a
// tensor.ErrUnsupported.
func Open(p *runtime.Package, rerank bool) (*Model, error) {
	m := &Model{pkg: p}
	switch task := p.Task(); {
	case rerank && task == runtime.Rerank:
		return m, nil
	case rerank && task == runtime.Generate && p.Config.ModelType == answering:
		var err error
		if m.yes, err = m.answer("yes"); err == nil {
			m.no, err = m.answer("no")
		}
		return m, err
	case rerank:
		return nil, fmt.Errorf("the package is no reranker: its graph computes %s, of model_type %q: %w", results[task], p.Config.ModelType, tensor.ErrUnsupported)
	case task != runtime.Embed:
		return nil, fmt.Errorf("the package is no embedding model: its graph computes %s: %w", results[task], tensor.ErrUnsupported)
	}
	var err error
	m.template, err = chat.Open(p)
	return m, err
}

// results are what graphs compute, for messages.
var results = map[runtime.Task]string{
	runtime.Generate: "logits of the next token", runtime.Embed: "vectors of texts", runtime.Rerank: "scores of documents",
}

// answer returns the first token of a word.
func (m *Model) answer(word string) (int32, error) {
	ids := m.pkg.Tokenizer.Encode(word)
	if len(ids) == 0 {
		return 0, fmt.Errorf("the tokenizer has no token for %q: %w", word, tensor.ErrUnsupported)
	}
	return ids[0], nil
}

// LengthError rejects a text that has more tokens than the package has positions.
type LengthError struct{ Tokens, Most int }

func (e *LengthError) Error() string {
	return fmt.Sprintf("the text has %d tokens, and the package takes at most %d", e.Tokens, e.Most)
}

// check rejects texts that the package cannot hold.
func (m *Model) check(tokens []int32, extra int) error {
	if most := m.pkg.Config.MaxPositions + extra; most > 0 && len(tokens) > most {
		return &LengthError{len(tokens), most}
	}
	return nil
}

// Tokens returns the ids of a text to embed, as the engine has them.
func (m *Model) Tokens(ctx context.Context, text string) ([]int32, error) {
	rendered, err := m.template.Render(ctx, conversations.Conversation{
		Messages: []*template.Object{chat.Message("user", text)}, AddGenerationPrompt: true,
	}, template.Limits{})
	if err != nil {
		return nil, err
	}
	ids := m.pkg.Tokenizer.Encode(rendered)
	if len(ids) == 0 {
		return nil, fmt.Errorf("the text has no tokens")
	}
	return ids, m.check(ids, 0)
}

// Embed returns the vector of a text, and its number of tokens. The vector is valid until the next use of the session.
func (m *Model) Embed(ctx context.Context, s *runtime.Session, text string) (vector []float32, tokens int, err error) {
	ids, err := m.Tokens(ctx, text)
	if err != nil {
		return nil, 0, err
	}
	vector, err = s.Vector(ctx, ids)
	return vector, len(ids), err
}

// Query is what documents are scored for. Instruct tells a reranker that is a language model what to judge.
type Query struct{ Instruct, Text string }

// DefaultInstruct is the instruction of the authors of Qwen3-Reranker.
const DefaultInstruct = "Given a web search query, retrieve relevant passages that answer the query"

// The ids that the engine has built in for pairs: the begin of a text, a mark that graphs of this program remove, and the end.
const begin, mark, end = 0, 6, 2

// PairTokens returns the ids of a query and a document, as the engine has them.
func (m *Model) PairTokens(q Query, document string) (ids []int32, err error) {
	encode := m.pkg.Tokenizer.Encode
	if m.pkg.Task() == runtime.Rerank {
		ids = append(append([]int32{begin, mark}, encode(q.Text)...), end, end)
		ids = append(append(ids, encode(document)...), end)
		return ids, m.check(ids, 1)
	}
	const system = "Judge whether the Document meets the requirements based on the Query and the Instruct provided. " +
		`Note that the answer can only be "yes" or "no".`
	before := "<|im_start|>system\n" + system + "<|im_end|>\n<|im_start|>user\n<Instruct>: " + q.Instruct + "\n<Query>: " + q.Text + "\n<Document>: "
	ids = encode(before)
	ids = append(append(ids, encode(document)...), encode("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")...)
	return ids, m.check(ids, 0)
}

// Score returns the score of a document, and the number of tokens of the pair: what the graph computes, or of a language model
// the share of yes in the answer.
func (m *Model) Score(ctx context.Context, s *runtime.Session, q Query, document string) (score float32, tokens int, err error) {
	ids, err := m.PairTokens(q, document)
	if err != nil {
		return 0, 0, err
	}
	if m.pkg.Task() == runtime.Rerank {
		v, err := s.Vector(ctx, ids)
		if err != nil {
			return 0, 0, err
		}
		return v[0], len(ids), nil
	}
	// The engine computes the logits of all tokens, which int8 rounds differently from those of the last token alone.
	if err := s.Advance(ctx, [][]int32{ids}); err != nil {
		return 0, 0, err
	}
	logits, err := s.Logits(ctx, len(ids)-1, len(ids))
	if err != nil {
		return 0, 0, err
	}
	return m.share(logits), len(ids), nil
}

// share is the probability of yes among yes and no.
func (m *Model) share(logits []float32) float32 {
	return float32(1 / (1 + kernel.Exp(float64(logits[m.no])-float64(logits[m.yes]))))
}
