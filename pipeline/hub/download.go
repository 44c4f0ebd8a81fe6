package hub

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/transfer"
)

// download brings one blob into the cache. A lock, the one that huggingface_hub takes too, keeps two
// processes from writing the same .incomplete file.
func (c *client) download(ctx context.Context, ca *cache, commit string, f remote) error {
	blob := ca.blob(f.Blob)
	for _, path := range []string{blob, ca.lock(f.Blob)} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
	}
	lock := flock.New(ca.lock(f.Blob))
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return fmt.Errorf("waiting for another process: %w", err)
	}
	defer lock.Unlock()
	if isFile(blob, f.Size) {
		return nil
	}
	zerolog.Ctx(ctx).Info().Str("file", f.Name).Int64("bytes", f.Size).Msg("downloading")
	elem := []string{c.repo, "resolve", commit}
	for part := range strings.SplitSeq(f.Name, "/") {
		elem = append(elem, url.PathEscape(part))
	}
	u := c.url(elem...)
	o := c.patience()
	o.Progress = func(done int64) {
		if c.o.Progress != nil {
			c.report.Lock()
			defer c.report.Unlock()
			c.o.Progress(f.Name, done, f.Size)
		}
	}
	if err := transfer.Fetch(ctx, blob+".incomplete", f.content(), c.http.Range(u, f.Size), o); err != nil {
		return err
	}
	return os.Rename(blob+".incomplete", blob)
}

// content is what has to arrive.
func (f remote) content() transfer.Blob {
	if f.SHA256 != "" {
		return transfer.Blob{Size: f.Size, SHA256: f.SHA256}
	}
	return transfer.Blob{Size: f.Size, GitSHA1: f.Blob}
}
