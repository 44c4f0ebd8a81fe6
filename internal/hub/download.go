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

// partName is appended to the name of an incomplete blob. Such a file can have holes, so its name must be one that no other
// program continues, or removes while it is in use.
const partName = ".llmexport-part"

// download brings one blob into the cache. A lock, which huggingface_hub takes too, keeps two processes from working on the same
// file.
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

// note remembers the digest of a large file that was just downloaded. The file's time is set back so that any later change gives
// it another time, however coarse the clock is.
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

// bring completes part, a file in dir that an earlier download may have begun. After nil it has the content that the hub lists.
func (c *client) bring(ctx context.Context, commit string, f remote, dir *os.Root, part string) error {
	o := c.patience()
	o.Progress = func(done int64) {
		if c.o.Progress != nil {
			c.report.Lock()
			defer c.report.Unlock()
			c.o.Progress(f.Name, done, f.Size)
		}
	}
	if c.o.Stored != nil {
		if stored := c.o.Stored(ctx, commit, f.File); stored != nil {
			err := transfer.FetchIn(ctx, dir, part, f.content(), stored.Open, o)
			if err == nil || ctx.Err() != nil {
				return err
			}
			stored.Failed(err)
			zerolog.Ctx(ctx).Warn().Err(err).Str("file", f.Name).Msg("the stored copy cannot be used; downloading from the hub")
		}
	}
	return transfer.FetchIn(ctx, dir, part, f.content(), c.open(commit, f), o)
}

// adopt continues a blob that another program left incomplete, once. Releases of huggingface_hub before pull request 4228 append
// to <etag>.incomplete and continue it, so it is the beginning of the blob; if it is anything else, which hf_xet may leave, the
// digest shows it. Later releases, such as 2.4.0, write to <etag>.<8 hex digits>.incomplete, which they delete on failure and
// never continue; one that a kill leaves is removed by `hf cache prune`.
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

// content is the expected blob.
func (f remote) content() transfer.Blob {
	if f.SHA256 != "" {
		return transfer.Blob{Size: f.Size, SHA256: f.SHA256}
	}
	return transfer.Blob{Size: f.Size, GitSHA1: f.Blob}
}
