package hub

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/transfer"
)

// partName is behind the name of a blob that is not complete. Such a file can have holes, so its name is none that another
// program would continue, or clean up while it is in use.
const partName = ".llmexport-part"

// download brings one blob into the cache. A lock, the one that huggingface_hub takes too, keeps two
// processes from working at the same file.
func (c *client) download(ctx context.Context, ca *cache, commit string, f remote) error {
	blob := ca.blob(f.Blob)
	if err := ca.makeDir(filepath.Dir(blob)); err != nil {
		return err
	}
	release, err := ca.hold(ctx, f.Blob)
	if err != nil {
		return err
	}
	defer release()
	if ca.is(blob, f) {
		return nil
	}
	zerolog.Ctx(ctx).Info().Str("file", f.Name).Int64("bytes", f.Size).Msg("downloading")
	part := ca.rel(blob + partName)
	if err := adopt(ca.opened, ca.rel(blob), part); err != nil {
		return err
	}
	if err := c.bring(ctx, commit, f, ca.opened, part); err != nil {
		return err
	}
	ca.note(part, f)
	return ca.opened.Rename(part, ca.rel(blob))
}

// note remembers that a large file, which was brought just now, has its digest. Its time is set back, so that whatever
// changes it from now on gives it another one, however coarse the clock is.
func (c *cache) note(path string, f remote) {
	if f.SHA256 == "" || c.opened.Chtimes(path, time.Time{}, time.Now().Add(-2*racy)) != nil {
		return
	}
	st, err := c.opened.Lstat(path)
	if err != nil || st.Size() != f.Size {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched[f.Blob] = memoEntry{Size: f.Size, MTime: st.ModTime().UnixNano(), SHA256: f.SHA256}
}

// bring completes the content of a file in part, below dir, which an earlier download may have begun. After nil it is what the hub
// lists.
func (c *client) bring(ctx context.Context, commit string, f remote, dir *os.Root, part string) error {
	o := c.patience()
	o.Progress = func(done int64) {
		if c.o.Progress != nil {
			c.report.Lock()
			defer c.report.Unlock()
			c.o.Progress(f.Name, done, f.Size)
		}
	}
	return transfer.FetchIn(ctx, dir, part, f.content(), c.open(commit, f), o)
}

// adopt continues what another program has left of a blob, once. Releases of huggingface_hub before pull request 4228 append
// to <etag>.incomplete and continue it, so it is the beginning of the blob; should it be something else, as hf_xet may
// leave it, the digest finds out. Later ones, 2.4.0 for one, write to <etag>.<8 hex digits>.incomplete, which they
// delete when they fail and never continue; one that a kill has left is for `hf cache prune`.
func adopt(dir *os.Root, blob, part string) error {
	if _, err := dir.Lstat(part); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := dir.Rename(blob+".incomplete", part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// content is what has to arrive.
func (f remote) content() transfer.Blob {
	if f.SHA256 != "" {
		return transfer.Blob{Size: f.Size, SHA256: f.SHA256}
	}
	return transfer.Blob{Size: f.Size, GitSHA1: f.Blob}
}
