package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

const biasSeparator = verify.BiasSeparator

// weightWriter writes the weight file item by item and keeps a journal of finished items, so that a run that was
// killed goes on behind the last of them. The journal is believed only where it is of this entry and the file's bytes agree
// with it.
type weightWriter struct {
	dir   string
	entry string // of the store: journals of others are not believed
	plan  *plan.Plan
	ahead *ahead // or nil
}

const journalFile = "journal"

// entry is one line of the journal: an item whose bytes are in the file.
type entry struct {
	Item int    `json:"item"`
	Sum  string `json:"sha256"`
}

// write returns the SHA-256 of every item's span and of the file.
func (w *weightWriter) write(ctx context.Context, src tensor.Source, o plan.WriteOptions) (sums []string, file string, err error) {
	f, err := os.OpenFile(filepath.Join(w.dir, WeightFile), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	o.File = sha256.New()
	sums, err = w.resume(ctx, f, o.File)
	if err != nil {
		return nil, "", err
	}
	o.From = len(sums)
	if o.From > 0 {
		zerolog.Ctx(ctx).Info().Int("tensors", o.From).Int("of", len(w.plan.Items)).Msg("going on behind what an earlier run wrote")
	}
	journal, err := os.OpenFile(filepath.Join(w.dir, journalFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, "", err
	}
	defer journal.Close()
	for i, s := range sums {
		if err := w.note(journal, i, s); err != nil {
			return nil, "", err
		}
	}
	o.Done = func(item int, sum string) error {
		sums = append(sums, sum)
		return w.note(journal, item, sum)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, "", err
	}
	writing := w.ahead.take(w.plan)
	if o.From > 0 || writing == nil {
		w.ahead.stop()
		writing = w.plan.Begin(ctx, src, o)
	}
	if file, err = writing.Finish(disk.NewWriter(f, at), o.Done, o.Progress); err != nil {
		return nil, "", err
	}
	if err := f.Close(); err != nil {
		return nil, "", err
	}
	return sums, file, journal.Close()
}

// journalOf names what the lines of an entry's journal are about.
func journalOf(entry string) string { return entry + "/" + journalFile }

func (w *weightWriter) note(f *os.File, item int, sum string) error {
	b, err := sealed.Marshal(journalOf(w.entry), entry{item, sum})
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return err
}

// resume reads back what is there, feeds it to the file's hash, and cuts the file behind the last whole item.
func (w *weightWriter) resume(ctx context.Context, f *os.File, file hash.Hash) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, journalFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var sums []string
	buf := make([]byte, 1<<20)
	for line := range bytes.Lines(text) {
		var e entry
		if sealed.Unmarshal(journalOf(w.entry), line, &e) != nil || e.Item != len(sums) || e.Item >= len(w.plan.Items) {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		it := &w.plan.Items[e.Item]
		span := sha256.New()
		n, err := io.CopyBuffer(span, io.NewSectionReader(f, it.Offset, it.Size()), buf)
		if err != nil {
			return nil, err
		}
		if n != it.Size() || hex.EncodeToString(span.Sum(nil)) != e.Sum {
			break
		}
		sums = append(sums, e.Sum)
	}
	var end int64
	if len(sums) > 0 {
		last := &w.plan.Items[len(sums)-1]
		end = last.Offset + last.Size()
	}
	if err := f.Truncate(end); err != nil {
		return nil, err
	}
	if _, err := io.CopyBuffer(file, io.NewSectionReader(f, 0, end), buf); err != nil {
		return nil, err
	}
	_, err = f.Seek(end, io.SeekStart)
	return sums, err
}
