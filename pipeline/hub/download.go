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
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	release, err := ca.hold(ctx, f.Blob)
	if err != nil {
		return err
	}
	defer release()
	if f.is(blob) {
		return nil
	}
	zerolog.Ctx(ctx).Info().Str("file", f.Name).Int64("bytes", f.Size).Msg("downloading")
	part := blob + partName
	if err := adopt(blob, part); err != nil {
		return err
	}
	if err := c.bring(ctx, commit, f, part); err != nil {
		return err
	}
	ca.note(part, f)
	return os.Rename(part, blob)
}

// note remembers that a large file, which was brought just now, has its digest. Its time is set back, so that whatever
// changes it from now on gives it another one, however coarse the clock is.
func (c *cache) note(path string, f remote) {
	if f.SHA256 == "" || os.Chtimes(path, time.Time{}, time.Now().Add(-2*racy)) != nil {
		return
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() != f.Size {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched[f.Blob] = memoEntry{Size: f.Size, MTime: st.ModTime().UnixNano(), SHA256: f.SHA256}
}

// bring completes the content of a file in part, which an earlier download may have begun. After nil it is what the hub lists.
func (c *client) bring(ctx context.Context, commit string, f remote, part string) error {
	o := c.patience()
	o.Progress = func(done int64) {
		if c.o.Progress != nil {
			c.report.Lock()
			defer c.report.Unlock()
			c.o.Progress(f.Name, done, f.Size)
		}
	}
	return transfer.Fetch(ctx, part, f.content(), c.open(commit, f), o)
}

// adopt continues what another program has left of a blob, once. Releases of huggingface_hub before pull request 4228 append
// to <etag>.incomplete and continue it, so it is the beginning of the blob; should it be something else, as hf_xet may
// leave it, the digest finds out. Later ones, 2.4.0 for one, write to <etag>.<8 hex digits>.incomplete, which they
// delete when they fail and never continue; one that a kill has left is for `hf cache prune`.
func adopt(blob, part string) error {
	if _, err := os.Stat(part); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Rename(blob+".incomplete", part)
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
