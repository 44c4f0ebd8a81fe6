package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// origin is the package of a prefix, with the objects it had when it was opened.
type origin struct {
	*store
	text []byte // manifest.json

	mu    sync.Mutex
	etags map[string]string // by file name, at the first request
}

// Parse splits endpoint and region off a reference without its scheme.
func Parse(rest string) (Place, error) {
	path, query, _ := strings.Cut(rest, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return Place{}, &place.RefError{Err: fmt.Errorf("s3://%.300s: the part after the question mark does not have the form endpoint=URL&region=NAME", path)}
	}
	s := Place{Ref: "s3://" + path, Endpoint: q.Get("endpoint"), Region: q.Get("region")}
	for key := range q {
		if key != "endpoint" && key != "region" {
			return Place{}, &place.RefError{Err: fmt.Errorf("s3://%.300s: %.60q is neither endpoint nor region", path, key)}
		}
	}
	return s, nil
}

// Open opens the package in bucket/prefix[?endpoint=URL&region=NAME], or the one that a channel names,
// bucket/prefix@channel, unless there is a package at a prefix of that name.
func Open(ctx context.Context, rest string, o place.OpenOptions) (place.Origin, error) {
	s, err := Parse(rest)
	if err != nil {
		return nil, err
	}
	s.Transfer = o.Transfer
	from, err := openOrigin(ctx, s)
	above, name := place.SplitChannel(s.Ref)
	if name == "" || !errors.Is(err, fs.ErrNotExist) {
		return from, err
	}
	s.Ref = above
	on, err := openShelf(s)
	if err != nil {
		return nil, err
	}
	return place.OpenChannel(ctx, on, name, o)
}

// openOrigin opens the package at a prefix.
func openOrigin(ctx context.Context, s Place) (place.Origin, error) {
	b, err := openBucket(s)
	if err != nil {
		return nil, err
	}
	text, err := b.read(ctx, manifest.FileName, manifest.MaxSize)
	if err == nil {
		if _, bad := manifest.Parse(text); bad != nil { // damaged in transfer or in the store
			text, err = b.read(ctx, manifest.FileName, manifest.MaxSize)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("contains no package of llmexport: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return &origin{store: b, text: text, etags: map[string]string{}}, nil
}

// String implements Origin. A prefix has no states; the digest of the package distinguishes them.
func (o *origin) String() string { return o.ref() }

// Read implements Origin. The signature is read between two reads of manifest.json, which it signs.
func (o *origin) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	if name == manifest.FileName {
		return o.text, nil
	}
	text, err := o.read(ctx, name, limit)
	if errors.Is(err, fs.ErrPermission) {
		// Without permission to list a bucket, Amazon does not distinguish missing objects from forbidden ones.
		err = fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	now, err := o.read(ctx, manifest.FileName, manifest.MaxSize)
	if err == nil && !bytes.Equal(now, o.text) {
		err = o.changed(manifest.File{Name: name})
	}
	return text, err
}

// Range implements Origin. An object that changes between two requests, or has the wrong size, is an error: the package
// is being replaced.
func (o *origin) Range(f manifest.File) transfer.Range {
	return func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		etag, err := o.etag(ctx, f)
		if err != nil {
			return nil, err
		}
		var opts minio.GetObjectOptions
		if err := opts.SetMatchETag(etag); err != nil {
			return nil, err
		}
		if n < f.Size {
			if err := opts.SetRange(off, off+n-1); err != nil {
				return nil, err
			}
		}
		r, info, head, err := o.GetObject(ctx, o.bucket, o.prefix+f.Name, opts)
		if err = o.explain(err); err != nil {
			if e := (*transfer.StatusError)(nil); errors.As(err, &e) && e.Status == 412 {
				return nil, o.changed(f)
			}
			return nil, err
		}
		// The store may send fewer bytes than requested.
		span := head.Get("Content-Range")
		switch {
		case n < f.Size && span == "":
			err = transfer.ErrNoRanges
		case n < f.Size && !strings.HasPrefix(span, fmt.Sprintf("bytes %d-", off)):
			err = fmt.Errorf("the store sent the range %.100q, not bytes %d-%d: %w", span, off, off+n-1, tensor.ErrCorrupt)
			err = &transfer.Retryable{Err: err}
		case info.Size > n:
			err = fmt.Errorf("the store sent %d bytes of %d: %w", info.Size, n, tensor.ErrCorrupt)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return r, nil
	}
}

func (o *origin) etag(ctx context.Context, f manifest.File) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.etags[f.Name]; e != "" {
		return e, nil
	}
	info, err := o.StatObject(ctx, o.bucket, o.prefix+f.Name, minio.StatObjectOptions{})
	if err = o.explain(err); err != nil {
		return "", err
	}
	if sum := info.UserMetadata[sumKey]; info.Size != f.Size || sum != "" && sum != f.SHA256 {
		return "", o.changed(f)
	}
	o.etags[f.Name] = info.ETag
	return info.ETag, nil
}

func (o *origin) changed(f manifest.File) error {
	return fmt.Errorf("%s does not match %s: the package is being replaced, or is damaged: %w", f.Name, manifest.FileName, tensor.ErrCorrupt)
}
