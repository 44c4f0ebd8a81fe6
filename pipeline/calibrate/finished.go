package calibrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Op is a line of the table of errors: an encoded matrix.
type Op struct {
	Tensor string `json:"tensor"`
	Spec   string `json:"spec"`
	// WeightError is the relative squared error of the weights, OutputError that of the op's outputs over the calibration tokens,
	// before scales were tuned; 0 without statistics, as for matrices in 16 bits.
	WeightError float64 `json:"weight_error"`
	OutputError float64 `json:"output_error"`
	// Dead is the number of input columns that were 0 for all tokens.
	Dead int `json:"dead,omitempty"`
	// Spread is the mean over the geometric mean of the mean squares of the input columns, those that are 0 left out: 1 where all are
	// alike, up to 2 or so in models without outliers, and 20 or more where a few columns stand out. 0 without statistics.
	Spread float64 `json:"spread,omitempty"`
	// Tokens is the number of input vectors.
	Tokens int64 `json:"tokens,omitempty"`

	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// Resumable are patterns of the names of files from which a killed [Quantize] or [Tune] resumes.
var Resumable = []string{"[0-9]*.codes", "rotated-*.f32", journalFile, overlayFile, foldingsFile, snapshotFile}

// Files of a directory. Those of tuned scales have a prefix.
const (
	journalFile = "ops.jsonl"
	overlayFile = "overlay.json"
	tunedPrefix = "tuned-"
)

// Finished is a directory of encoded matrices: one file each, with codes and scales as they are stored in a package's weights,
// and a journal with a line for each, written when its file is complete. The journal and the other files are sealed with the name
// of the directory and their own.
type Finished struct {
	// Ops in the order in which they were finished.
	Ops []Op

	dir     string
	name    string // see Options
	prefix  string
	mu      sync.RWMutex      // of paths
	paths   map[string]string // of the files of tensors
	journal *journal
}

// OpenFinished reads the matrices that were finished in dir under a name, with tuned scales if there are any. Lines of another
// name, and those whose file is missing or has other bytes, are dropped together with all later ones.
func OpenFinished(dir, name string) (*Finished, error) {
	if _, err := os.Stat(filepath.Join(dir, tunedPrefix+overlayFile)); err == nil {
		return openFinished(dir, name, tunedPrefix)
	}
	return openFinished(dir, name, "")
}

func newFinished(dir, name, prefix string) *Finished {
	f := &Finished{dir: dir, name: name, prefix: prefix, paths: map[string]string{}}
	f.journal = &journal{path: filepath.Join(dir, prefix+journalFile), name: f.about(prefix + journalFile)}
	return f
}

// about returns the name that a file is sealed with.
func (f *Finished) about(file string) string { return f.name + "/" + file }

func openFinished(dir, name, prefix string) (f *Finished, err error) {
	f = newFinished(dir, name, prefix)
	f.journal, err = readJournal(f.journal.path, f.journal.name, func(op Op) bool {
		if op.File != filepath.Base(op.File) {
			return false
		}
		if sum, err := sumOfFile(filepath.Join(dir, op.File)); err != nil || sum != op.SHA256 {
			return false
		}
		f.append(op)
		return true
	})
	return f, err
}

func sumOf(b []byte) string {
	return digest.Of(b).Hex()
}

func sumOfFile(path string) (string, error) {
	r, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := digest.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return h.Hex(), nil
}

func (f *Finished) append(op Op) {
	f.Ops = append(f.Ops, op)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[op.Tensor] = filepath.Join(f.dir, op.File)
}

// path is that of the file of a tensor, or empty.
func (f *Finished) path(tensor string) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.paths[tensor]
}

// resume lets more matrices be added.
func (f *Finished) resume() error { return f.journal.cut(len(f.Ops)) }

// add stores the codes and scales of a matrix.
func (f *Finished) add(op Op, encoded []byte) error {
	op.File, op.SHA256 = f.next(), sumOf(encoded)
	if err := os.WriteFile(filepath.Join(f.dir, op.File), encoded, 0o666); err != nil {
		return err
	}
	return f.record(op)
}

// write is add for a matrix whose codes and scales are not in memory at once: put writes them to a file and may change op.
func (f *Finished) write(op *Op, put func(to *os.File) error) error {
	op.File = f.next()
	path := filepath.Join(f.dir, op.File)
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	err = put(to)
	if err := cmp.Or(err, to.Close()); err != nil {
		return err
	}
	if op.SHA256, err = sumOfFile(path); err != nil {
		return err
	}
	return f.record(*op)
}

// next is the name of the next file.
func (f *Finished) next() string { return fmt.Sprintf("%s%05d.codes", f.prefix, len(f.Ops)) }

