package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
)

// maxText bounds a text in bytes: the record of 100,000 files has 12 MB.
const maxText = 64 << 20

// Fetch implements pipeline.Shared.
func (s *Store) Fetch(ctx context.Context, name, dir string) (found bool, err error) {
	text, rec, err := s.record(ctx, name)
	if rec == nil || err != nil {
		return rec != nil || errors.Is(err, fault.ErrCorrupt), err
	}
	if err := s.pull(ctx, rec, dir); err != nil {
		if damaged(err) {
			s.condemn(name)
			_ = s.blobs.RemoveText(ctx, name) // so that a machine which has the entry offers it again
			return true, err
		}
		return false, err
	}
	// The time of the text is that of its last use, which Collect goes by. A reader may not be allowed to write.
	if used, err := s.collecting(ctx); err == nil && !used {
		_ = s.blobs.SetText(ctx, name, text, blobsOf(rec))
	}
	return true, os.WriteFile(filepath.Join(dir, pipeline.DoneFile), text, 0o666)
}

// record reads the record of an entry, finished or not; nil if there is none.
func (s *Store) record(ctx context.Context, name string) (text []byte, rec *pipeline.Record, err error) {
	text, err = s.blobs.Text(ctx, name, maxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		rec, err = pipeline.ParseRecord(name, text)
	}
	if err != nil {
		if damaged(err) {
			s.condemn(name)
		}
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, rec, nil
}

// damaged reports whether an error means that the store has other bytes than it should, or lacks some.
func damaged(err error) bool {
	return errors.Is(err, fault.ErrCorrupt) || errors.Is(err, fs.ErrNotExist)
}

// pull copies the files of a record into dir, which has none of them. Every file is compared with its digest, also after one was
// found to be damaged.
func (s *Store) pull(ctx context.Context, rec *pipeline.Record, dir string) error {
	if err := disk.CheckSpace(dir, rec.Size()); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	g, pulling := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	bad := make([]error, len(rec.Files))
	for i, f := range rec.Files {
		g.Go(func() error {
			err := s.pullFile(pulling, root, f)
			if err != nil {
				err = fmt.Errorf("%s: %w", f.Name, err)
			}
			if damaged(err) {
				bad[i], err = err, nil
			}
			return err
		})
	}
	return cmp.Or(append([]error{g.Wait()}, bad...)...)
}

func (s *Store) pullFile(ctx context.Context, root *os.Root, f pipeline.RecordedFile) error {
	if err := disk.MakeDirIn(root, filepath.FromSlash(path.Dir(f.Name))); err != nil {
		return err
	}
	b := blobOf(f)
	err := transfer.FetchIn(ctx, root, filepath.FromSlash(f.Name), b, s.blobs.Range(b), s.patience)
	if damaged(err) {
		s.condemn(b.SHA256)
		if x, ok := s.blobs.(blob.Sweeper); ok {
			_ = x.RemoveBlob(ctx, b.SHA256) // or nobody would send it again
		}
	}
	return err
}

func blobOf(f pipeline.RecordedFile) transfer.Blob {
	return transfer.Blob{Size: f.Size, SHA256: f.SHA256}
}

func blobsOf(rec *pipeline.Record) []transfer.Blob {
	var list []transfer.Blob
	for _, f := range rec.Files {
		list = append(list, blobOf(f))
	}
	return list
}

// sumsOf are the SHA-256 of files in hex.
func sumsOf(files []pipeline.RecordedFile) []string {
	sums := make([]string, len(files))
	for i, f := range files {
		sums[i] = f.SHA256
	}
	return sums
}

// Offer implements pipeline.Shared. An entry that is there and not known to be damaged is left alone.
func (s *Store) Offer(ctx context.Context, name, dir string) error {
	text, err := disk.ReadFile(filepath.Join(dir, pipeline.DoneFile), maxText)
	if err != nil {
		return err
	}
	rec, err := pipeline.ParseRecord(name, text)
	if err != nil {
		return err
	}
	return s.offer(ctx, name, text, rec, dir)
}

// offer is Offer of files that need no record in dir.
func (s *Store) offer(ctx context.Context, name string, text []byte, rec *pipeline.Record, dir string) error {
	if s.condemned(name) {
		s.condemn(sumsOf(rec.Files)...) // how many of them are damaged too is not known
	} else if there, err := s.blobs.Text(ctx, name, maxText); err == nil && string(there) == string(text) {
		return nil
	}
	err := s.push(ctx, name, text, rec, rec.Files, func(f pipeline.RecordedFile) (content, error) {
		return disk.Open(filepath.Join(dir, filepath.FromSlash(f.Name)))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_ = s.blobs.RemoveText(ctx, name+partial) // not every registry can
	return nil
}

// content is a file to send.
type content interface {
	io.ReaderAt
	io.Closer
}

// push stores those of some files of a record that are absent or damaged, and then its text.
func (s *Store) push(ctx context.Context, name string, text []byte, rec *pipeline.Record, files []pipeline.RecordedFile,
	open func(pipeline.RecordedFile) (content, error)) error {
	done, err := s.announce(ctx, rec.Files)
	if err != nil {
		return err
	}
	defer done()
	g, sending := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	sent := map[string]bool{}
	for _, f := range files {
		if sent[f.SHA256] {
			continue
		}
		sent[f.SHA256] = true
		g.Go(func() error {
			if err := s.put(sending, blobOf(f), func() (content, error) { return open(f) }); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.blobs.SetText(ctx, name, text, blobsOf(rec)); err != nil {
		return err
	}
	s.replaced(name)
	return nil
}

// put stores a blob unless it is there.
func (s *Store) put(ctx context.Context, b transfer.Blob, open func() (content, error)) error {
	if !s.condemned(b.SHA256) {
		if there, err := s.blobs.Has(ctx, b); there || err != nil {
			return err
		}
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.blobs.Put(ctx, b, f); err != nil {
		return err
	}
	s.replaced(b.SHA256)
	return nil
}

// Has reports whether the store has a finished entry whose record is whole.
func (s *Store) Has(ctx context.Context, name string) (bool, error) {
	_, rec, err := s.record(ctx, name)
	if err != nil && damaged(err) {
		return false, nil
	}
	return rec != nil && !s.condemned(name), err
}
