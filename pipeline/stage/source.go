package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/quantized"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Source is an opened checkpoint: headers, description, tokenizer; no weights.
type Source struct {
	Dir string
	// Hub, Repo, Revision and Access are those of manifest.Source.
	Hub, Repo, Revision, Access string
	Files                       []hub.File
	Checkpoint                  *safetensors.Checkpoint
	// Weights are the tensors of Checkpoint, with matrices that are packed codes as floats, and the views of Decoder.
	Weights tensor.Source
	// Quantized is Weights if there are such matrices, else nil.
	Quantized *quantized.Source
	Decoder   *arch.Decoder
	Tokenizer *tokenizer.Tokenizer
	// Facts are those of the small files that describe how the model is used.
	Facts Facts

	config []byte // config.json
	// heads are the beginnings of the shards of a source whose weights are elsewhere: nothing of Weights can be read until
	// Checkpoint is given some. Else nil.
	heads map[string]safetensors.Head
	// ties are tensors that must equal another one, which could not be seen yet for want of weights.
	ties map[string]string
	// elsewhere says where the weights come from; nil if they are in Dir.
	elsewhere *hub.Snapshot
}

// OpenSource opens the checkpoint in dir. The caller closes it.
func OpenSource(dir string, ignore []string) (*Source, error) {
	return openAll(&Source{Dir: dir}, ignore)
}

// OpenSkeleton opens a checkpoint of which the small files and the headers are here. What needs weights is
// [safetensors.ErrNoWeights]; that tied tensors are equal is left to whoever has them. The caller closes it.
func OpenSkeleton(sk *hub.Skeleton, ignore []string) (*Source, error) {
	return openAll(&Source{Dir: sk.Dir, Hub: sk.Source, Repo: sk.Repo, Revision: sk.Revision, heads: heads(sk)}, ignore)
}

// heads are the headers of a skeleton as a checkpoint is opened from them; nil if its weights are here.
func heads(sk *hub.Skeleton) map[string]safetensors.Head {
	if len(sk.Headers) == 0 {
		return nil
	}
	m := make(map[string]safetensors.Head, len(sk.Headers))
	for name, h := range sk.Headers {
		m[name] = safetensors.Head{Size: h.Size, Bytes: h.Header}
	}
	return m
}

