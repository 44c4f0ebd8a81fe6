package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shelf is a prefix with packages at prefixes below it. Its channels are the object channels.json, which is written only if
// it still has the ETag that was read. In a store that does not support conditions, of two writes at the same time one is
// lost.
type shelf struct {
	*store
	s Place
}

// Shelf returns the prefix above that of the package.
func (s Place) Shelf() (place.Shelf, string, error) {
	bucket, prefix, _, err := s.parse()
	if err != nil {
		return nil, "", err
	}
	if prefix == "" {
		return nil, "", fmt.Errorf("channels need a prefix for every package; %s is a whole bucket", s.Ref)
	}
	prefix = strings.TrimSuffix(prefix, "/")
	s.Ref = "s3://" + bucket
	if above := path.Dir(prefix); above != "." {
		s.Ref += "/" + above
	}
	on, err := openShelf(s)
	return on, path.Base(prefix), err
}

// OpenShelf returns bucket/prefix[?endpoint=URL&region=NAME] as a shelf.
func OpenShelf(rest string, o place.OpenOptions) (place.Shelf, error) {
	s, err := Parse(rest)
	if err != nil {
		return nil, err
	}
	s.Transfer = o.Transfer
	return openShelf(s)
}

func openShelf(s Place) (place.Shelf, error) {
	b, err := openBucket(s)
	if err != nil {
		return nil, err // the interface could contain a nil pointer
	}
	return &shelf{b, s}, nil
}

func (s *shelf) String() string { return s.ref() }

// index reads the channels and the ETag of their object, which is empty if there is none.
func (s *shelf) index(ctx context.Context) (channel.Index, string, error) {
	info, err := s.stat(ctx, channel.FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	b, err := s.read(ctx, channel.FileName, channel.MaxSize)
	if err != nil {
		return nil, "", err
	}
	x, err := channel.Parse(b)
	return x, info.ETag, err
}

func (s *shelf) Channels(ctx context.Context) ([]string, error) {
	x, _, err := s.index(ctx)
	return slices.Sorted(maps.Keys(x)), err
}

func (s *shelf) History(ctx context.Context, name string) (channel.History, error) {
	x, _, err := s.index(ctx)
	return x[name], err
}

func (s *shelf) Ready(ctx context.Context, _ string) error {
	_, _, err := s.index(ctx)
	return err
}

func (s *shelf) Update(ctx context.Context, name string, change func(channel.History) (channel.History, error)) error {
	return place.Collide(ctx, func() error {
		x, etag, err := s.index(ctx)
		if err != nil {
			return err
		}
		now, err := change(x[name])
		if err != nil || now.Equal(x[name]) {
			return err
		}
		if x == nil {
			x = channel.Index{}
		}
		x[name] = now
		b, err := x.Marshal()
		if err != nil {
			return err
		}
		err = s.put(ctx, channel.FileName, b, func(o *minio.PutObjectOptions) {
			if etag == "" {
				o.SetMatchETagExcept("*")
			} else {
				o.SetMatchETag(etag)
			}
		})
		if e := (*transfer.StatusError)(nil); errors.As(err, &e) && (e.Status == http.StatusPreconditionFailed || e.Status == http.StatusConflict) {
			return place.ErrCollision
		}
		return err
	})
}

func (s *shelf) At(r place.Receipt) string {
	ref, _, _ := strings.Cut(r.Ref, "?")
	return path.Base(ref)
}

func (s *shelf) Open(ctx context.Context, p channel.Package, _ place.OpenOptions) (place.Origin, error) {
	if err := manifest.CheckName(p.At); err != nil || strings.Contains(p.At, "/") {
		return nil, fmt.Errorf("%.80q is not a prefix below %s: %w", p.At, s, tensor.ErrCorrupt)
	}
	at := s.s
	at.Ref = strings.TrimSuffix(at.Ref, "/") + "/" + p.At
	return openOrigin(ctx, at)
}
