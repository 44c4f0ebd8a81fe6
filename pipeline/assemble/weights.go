package assemble

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// Weights makes an entry of the store with the files of a package that follow from its plan: weights, graph and
// llm_config.json, and a record of them.
type Weights struct {
	*Planned
	Quantizer quant.Quantizer
	Limits    *pipeline.Limits
	// Codes are matrices that were encoded before; nil if there are none.
	Codes *Codes
	// Ahead is the beginning of the weight file.
	Ahead *Ahead
	// Closeness and Hub are for weights that are fetched while they are written: the closeness that their rows must have, and
	// the options of the hub's client.
	Closeness quant.Closeness
	Hub       hub.Options
}

// Codes are encoded matrices.
type Codes struct {
	// Source has the floats that they stand for.
	Source tensor.Source
	// Encoded is that of [plan.WriteOptions].
	Encoded func(tensor string) io.ReaderAt
}

// Resumable are the names in an entry of weights from which a killed run resumes.
var Resumable = []string{WeightFile, journalFile, spoolDir}

const recordFile = "record.json"

// Record lists the content of a finished entry of weights.
type Record struct {
	Tensors []manifest.Tensor `json:"tensors"`
	// Files maps names to hex SHA-256.
	Files map[string]string `json:"files"`
	// Compared is the finding of the weights check if the source was not kept; else nil.
	Compared *verify.Finding `json:"compared,omitempty"`
}

// ReadRecord reads the record of an entry of weights.
func ReadRecord(a pipeline.Artifact) (*Record, error) {
	r := &Record{}
	return r, a.ReadJSON(recordFile, r)
}

// Make fills the entry, and returns the digest of its content.
func (w *Weights) Make(ctx context.Context, p *pipeline.Partial) (manifest.Digest, error) {
	o := w.writeOptions(w.Quantizer, w.Limits)
	o.Progress = func(done int64) { w.Limits.Report("quantize", WeightFile, done, w.Plan.Bytes) }
	var rec Record
	var spans []string
	var sum string
	var err error
	if w.Source.Heads != nil {
		s := &streamWriter{dir: p.Dir, entry: p.Name, plan: w.Plan, src: w.Source, closeness: w.Closeness, hub: w.Hub}
		spans, sum, rec.Compared, err = s.write(ctx, o)
	} else if err = disk.CheckSpace(p.Dir, w.Plan.Bytes+w.GraphBytes); err == nil {
		spans, sum, err = w.write(ctx, p, o)
	}
	if err != nil {
		return "", err
	}
	llmConfig, err := llmConfig(w.Planned)
	if err != nil {
		return "", err
	}
	graph, err := w.Plan.Graph().Marshal()
	if err != nil {
		return "", err
	}
	rec.Tensors, rec.Files = tensorsOf(w.Plan, spans), map[string]string{
		WeightFile: sum, GraphFile: manifest.DigestOf(graph).Hex(), LLMConfigFile: manifest.DigestOf(llmConfig).Hex(),
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	for name, b := range map[string][]byte{GraphFile: graph, LLMConfigFile: llmConfig, recordFile: b} {
		if err := os.WriteFile(filepath.Join(p.Dir, name), b, 0o666); err != nil {
			return "", err
		}
	}
	for name, sum := range rec.Files {
		p.Knows(name, sum)
	}
	return manifest.DigestOf(b), nil
}

// tensorsOf lists the plan's spans for a manifest.
func tensorsOf(p *plan.Plan, sums []string) []manifest.Tensor {
	list := make([]manifest.Tensor, len(p.Items))
	for i := range p.Items {
		it := &p.Items[i]
		name := it.Slot.Weight.Tensor
		if it.Slot.Bias.Tensor != "" {
			name += verify.BiasSeparator + it.Slot.Bias.Tensor
		}
		list[i] = manifest.Tensor{
			Name: name, Op: it.Slot.Name, Spec: it.Spec(), File: WeightFile, Offset: it.Offset, Size: it.Size(), SHA256: sums[i],
		}
	}
	return list
}

// write writes the weight file in order, and returns the SHA-256 of every item's span and of the file.
func (w *Weights) write(ctx context.Context, p *pipeline.Partial, o plan.WriteOptions) (sums []string, file string, err error) {
	pl, src := w.Plan, w.Source.Weights
	if w.Codes != nil {
		src, o.Encoded = w.Codes.Source, w.Codes.Encoded
		pl = &plan.Plan{Items: slices.Clone(pl.Items), Bytes: pl.Bytes, Model: pl.Model}
		pl.Take(src.Tensors())
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, WeightFile), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	var end int64 // of the last whole item
	j, err := openJournal(p.Dir, p.Name, func(l line) (bool, error) {
		if l.Item != len(sums) || l.Item >= len(pl.Items) {
			return false, nil
		}
		it := &pl.Items[l.Item]
		ok, err := holds(ctx, f, it, l.Sum)
		if ok {
			sums, end = append(sums, l.Sum), it.Offset+it.Size()
		}
		return ok, err
	})
	if err != nil {
		return nil, "", err
	}
	defer j.file.Close()
	o.File = sha256.New()
	if o.From = len(sums); o.From > 0 {
		zerolog.Ctx(ctx).Info().Int("tensors", o.From).Int("of", len(pl.Items)).Msg("resuming after the tensors of an earlier run")
	}
	if err := f.Truncate(end); err != nil {
		return nil, "", err
	}
	if _, err := io.Copy(o.File, f); err != nil { // and stand at its end
		return nil, "", err
	}
	o.Done = func(i int, sum string) error {
		sums = append(sums, sum)
		return j.note(line{Item: i, Sum: sum})
	}
	writing := w.Ahead.take(w.Planned)
	if o.From > 0 || writing == nil {
		w.Ahead.Stop()
		writing = pl.Begin(ctx, src, o)
	}
	if file, err = writing.Finish(disk.NewWriter(f, end), o.Done, o.Progress); err != nil {
		return nil, "", err
	}
	return sums, file, errors.Join(f.Close(), j.file.Close())
}
