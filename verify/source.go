package verify

import (
	"context"
	"fmt"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Source is the checkpoint that a package is compared with.
type Source struct {
	Model     Model
	Tensors   tensor.Source
	Tokenizer *tokenizer.Tokenizer
	// TokenizerJSON returns Tokenizer as a tokenizer.json. It reads the checkpoint again, so that a large file is in memory
	// only while it is used.
	TokenizerJSON func() ([]byte, error)
	// Facts are the checkpoint's settings for its tokenizer.
	Facts TokenizerFacts
	// Reference is nil if the weights were not kept: then Tensors cannot be read, and checks that need the float model are
	// skipped.
	Reference Reference
	// Vision is nil if there is no tower that reads pictures, or no Reference.
	Vision *Vision
	// Hearing is nil if there is no encoder of sound, or no Reference.
	Hearing *Hearing
	// Vectors returns the vectors that a model with a pooling makes of windows, one after another; nil for a language model.
	Vectors func(ctx context.Context, windows [][]int32) ([]float32, error)
	// Part returns the reference of a model that has only the given layers, in that order. It is set if
	// Reference is.
	Part func(layers []int) (Reference, error)

	index sync.Once
	infos map[string]tensor.Info // by name, of Tensors
}

// Model holds the facts about the source's model that checks use.
type Model struct {
	// Hidden is the width of the states, Vocab the number of tokens, Layers that of layers.
	Hidden, Vocab, Layers int
	// Deep is how many values as wide as a row follow each row of a picture.
	Deep int
	// MaxPositions is the longest context that the checkpoint declares, in tokens.
	MaxPositions int
	// Bounds are the positions from which attention covers only some of the earlier positions, or uses other rotary
	// frequencies.
	Bounds []int
	// Kinds are the first layers of each kind.
	Kinds []int
	// AbsolutePositions is the reason why the same tokens may have other logits elsewhere in a context, or
	// empty.
	AbsolutePositions string
	// Embedding names the tensor [Vocab, Hidden] of the tokens, whose rows may have more columns for marks of pictures.
	Embedding string
	// Claimed maps every tensor of the checkpoint to its use: "weight", or the reason why it is left out.
	Claimed map[string]string
	// Views maps tensors that the model reads in another form than the checkpoint's to the checkpoint tensors from which
	// they are made.
	Views map[string][]string
}

// Reference computes with the source's model in float32. Hidden states are [tokens, Model.Hidden], windows one after another.
type Reference interface {
	// Fit is how many of the leading windows Hidden and Layers can take at once; 0 if the first one alone is too long for the
	// limit on memory.
	Fit(windows [][]int32) int
	// Hidden returns the input of the head: the states after the final norm.
	Hidden(ctx context.Context, windows [][]int32) ([]float32, error)
	// Layers calls visit with the states after every layer, valid until visit returns. An error of visit ends
	// the run.
	Layers(ctx context.Context, windows [][]int32, visit func(layer int, hidden []float32) error) error
	// Norm applies the final norm to rows of the last states from Layers, in place.
	Norm(hidden []float32) error
	// Logits applies the head to rows of the result of Hidden: dst is [rows, Model.Vocab].
	Logits(ctx context.Context, dst, hidden []float32) error
}

// TokenizerFacts are the ids and texts that a packaged tokenizer carries in addition to its vocabulary.
type TokenizerFacts struct {
	Stop, Special, Prefix  []int32
	ChatTemplate, BOS, EOS string
	// Simplified reports whether the recipe asked for a plain template in place of ChatTemplate.
	Simplified bool
}

// rowReader reads rows of a source tensor as floats.
type rowReader struct {
	read func(b []byte, off int64) error
	info tensor.Info
	raw  []byte
}

// open finds a tensor of the checkpoint.
func (s *Source) open(name string) (rowReader, tensor.Info, error) {
	s.index.Do(func() {
		s.infos = map[string]tensor.Info{}
		for _, t := range s.Tensors.Tensors() {
			s.infos[t.Name] = t
		}
	})
	t, ok := s.infos[name]
	if !ok {
		return rowReader{}, t, fmt.Errorf("the source has no such tensor")
	}
	r, err := s.Tensors.Open(name)
	if err != nil {
		return rowReader{}, t, err
	}
	return rowReader{info: t, read: func(b []byte, off int64) error {
		_, err := r.ReadAt(b, off)
		return err
	}}, t, nil
}

// row fills dst with row r of len(dst) elements.
func (s *rowReader) row(dst []float32, r int) (err error) {
	s.raw, err = s.elements(dst, r*len(dst), s.raw)
	return err
}

// elements fills dst with the elements from the given one on; raw is memory, which it may replace.
func (s *rowReader) elements(dst []float32, from int, raw []byte) ([]byte, error) {
	size := s.info.DType.Size()
	if n := int(int64(len(dst)) * size); cap(raw) < n {
		raw = make([]byte, n)
	} else {
		raw = raw[:n]
	}
	if err := s.read(raw, int64(from)*size); err != nil {
		return raw, err
	}
	return raw, kernel.ToF32(dst, raw, s.info.DType)
}
