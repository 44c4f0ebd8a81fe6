// Package runtime executes MNN LLM packages: it opens the directory as the engine does, interprets the packaged
// graph with a backend, and keeps the KV cache of a conversation.
//
// Call [Open], then [NewSession]. Packages that the engine would read in a way this runtime does not
// reproduce are refused with tensor.ErrUnsupported; bytes that contradict each other are tensor.ErrCorrupt.
package runtime

import (
	"cmp"
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// Package is an opened package. It is safe for concurrent use until Close.
type Package struct {
	Dir       string
	Config    *Config
	Graph     *mnn.Graph
	Tokenizer *engine.Tokenizer

	weights   *weights
	embedding *embedding
}

const (
	maxGraph     = 1<<31 - 1
	maxTokenizer = 256 << 20
)

// Open reads the package in dir. It maps the weights and decodes graph, tokenizer and configuration.
func Open(dir string) (*Package, error) {
	p := &Package{Dir: dir}
	if err := p.open(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Package) open() error {
	var err error
	if p.Config, err = readConfig(p.Dir); err != nil {
		return err
	}
	// The tokenizer takes longest and needs nothing of the rest.
	done := make(chan error)
	go func() { done <- p.openTokenizer() }()
	err = p.openModel()
	return cmp.Or(err, <-done)
}

func (p *Package) openModel() error {
	c := p.Config
	b, err := readFile(p.Dir, c.LLMModel, maxGraph)
	if err != nil {
		return err
	}
	if p.Graph, err = mnn.Open(b); err != nil {
		return fmt.Errorf("%s: %w", c.LLMModel, err)
	}
	if p.weights, err = openWeights(p.Dir, c.LLMWeight); err != nil {
		return err
	}
	p.embedding, err = openEmbedding(p.Dir, c, p.weights)
	return err
}

func (p *Package) openTokenizer() error {
	name := p.Config.TokenizerFile
	b, err := readFile(p.Dir, name, maxTokenizer)
	if err != nil {
		return err
	}
	if p.Tokenizer, err = engine.Open(b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Weights gives access to the weight file.
func (p *Package) Weights() mnn.Weights { return p.weights }

// Vocabulary is the number of rows of the embedding table.
func (p *Package) Vocabulary() int { return p.embedding.vocab }

// Embed returns the embedding rows of tokens, [len(tokens), hidden], as the engine looks them up.
func (p *Package) Embed(tokens []int32) ([]float32, error) { return p.embedding.rows(nil, tokens) }

// Close ends the use of the package's files.
func (p *Package) Close() {
	if p.embedding != nil {
		p.embedding.close()
	}
	if p.weights != nil {
		p.weights.close()
	}
}
