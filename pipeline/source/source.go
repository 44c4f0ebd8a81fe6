// Package source opens checkpoints: the headers of their shards, the description of the model, its tokenizer, and the
// [Facts] of using it. [Open] opens all of it at once. [OpenModel] opens what planning needs, and [Source.Complete] reads
// the rest when needed.
//
// No weights are read, except to compare tensors that config.json ties to each other. A damaged file is a [tensor.ErrCorrupt],
// and an unsupported one a [tensor.ErrUnsupported]; both errors name the file.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/quantized"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Source is an open checkpoint.
type Source struct {
	Origin
	Checkpoint *safetensors.Checkpoint
	// Weights are the tensors of Checkpoint, with matrices that are packed codes as floats, and the views of Decoder.
	Weights tensor.Source
	// Quantized is Weights if there are such matrices, else nil.
	Quantized *quantized.Source
	Model     *arch.Model
	Decoder   *arch.Decoder // Model.Text
	// Ties maps the names of tensors to those of tensors that they must equal. Without weights they are not compared yet.
	Ties map[string]string

	// Tokenizer and Facts are valid after Complete.
	Tokenizer *tokenizer.Tokenizer
	Facts     Facts
	// Pictures are the facts of the tower that reads pictures; nil without one.
	Pictures *Pictures
	// Sounds are those of the encoder of sound; nil without one.
	Sounds *Sounds

	completed sync.Once
	err       error // of completing
}

// Open opens the checkpoint of an origin, and reads its tokenizer and its facts. ignore lists keys of config.json that may
// be ignored. The caller closes the source.
func Open(ctx context.Context, o Origin, ignore []string) (*Source, error) {
	var tok *tokenizer.Tokenizer
	var wg sync.WaitGroup
	// A large tokenizer takes as long as the headers of all shards. Complete reports any error again.
	wg.Go(func() { tok, _ = LoadTokenizer(o.Dir) })
	s, err := OpenModel(ctx, o, ignore)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	s.Tokenizer = tok
	if err := s.Complete(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// OpenModel opens what the computation needs, without tokenizer and facts. If the weights of the origin are elsewhere, reading
// one returns [safetensors.ErrNoWeights]. The caller closes the source.
func OpenModel(ctx context.Context, o Origin, ignore []string) (*Source, error) {
	zerolog.Ctx(ctx).Debug().Str("dir", o.Dir).Msg("opening the checkpoint")
	s := &Source{Origin: o}
	if err := s.open(ignore); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) open(ignore []string) error {
	config, err := readSmall(s.Dir, "config.json")
	if err != nil {
		return err
	}
	modules, err := readModules(s.Dir)
	if err != nil {
		return err
	}
	if s.Heads == nil {
		s.Checkpoint, err = safetensors.OpenDir(s.Dir, weighted(modules)...)
	} else {
		s.Checkpoint, err = safetensors.OpenHeaders(s.Dir, s.Heads, weighted(modules)...)
	}
	if err != nil {
		return err
	}
	s.Weights = s.Checkpoint
	if !slices.Contains(ignore, "quantization_config") {
		if s.Quantized, err = quantized.Open(config, s.Checkpoint); err != nil {
			return err
		}
		if s.Quantized != nil {
			s.Weights, config = s.Quantized, s.Quantized.Config()
		}
	}
	if s.Model, err = arch.Describe(config, s.Weights.Tensors(), arch.Options{IgnoreConfig: ignore, Modules: modules}); err != nil {
		return err
	}
	s.Decoder = s.Model.Text
	if s.Decoder.Pooling != nil {
		notes, err := readUse(s.Dir)
		if err != nil {
			return err
		}
		s.Decoder.Notes = append(s.Decoder.Notes, notes...)
	}
	s.Ties = s.Decoder.Duplicates()
	for dup, of := range s.Ties {
		if s.Heads != nil {
			break
		}
		if err := equalTensors(s.Weights, dup, of); err != nil {
			return err
		}
	}
	s.Weights, err = arch.Open(s.Decoder, s.Weights)
	return err
}

// Complete reads the tokenizer and the facts of using the model, once: later and concurrent calls return the same error.
func (s *Source) Complete(ctx context.Context) error {
	s.completed.Do(func() { s.err = s.complete(ctx) })
	return s.err
}

func (s *Source) complete(ctx context.Context) error {
	zerolog.Ctx(ctx).Debug().Str("dir", s.Dir).Msg("reading the tokenizer")
	var err error
	if s.Tokenizer == nil {
		if s.Tokenizer, err = LoadTokenizer(s.Dir); err != nil {
			return err
		}
	}
	if n := s.Tokenizer.VocabSize(); n > s.Decoder.Vocab {
		return fmt.Errorf("the tokenizer has ids up to %d, but the embedding only %d rows: %w", n-1, s.Decoder.Vocab, tensor.ErrCorrupt)
	}
	if s.Facts, err = readFacts(s.Dir, s.Tokenizer); err != nil {
		return err
	}
	for _, t := range s.Model.Towers {
		if s.Pictures, err = readPictures(s.Dir, t, s.Decoder.Vocab, s.Tokenizer); err != nil {
			return err
		}
		s.Facts.openByTemplate(s.Tokenizer)
	}
	if e := s.Model.Ear; e != nil {
		if s.Sounds, err = readSounds(s.Dir, e, s.Tokenizer); err != nil {
			return err
		}
		s.Facts.openByTemplate(s.Tokenizer)
	}
	if s.Decoder.Pooling != nil {
		return s.Facts.PackSentence(s.Tokenizer, s.Decoder.Pooling.Pairs)
	}
	return nil
}

// Close closes the files of the checkpoint.
func (s *Source) Close() {
	if s.Checkpoint != nil {
		s.Checkpoint.Close()
	}
}

// readSmall reads a file of a checkpoint; a missing one is an error that names it.
func readSmall(dir, name string) ([]byte, error) {
	b, err := ReadOptional(dir, name)
	if err == nil && b == nil {
		err = lackError(fmt.Sprintf("a checkpoint needs %s, which %s lacks", name, dir))
	}
	return b, err
}

// lackError is a tensor.ErrUnsupported with a text of its own.
type lackError string

func (e lackError) Error() string        { return string(e) }
func (e lackError) Is(target error) bool { return target == tensor.ErrUnsupported }

// ReadOptional returns the content of a small file of a checkpoint or a package, nil if it does not exist. Configurations are
// converted from the JSON that Python writes.
func ReadOptional(dir, name string) ([]byte, error) {
	b, err := disk.ReadFile(filepath.Join(dir, name), hub.MaxSize(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && strings.HasSuffix(name, "config.json") {
		b = arch.PlainJSON(b)
	}
	return b, err
}

// equalTensors compares the bytes of two tensors.
func equalTensors(src tensor.Source, a, b string) error {
	ra, err := src.Open(a)
	if err != nil {
		return err
	}
	rb, err := src.Open(b)
	if err != nil {
		return err
	}
	if ra.Size() != rb.Size() {
		return Untied(a, b)
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(ra, x)
		m, errB := io.ReadFull(rb, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return Untied(a, b)
		}
		if errA != nil || errB != nil {
			if errA == io.EOF || errA == io.ErrUnexpectedEOF {
				return nil
			}
			return errors.Join(errA, errB)
		}
	}
}

// Untied returns the error for a tensor that differs from the one that it is tied to.
func Untied(a, of string) error {
	return fmt.Errorf("%s: config.json ties it to %s, but their bytes differ: %w", a, of, tensor.ErrCorrupt)
}
