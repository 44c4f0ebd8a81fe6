package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	blobsPrefix = "blobs/"
	textsPrefix = "texts/"
)

// Blobs is a [blob.Sweeper] in a prefix of a bucket: the objects blobs/<SHA-256> and texts/<name> below it.
type Blobs struct {
	*store
	part int64 // size of the parts of large blobs in bytes
}

// OpenBlobs opens bucket/prefix[?endpoint=URL&region=NAME]; it sends nothing.
func OpenBlobs(rest string, o transfer.Options) (*Blobs, error) {
	s, err := Parse(rest)
	if err != nil {
		return nil, err
	}
	s.Transfer = o
	b, err := openBucket(s)
	if err != nil {
		return nil, err
	}
	return &Blobs{b, partSize}, nil
}

// String implements blob.Store.
func (b *Blobs) String() string { return b.ref() }

func blobKey(sum string) (string, error) { return blobsPrefix + sum, blob.CheckSum(sum) }

func textKey(name string) (string, error) { return textsPrefix + name, blob.CheckName(name) }

// Range implements blob.Store.
func (b *Blobs) Range(x transfer.Blob) transfer.Range {
	return func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		key, err := blobKey(x.SHA256)
		if err != nil {
			return nil, err
		}
		var o minio.GetObjectOptions
		if n < x.Size {
			if err := o.SetRange(off, off+n-1); err != nil {
				return nil, err
			}
		}
		r, info, head, err := b.GetObject(ctx, b.bucket, b.prefix+key, o)
		if err = b.explain(err); err != nil {
			if e := (*transfer.StatusError)(nil); errors.As(err, &e) && e.Status == 416 {
				err = fmt.Errorf("%s is shorter than %d bytes: %w", key, x.Size, tensor.ErrCorrupt)
			}
			return nil, err
		}
		span, size := head.Get("Content-Range"), info.Size
		if span != "" {
			_, _, size, err = transfer.ContentRange(span)
		}
		switch {
		case n < x.Size && span == "" && size == x.Size:
			err = transfer.ErrNoRanges
		case err == nil && size >= 0 && size != x.Size:
			err = fmt.Errorf("%s has %d bytes instead of %d: %w", key, size, x.Size, tensor.ErrCorrupt)
		case err == nil && span != "" && !strings.HasPrefix(span, fmt.Sprintf("bytes %d-", off)):
			err = fmt.Errorf("the store sent the range %.100q, not bytes %d-%d: %w", span, off, off+n-1, tensor.ErrCorrupt)
			err = &transfer.Retryable{Err: err}
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return r, nil
	}
}

