package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/plan"
)

// journal lists the finished items of weight files, so that a killed run resumes with those that are missing. A line counts
// only if it is sealed with the name of its entry and the bytes of the item's file agree with it.
type journal struct {
	entry string // of the store
	file  *os.File
}

// line is an item whose bytes are in the file, or a tied tensor that has been compared.
type line struct {
	Part  int     `json:"part,omitempty"`
	Item  int     `json:"item"`
	Tie   string  `json:"tie,omitempty"`
	Sum   string  `json:"sha256"`
	Share float64 `json:"share,omitempty"` // of its bound, where the item was compared
}

const journalFile = "journal"

// openJournal rewrites the journal of an entry with the lines of an earlier run that take accepts.
func openJournal(dir, entry string, take func(line) (bool, error)) (*journal, error) {
	path := filepath.Join(dir, journalFile)
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	j := &journal{entry: entry}
	if j.file, err = os.Create(path); err != nil {
		return nil, err
	}
	for text := range bytes.Lines(before) {
		var l line
		if sealed.Unmarshal(j.about(), text, &l) != nil {
			break
		}
		ok, err := take(l)
		if ok && err == nil {
			err = j.note(l)
		}
		if err != nil {
			return nil, errors.Join(err, j.file.Close())
		}
	}
	return j, nil
}

// about names the subject of the lines.
func (j *journal) about() string { return j.entry + "/" + journalFile }

// note appends a line to the journal.
func (j *journal) note(l line) error {
	b, err := j.text(l)
	if err == nil {
		_, err = j.file.Write(b)
	}
	return err
}

// text is a line as it stands in the file.
func (j *journal) text(l line) ([]byte, error) {
	b, err := sealed.Marshal(j.about(), l)
	return append(b, '\n'), err
}

// replace closes the journal and gives it these lines, at once.
func (j *journal) replace(lines []line) error {
	var all []byte
	for _, l := range lines {
		b, err := j.text(l)
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	path := j.file.Name()
	return errors.Join(j.file.Close(), os.WriteFile(path+".new", all, 0o666), os.Rename(path+".new", path))
}

// holds reports whether a weight file has the bytes of an item with this SHA-256.
func holds(ctx context.Context, f *os.File, it *plan.Item, sum string) (bool, error) {
	h := digest.New()
	n, err := io.Copy(h, transfer.Cancellable(ctx, io.NewSectionReader(f, it.Offset, it.Size())))
	if err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Base(f.Name()), err)
	}
	return n == it.Size() && h.Hex() == sum, nil
}