func openAll(s *Source, ignore []string) (*Source, error) {
	dir := s.Dir
	var tok *tokenizer.Tokenizer
	var wg sync.WaitGroup
	// Large ones take as long as the headers of all shards. What is wrong with one is found again below.
	wg.Go(func() { tok, _ = LoadTokenizer(dir) })
	err := s.open(ignore)
	wg.Wait()
	if s.Tokenizer = tok; err == nil {
		err = s.readFacts()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open reads what the computation needs.
func (s *Source) open(ignore []string) error {
	var err error
	if s.config, err = readSmall(s.Dir, "config.json"); err != nil {
		return err
	}
	if s.heads == nil {
		s.Checkpoint, err = safetensors.OpenDir(s.Dir)
	} else {
		s.Checkpoint, err = safetensors.OpenHeaders(s.Dir, s.heads)
	}
	if err != nil {
		return err
	}
	config := s.config
	s.Weights = s.Checkpoint
	if !slices.Contains(ignore, "quantization_config") {
		if s.Quantized, err = quantized.Open(s.config, s.Checkpoint); err != nil {
			return err
		}
		if s.Quantized != nil {
			s.Weights, config = s.Quantized, s.Quantized.Config()
		}
	}
	if s.Decoder, err = arch.Describe(config, s.Weights.Tensors(), arch.Options{IgnoreConfig: ignore}); err != nil {
		return err
	}
	s.ties = s.Decoder.Duplicates()
	for dup, of := range s.ties {
		if s.heads != nil {
			break
		}
		if err := equalTensors(s.Weights, dup, of); err != nil {
			return err
		}
	}
	s.Weights, err = arch.Open(s.Decoder, s.Weights)
	return err
}

// openTokenizer reads the tokenizer, if that is still to be done.
func (s *Source) openTokenizer() error {
	if s.Tokenizer == nil {
		var err error
		if s.Tokenizer, err = LoadTokenizer(s.Dir); err != nil {
			return err
		}
	}
	if n := s.Tokenizer.VocabSize(); n > s.Decoder.Vocab {
		return fmt.Errorf("the tokenizer has ids up to %d, the embedding only %d rows: %w", n-1, s.Decoder.Vocab, tensor.ErrCorrupt)
	}
	return nil
}

// readFacts reads the tokenizer and the facts of using it.
func (s *Source) readFacts() error {
	err := s.openTokenizer()
	if err != nil {
		return err
	}
	s.Facts, err = readFacts(s.Dir, s.config, s.Tokenizer)
	return err
}

// Close closes the checkpoint's files.
func (s *Source) Close() {
	if s.Checkpoint != nil {
		s.Checkpoint.Close()
	}
}

// OpenJobSource opens the checkpoint of a job whose first stages have run. The caller closes it.
func OpenJobSource(ctx context.Context, job *pipeline.Job) (*Source, error) {
	return openSource(ctx, job)
}

// openSource opens the checkpoint that the fetch stage found. Once the rewrite stage has read the tokenizer, its
// facts come from there and the tokenizer is left alone: a large one takes longer to read than to quantize for.
func openSource(ctx context.Context, job *pipeline.Job) (*Source, error) {
	a, err := job.Artifacts.One(pipeline.Checkpoint)
	if err != nil {
		return nil, err
	}
	var rec snapshotRecord
	if err := readJSON(a.Path, &rec); err != nil {
		return nil, err
	}
	s := &Source{Dir: rec.Dir, heads: rec.Heads}
	if err = s.open(job.Recipe.Model.IgnoreConfig); err == nil {
		if inputs, none := job.Artifacts.One(pipeline.Inputs); none == nil {
			err = readJSON(filepath.Join(inputs.Path, factsFile), &s.Facts)
		} else {
			if a := aheadOf(job); a != nil {
				<-a.begun
				s.Tokenizer = a.tokenizer
			}
			err = s.readFacts()
		}
	}
	if err != nil {
		s.Close()
		return nil, blame(ctx, a, err)
	}
	if err := s.isOf(job); err != nil {
		s.Close()
		return nil, err
	}
	s.Hub, s.Repo, s.Revision, s.Access = rec.Source, rec.Repo, rec.Revision, rec.Access
	s.Files, s.elsewhere = rec.Files, rec.Elsewhere
	return s, nil
}

// isOf demands the type that the recipe names.
func (s *Source) isOf(job *pipeline.Job) error {
	m := job.Recipe.Model
	if m.Type != "" && m.Type != s.Decoder.ModelType {
		return job.Recipe.Errorf("model.type", "the checkpoint is of model_type %s, not %s", s.Decoder.ModelType, m.Type)
	}
	return nil
}

// readJSON reads a file of the store.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// readSmall reads a file of a checkpoint; a missing one is an error that names it.
func readSmall(dir, name string) ([]byte, error) {
	b, err := readOptional(dir, name)
	if err == nil && b == nil {
		err = fmt.Errorf("%s: the checkpoint has no such file: %w", name, tensor.ErrUnsupported)
	}
	return b, err
}

// readOptional returns nil when the file does not exist. Configurations are read as Python wrote them.
func readOptional(dir, name string) ([]byte, error) {
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
	differ := untied(a, b)
	if ra.Size() != rb.Size() {
		return differ
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(ra, x)
		m, errB := io.ReadFull(rb, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return differ
		}
		if errA != nil || errB != nil {
			if errA == io.EOF || errA == io.ErrUnexpectedEOF {
				return nil
			}
			return errors.Join(errA, errB)
		}
	}
}

// untied says that two tensors are not equal.
func untied(a, of string) error {
	return fmt.Errorf("%s: config.json ties it to %s, but their bytes differ: %w", a, of, tensor.ErrCorrupt)
}