// record adds a matrix whose file is written to the journal.
func (f *Finished) record(op Op) error {
	if err := f.journal.add(op); err != nil {
		return err
	}
	f.append(op)
	return nil
}

// close ends the journal.
func (f *Finished) close() error { return f.journal.close() }

// Has reports whether a tensor is finished.
func (f *Finished) Has(tensor string) bool { return f.path(tensor) != "" }

// Encoded opens the codes and scales of a tensor, or returns nil, as plan.WriteOptions requires.
func (f *Finished) Encoded(tensor string) io.ReaderAt {
	if path := f.path(tensor); path != "" {
		return file(path)
	}
	return nil
}

// changes is the content of an overlay's file.
type changes struct {
	Overlay json.RawMessage `json:"overlay"`
	// Files are the SHA-256 of the files that the overlay reads, by name.
	Files map[string]string `json:"files,omitempty"`
}

// changes reads the file of the overlay; nil if it does not exist.
func (f *Finished) changes() (*changes, error) {
	name := f.prefix + overlayFile
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if os.IsNotExist(err) {
		return nil, nil
	}
	c := &changes{}
	if err == nil {
		err = sealed.Unmarshal(f.about(name), b, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Source returns the checkpoint with the float tensors that the codes stand for: foldings and tuned norms applied.
func (f *Finished) Source(base tensor.Source) (tensor.Source, error) {
	c, err := f.changes()
	if c == nil {
		return base, err
	}
	return OpenOverlay(base, c.Overlay, f.dir)
}

// rewritten reports whether an earlier run has stored the overlay, all files that it reads, and the foldings.
func (f *Finished) rewritten(folded bool) bool {
	c, err := f.changes()
	if c == nil || err != nil {
		return false
	}
	for name, want := range c.Files {
		if sum, err := sumOfFile(filepath.Join(f.dir, filepath.Base(name))); err != nil || sum != want {
			return false
		}
	}
	list, err := f.Foldings()
	return err == nil && (list != nil || !folded)
}

// Foldings returns the effects of the foldings; nil without any.
func (f *Finished) Foldings() ([]Folding, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, foldingsFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var list []Folding
	if err == nil {
		err = sealed.Unmarshal(f.about(foldingsFile), b, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", foldingsFile, err)
	}
	return append([]Folding{}, list...), nil
}

// setFoldings stores the effects of the foldings.
func (f *Finished) setFoldings(list []Folding) error {
	b, err := sealed.Marshal(f.about(foldingsFile), list)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(f.dir, foldingsFile), b)
}

// setOverlay stores the changes of float tensors.
func (f *Finished) setOverlay(o *Overlay) error {
	c := changes{Files: map[string]string{}}
	var err error
	if c.Overlay, err = o.Marshal(); err != nil {
		return err
	}
	for _, x := range o.changes {
		if x.file == "" {
			continue
		}
		if c.Files[filepath.Base(x.file)], err = sumOfFile(x.file); err != nil {
			return err
		}
	}
	name := f.prefix + overlayFile
	b, err := sealed.Marshal(f.about(name), c)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(f.dir, name), b)
}

// replaceFile replaces a file atomically.
func replaceFile(path string, b []byte) error {
	if err := os.WriteFile(path+".tmp", b, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// Digest identifies the content.
func (f *Finished) Digest() string {
	h := digest.New()
	if c, err := f.changes(); c != nil && err == nil { // absent without changes
		h.Write(c.Overlay)
	}
	for _, op := range f.Ops {
		fmt.Fprintln(h, op.Tensor, op.Spec, op.SHA256)
	}
	return h.Hex()
}

// weights returns the weights that the codes of a linear layer stand for.
func (f *Finished) weights(l *forward.Linear, specs map[string]quant.Spec) ([]float32, error) {
	name := l.Weight.Tensor
	spec, ok := specs[name]
	if !ok {
		return nil, fmt.Errorf("internal error: no spec for %s", name)
	}
	layout, err := spec.Layout(l.Rows, l.Cols)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b, err := f.of(name, layout.Bytes())
	if err != nil {
		return nil, err
	}
	return decodeMatrix(b, l.Rows, l.Cols, spec)
}

// of returns the bytes of a tensor whose size is known.
func (f *Finished) of(name string, size int64) ([]byte, error) {
	if !f.Has(name) {
		return nil, fmt.Errorf("%s is not encoded", name)
	}
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(b)) != size {
		return nil, fmt.Errorf("%s: %d bytes of codes, %d expected: %w", name, len(b), size, tensor.ErrCorrupt)
	}
	return b, nil
}
