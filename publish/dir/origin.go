package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// origin is a package in a directory of this machine. Changes while it is read are detected by digests.
type origin string

// Open opens the package in a directory, or the one that a channel names, DIR@CHANNEL, unless there is a directory of that
// name.
func Open(ctx context.Context, rest string, o place.OpenOptions) (place.Origin, error) {
	info, err := os.Stat(rest)
	if dir, name := place.SplitChannel(rest); errors.Is(err, fs.ErrNotExist) && name != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		return place.OpenChannel(ctx, shelf{abs}, name, o)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no such directory; other places begin with hf://, ms://, oci:// or s3://: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", rest)
	}
	abs, err := filepath.Abs(rest)
	return origin(abs), err
}

func (d origin) String() string { return string(d) }

func (d origin) Read(_ context.Context, name string, limit int64) ([]byte, error) {
	return manifest.ReadOwn(string(d), name, limit)
}

func (d origin) Range(f manifest.File) transfer.Range {
	return func(_ context.Context, off, n int64) (io.ReadCloser, error) {
		root, err := os.OpenRoot(string(d))
		if err != nil {
			return nil, err
		}
		file, err := f.OpenIn(root)
		if err := errors.Join(err, root.Close()); err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(file, off, n), file}, nil
	}
}
