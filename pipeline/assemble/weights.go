package assemble

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// Weights makes an entry of the store with the files that the plan of a package determines: weights and graph of every part,
// llm_config.json, and a record of them.
type Weights struct {
	*Planned
	Quantizer quant.Quantizer
	Limits    *pipeline.Limits
	// Codes are matrices that were encoded before; nil if there are none.
	Codes *Codes
	// Ahead is the beginning of the text model's weight file.
	Ahead *Ahead
	// Closeness and Hub are for weights that are fetched while they are written: the closeness that their rows must have, and
	// the options of the hub's client.
	Closeness quant.Closeness
	Hub       hub.Options
}

// Codes are encoded matrices.
type Codes struct {
	// Source has the floats that the codes represent.
	Source tensor.Source
	// Encoded is that of [plan.WriteOptions].
	Encoded func(tensor string) io.ReaderAt
}

// Resumable lists the names in the entry from which a killed run resumes.
func (w *Weights) Resumable() []string {
	names := []string{journalFile, spoolDir}
	for _, part := range w.Plan.Parts {
		names = append(names, part.Lowered.WeightFile())
	}
	return names
}

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
func (w *Weights) Make(ctx context.Context, p *pipeline.Partial) (digest.Digest, error) {
	o := w.writeOptions(w.Quantizer, w.Limits)
	o.Progress = func(done int64) { w.Limits.Report("quantize", mnn.WeightFile(""), done, w.Plan.Bytes()) }
	var rec Record
	var digests *sums
	var err error
	if w.Source.Heads != nil {
		s := &streamWriter{dir: p.Dir, entry: p.Name, plan: w.Plan, src: w.Source, closeness: w.Closeness, hub: w.Hub}
		digests, rec.Compared, err = s.write(ctx, o)
	} else if err = disk.CheckSpace(p.Dir, w.Plan.Bytes()+w.GraphBytes); err == nil {
		digests, err = w.write(ctx, p, o)
	}
	if err != nil {
		return "", err
	}
	rec.Tensors, rec.Files = tensorsOf(w.Plan, digests.items), map[string]string{}
	files := map[string][]byte{}
	if files[LLMConfigFile], err = llmConfig(w.Planned); err != nil {
		return "", err
	}
	for k, part := range w.Plan.Parts {
		if files[part.Lowered.GraphFile()], err = part.Graph().Marshal(); err != nil {
			return "", err
		}
		rec.Files[part.Lowered.WeightFile()] = digests.files[k]
	}
	for name, b := range files {
		rec.Files[name] = digest.Of(b).Hex()
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	files[recordFile] = b
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, name), b, 0o666); err != nil {
			return "", err
		}
	}
	for name, sum := range rec.Files {
		p.Knows(name, sum)
	}
	return digest.Of(b), nil
}

// sums are SHA-256 of weight files in hex.
type sums struct {
	items [][]string // by part and item; of those that are written
	files []string   // by part
}

// tensorsOf lists the plan's spans for a manifest.
func tensorsOf(p *plan.Plan, sums [][]string) (list []manifest.Tensor) {
	for k, part := range p.Parts {
		for i := range part.Items {
			it := &part.Items[i]
			name := it.Slot.Weight.Tensor
			if it.Slot.Bias.Tensor != "" {
				name += verify.BiasSeparator + it.Slot.Bias.Tensor
			}
			list = append(list, manifest.Tensor{
				Name: name, Part: part.Lowered.Name, Op: it.Slot.Name, Spec: it.Spec(),
				File: part.Lowered.WeightFile(), Offset: it.Offset, Size: it.Size(), SHA256: sums[k][i],
			})
		}
	}
	return list
}

// openFiles opens the weight files of a plan, which closeAll closes.
func openFiles(dir string, p *plan.Plan) (files []*os.File, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for _, part := range p.Parts {
		f, err := os.OpenFile(filepath.Join(dir, part.Lowered.WeightFile()), os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		files = append(files, f)
	}
	return files, closeAll, nil
}

// write writes the weight files in order.
func (w *Weights) write(ctx context.Context, p *pipeline.Partial, o plan.WriteOptions) (*sums, error) {
	pl, src := w.Plan, w.Source.Weights
	if w.Codes != nil {
		src, o.Encoded = w.Codes.Source, w.Codes.Encoded
		pl = pl.From(src.Tensors())
	}
	files, closeAll, err := openFiles(p.Dir, pl)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	s := &sums{items: make([][]string, len(files))}
	places := all(pl)
	found := 0 // items that an earlier run has written
	j, err := openJournal(p.Dir, p.Name, func(l line) (bool, error) {
		if found == len(places) || (place{l.Part, l.Item}) != places[found] {
			return false, nil
		}
		ok, err := holds(ctx, files[l.Part], &pl.Parts[l.Part].Items[l.Item], l.Sum)
		if ok {
			s.items[l.Part] = append(s.items[l.Part], l.Sum)
			found++
		}
		return ok, err
	})
	if err != nil {
		return nil, err
	}
	defer j.file.Close()
	if found > 0 {
		zerolog.Ctx(ctx).Info().Int("tensors", found).Int("of", len(places)).Msg("resuming after the tensors of an earlier run")
	}
	var before int64
	begun, progress := w.Ahead.take(w.Planned), o.Progress
	for k, part := range pl.Parts {
		o.Progress = func(done int64) { progress(before + done) }
		o.From = len(s.items[k])
		o.Done = func(i int, sum string) error {
			s.items[k] = append(s.items[k], sum)
			return j.note(line{Part: k, Item: i, Sum: sum})
		}
		if o.From > 0 || begun == nil {
			w.Ahead.Stop()
			begun = nil
		}
		sum, err := writePart(ctx, part, files[k], src, o, begun)
		if err != nil {
			return nil, err
		}
		s.files, begun, before = append(s.files, sum), nil, before+part.Bytes
	}
	return s, errors.Join(closeAll(), j.file.Close())
}

// writePart writes the items of a part from o.From on, and returns the SHA-256 of its file. begun is the beginning of the
// whole file, or nil.
func writePart(ctx context.Context, part *plan.Part, f *os.File, src tensor.Source, o plan.WriteOptions, begun *plan.Writing) (string, error) {
	var end int64 // of the last whole item
	if o.From > 0 {
		last := &part.Items[o.From-1]
		end = last.Offset + last.Size()
	}
	if err := f.Truncate(end); err != nil {
		return "", err
	}
	o.File = digest.New()
	if _, err := io.Copy(o.File, f); err != nil { // and stand at its end
		return "", err
	}
	if begun == nil {
		begun = part.Begin(ctx, src, o)
	}
	return begun.Finish(disk.NewWriter(f, end), o.Done, o.Progress)
}