// Has implements blob.Store.
func (b *Blobs) Has(ctx context.Context, x transfer.Blob) (bool, error) {
	key, err := blobKey(x.SHA256)
	if err != nil {
		return false, err
	}
	info, err := b.stat(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size == x.Size, err
}

// Put implements blob.Store. A blob of several parts is a multipart upload, which is invisible until all of it has arrived and its
// digest was right.
func (b *Blobs) Put(ctx context.Context, x transfer.Blob, content io.ReaderAt) error {
	key, err := blobKey(x.SHA256)
	if err != nil {
		return err
	}
	if x.Size <= b.part {
		text, err := io.ReadAll(place.NewProof(manifest.File{Size: x.Size, SHA256: x.SHA256}, content))
		if err != nil {
			return err
		}
		return b.put(ctx, key, text, nil)
	}
	u := upload{SHA256: x.SHA256, Part: max(b.part, (x.Size/maxParts>>20+1)<<20)}
	o := minio.PutObjectOptions{ContentType: contentType(key), UserMetadata: map[string]string{sumKey: x.SHA256}}
	if err := b.try(ctx, "begin "+key, func(ctx context.Context, _ func(int)) (err error) {
		u.ID, err = b.NewMultipartUpload(ctx, b.bucket, b.prefix+key, o)
		return err
	}); err != nil {
		return err
	}
	err = b.putParts(ctx, key, u, x, content)
	if err != nil {
		err = errors.Join(err, b.abort(context.WithoutCancel(ctx), key, u))
	}
	return err
}

// putParts sends the parts of a blob and completes the upload.
func (b *Blobs) putParts(ctx context.Context, key string, u upload, x transfer.Blob, content io.ReaderAt) error {
	whole, parts := digest.New(), make([]minio.CompletePart, (x.Size+u.Part-1)/u.Part)
	g, sending := errgroup.WithContext(ctx)
	g.SetLimit(sendsAtOnce)
	for i := range parts {
		text := make([]byte, min(u.Part, x.Size-int64(i)*u.Part))
		if _, err := io.ReadFull(io.NewSectionReader(content, int64(i)*u.Part, int64(len(text))), text); err != nil {
			return errors.Join(g.Wait(), err)
		}
		whole.Write(text)
		g.Go(func() error {
			part, err := b.sendPart(sending, key, u, i+1, text)
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if got := whole.Hex(); got != x.SHA256 {
		return fmt.Errorf("has SHA-256 %s instead of %s: %w", got, x.SHA256, tensor.ErrCorrupt)
	}
	err := b.try(ctx, "complete "+key, func(ctx context.Context, _ func(int)) error {
		_, err := b.CompleteMultipartUpload(ctx, b.bucket, b.prefix+key, u.ID, parts, minio.PutObjectOptions{})
		return err
	})
	if err != nil && b.holds(ctx, key, x.SHA256) { // by a try whose response was lost
		return nil
	}
	return err
}

// Text implements blob.Store.
func (b *Blobs) Text(ctx context.Context, name string, limit int64) ([]byte, error) {
	key, err := textKey(name)
	if err != nil {
		return nil, err
	}
	return b.read(ctx, key, limit)
}

// SetText implements blob.Store.
func (b *Blobs) SetText(ctx context.Context, name string, text []byte, _ []transfer.Blob) error {
	key, err := textKey(name)
	if err != nil {
		return err
	}
	return b.put(ctx, key, text, nil)
}

// RemoveText implements blob.Store.
func (b *Blobs) RemoveText(ctx context.Context, name string) error {
	key, err := textKey(name)
	if err != nil {
		return err
	}
	return b.removeAny(ctx, key)
}

// RemoveBlob implements blob.Sweeper.
func (b *Blobs) RemoveBlob(ctx context.Context, sum string) error {
	key, err := blobKey(sum)
	if err != nil {
		return err
	}
	return b.removeAny(ctx, key)
}

// removeAny removes an object, which may be absent.
func (b *Blobs) removeAny(ctx context.Context, key string) error {
	return disk.IgnoreAbsent(b.remove(ctx, key))
}

// Texts implements blob.Store.
func (b *Blobs) Texts(ctx context.Context) ([]blob.Info, error) {
	return b.listBelow(ctx, textsPrefix, func(name string) bool { return blob.CheckName(name) == nil })
}

// Blobs implements blob.Sweeper.
func (b *Blobs) Blobs(ctx context.Context) ([]blob.Info, error) {
	return b.listBelow(ctx, blobsPrefix, digest.IsHex)
}

// listBelow lists the objects below a prefix whose names are those of the store.
func (b *Blobs) listBelow(ctx context.Context, below string, ours func(name string) bool) (list []blob.Info, err error) {
	err = b.try(ctx, "list", func(ctx context.Context, touch func(int)) error {
		list = nil
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for o := range b.Client.ListObjects(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix + below, Recursive: true}) {
			touch(listEntry)
			if o.Err != nil {
				return o.Err
			}
			if name := strings.TrimPrefix(o.Key, b.prefix+below); ours(name) {
				list = append(list, blob.Info{Name: name, Size: o.Size, Time: o.LastModified})
			}
		}
		return nil
	})
	return list, err
}

// Tidy implements blob.Sweeper.
func (b *Blobs) Tidy(ctx context.Context, before time.Time) error {
	var left []minio.ObjectMultipartInfo
	err := b.try(ctx, "list uploads", func(ctx context.Context, touch func(int)) error {
		left = nil
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for u := range b.Client.ListIncompleteUploads(ctx, b.bucket, b.prefix+blobsPrefix, true) {
			touch(listEntry)
			if u.Err != nil {
				return u.Err
			}
			left = append(left, u)
		}
		return nil
	})
	for _, u := range left {
		if u.Initiated.Before(before) && strings.HasPrefix(u.Key, b.prefix) {
			err = errors.Join(err, b.abort(ctx, strings.TrimPrefix(u.Key, b.prefix), upload{ID: u.UploadID}))
		}
	}
	return err
}
