// Package runtime executes MNN LLM packages: it opens the directory as the engine does, interprets the packaged
// graph with a backend, and keeps the KV cache of a conversation.
//
// Call [Open], then [NewSession]. A package that the engine reads in a way that this runtime does not
// reproduce is rejected with tensor.ErrUnsupported; bytes that contradict each other are tensor.ErrCorrupt.
package runtime

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// Package is an opened package. It is safe for concurrent use until Close.
type Package struct {
	Dir    string
	Config *Config
	// Parts are the graphs of the package, the text model first.
	Parts     []*Part
	Tokenizer *engine.Tokenizer

	embedding *embedding
}

// Part is one of the graphs of a package, with its weights.
type Part struct {
	// Name is empty for the text model, else one of those in config.json.
	Name string
	// GraphFile and WeightFile are names of files, relative to Package.Dir.
	GraphFile, WeightFile string
	Graph                 *mnn.Graph

	weights *weights
}

const (
	maxGraph     = 1<<31 - 1
	maxTokenizer = 256 << 20
)

// Open reads the package in dir. It maps the weights and decodes graphs, tokenizer and configuration.
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
	// The tokenizer takes longest and needs nothing else.
	done := make(chan error)
	go func() { done <- p.openTokenizer() }()
	err = p.openParts()
	return cmp.Or(err, <-done)
}

func (p *Package) openParts() error {
	c := p.Config
	p.Parts = []*Part{{GraphFile: c.LLMModel, WeightFile: c.LLMWeight}}
	for _, name := range c.LLMExport.Parts {
		p.Parts = append(p.Parts, &Part{Name: name, GraphFile: mnn.GraphFile(name), WeightFile: mnn.WeightFile(name)})
	}
	for _, part := range p.Parts {
		if err := part.open(p.Dir); err != nil {
			return err
		}
	}
	var err error
	p.embedding, err = openEmbedding(p.Dir, c, p.Text().weights)
	return err
}

func (p *Part) open(dir string) error {
	b, err := readFile(dir, p.GraphFile, maxGraph)
	if err != nil {
		return err
	}
	if p.Graph, err = mnn.Open(b); err != nil {
		return fmt.Errorf("%s: %w", p.GraphFile, err)
	}
	p.weights, err = openWeights(dir, p.WeightFile)
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

// Text returns the part of the text model.
func (p *Package) Text() *Part { return p.Parts[0] }

// reads reports whether the graph has an input of a name.
func (p *Part) reads(name string) bool {
	return slices.ContainsFunc(p.Graph.Ops, func(op mnn.Op) bool { return op.Type == mnn.OpInput && op.Name == name })
}

// Weights gives access to the weight file.
func (p *Part) Weights() mnn.Weights { return p.weights }

// Vocabulary returns the number of rows of the embedding table.
func (p *Package) Vocabulary() int { return p.embedding.vocab }

// Embed returns the embedding rows of tokens, [len(tokens), hidden], as the engine looks them up.
func (p *Package) Embed(tokens []int32) ([]float32, error) {
	return p.embedding.rows(nil, tokens, false)
}

// Close closes the files of the package, which must not be used afterwards.
func (p *Package) Close() {
	if p.embedding != nil {
		p.embedding.close()
	}
	for _, part := range p.Parts {
		if part.weights != nil {
			part.weights.close()
		}
	}
}
