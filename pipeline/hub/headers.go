package hub

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// firstPart is what is asked for of a shard at first, in bytes: it holds the headers of most.
	firstPart = 128 << 10
	// maxHeader bounds the header of one file, in bytes. It is the bound of the reference implementation.
	maxHeader = 100_000_000
	// maxHeaders bounds the headers of all files of a checkpoint, in bytes. The largest that is known has 15 MB.
	maxHeaders = 400_000_000
)

// Header is the beginning of a .safetensors file.
type Header struct {
	// Size is that of the whole file, in bytes.
	Size int64
	// Header holds the first 8+n bytes: the length n and n bytes of JSON.
	Header []byte
}

// Skeleton is a checkpoint without its weights: Dir holds the small files, and Headers the beginning of each
// .safetensors file that Files lists.
type Skeleton struct {
	Snapshot
	// Headers is by name; empty if Dir holds the weights too.
	Headers map[string]Header
}

// Headers is [Resolve] without the weights: of each shard only the header is read, by range requests. A snapshot that
// is complete in the cache, or a local directory, is given without headers, since its files can be opened.
//
// The small files are checked as Resolve does. A part of a file has no digest, so headers are only as good as the
// server: good enough to plan by, and Resolve finds out.
func Headers(ctx context.Context, ref Ref, o Options) (*Skeleton, error) {
	if ref.Path != "" {
		s, err := Resolve(ctx, ref, o)
		if err != nil {
			return nil, err
		}
		return &Skeleton{Snapshot: *s}, nil
	}
	s, err := skeleton(ctx, ref, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return s, nil
}

func skeleton(ctx context.Context, ref Ref, o Options) (*Skeleton, error) {
	p, shards, err := prepare(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	if p.snapshot != nil {
		return &Skeleton{Snapshot: *p.snapshot}, nil
	}
	s := &Skeleton{Snapshot: *p.cache.snapshot(p.listing)}
	commit := p.listing.commit
	if !slices.ContainsFunc(shards, func(f remote) bool { return !p.cache.has(commit, f) }) {
		return s, nil
	}
	s.Headers = map[string]Header{}
	var (
		mu    sync.Mutex
		total atomic.Int64
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(o.Parallel, 4))
	for _, f := range shards {
		g.Go(func() error {
			open := p.client.open(commit, f)
			if p.cache.has(commit, f) {
				open = fromFile(filepath.Join(s.Dir, f.Name))
			}
			var b []byte
			err := transfer.Retry(ctx, "header", p.client.patience(), func(ctx context.Context, touch func()) (_ bool, err error) {
				b, err = readHeader(ctx, open, f.Size, &total, touch)
				return false, err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.Headers[f.Name] = Header{Size: f.Size, Header: b}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// readHeader gives the first 8+n bytes of a file whose first 8 bytes are n. What it keeps is added to total.
func readHeader(ctx context.Context, open transfer.Range, size int64, total *atomic.Int64, touch func()) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("%d bytes are no safetensors file: %w", size, tensor.ErrCorrupt)
	}
	b, err := readPart(ctx, open, 0, min(size, firstPart), size, touch)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(b)
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("a header of %d bytes, more than %d: %w", n, maxHeader, tensor.ErrCorrupt)
	case int64(n) > size-8:
		return nil, fmt.Errorf("a header of %d bytes in a file of %d: %w", n, size, tensor.ErrCorrupt)
	}
	end := 8 + int64(n)
	if total.Add(end) > maxHeaders {
		return nil, fmt.Errorf("headers of more than %d bytes: %w", maxHeaders, tensor.ErrUnsupported)
	}
	if end <= int64(len(b)) {
		return slices.Clone(b[:end]), nil
	}
	rest, err := readPart(ctx, open, int64(len(b)), end-int64(len(b)), size, touch)
	if err != nil {
		total.Add(-end)
		return nil, err
	}
	return append(b, rest...), nil
}

// readPart reads n bytes at off of a file of that size. A server that knows no ranges sends the beginning, too.
func readPart(ctx context.Context, open transfer.Range, off, n, size int64, touch func()) ([]byte, error) {
	body, err := open(ctx, off, n)
	skip := int64(0)
	if errors.Is(err, transfer.ErrNoRanges) {
		body, err = open(ctx, 0, size)
		skip = off
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := transfer.Watch(body, touch)
	_, err = io.CopyN(io.Discard, r, skip)
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(r, n)) // which takes memory for what has come, not for what was promised
	}
	if err == nil && int64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, &transfer.Retryable{Err: transfer.Redact(err)}
	}
	return b, nil
}

// fromFile gives parts of a file on disk.
func fromFile(path string) transfer.Range {
	return func(_ context.Context, off, n int64) (io.ReadCloser, error) {
		f, err := disk.Open(path)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, off, n), f}, nil
	}
}
