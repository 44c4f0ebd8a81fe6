package hub

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

const (
	// firstPart is the size of the first request for a shard, in bytes: it covers most headers.
	firstPart = 128 << 10
	// maxHeader bounds the header of one file, in bytes, as the reference implementation does.
	maxHeader = 100_000_000
	// maxHeaders bounds the headers of all files of a checkpoint, in bytes. The largest known total is 15 MB.
	maxHeaders = 400_000_000
)

// Header is the beginning of a .safetensors file.
type Header struct {
	// Size is the size of the whole file, in bytes.
	Size int64
	// Header holds the first 8+n bytes: the length n and n bytes of JSON.
	Header []byte
}

// Skeleton is a checkpoint without its weights: Dir holds the small files, and Headers the beginning of each
// .safetensors file that Files lists.
type Skeleton struct {
	Snapshot
	// Headers are keyed by file name; empty if Dir holds the weights too.
	Headers map[string]Header
}

// Headers is [Resolve] without the weights: it reads only the header of each shard, by range requests. A snapshot that is
// complete in the cache, or a local directory, is returned without headers, since its files can be opened.
//
// The small files are checked as in Resolve. A part of a file has no digest, so headers are only as trustworthy as the server.
// That is enough for planning; Resolve compares the digests.
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
			err := transfer.Retry(ctx, "header", p.client.patience(), func(ctx context.Context, touch func(int)) (bool, error) {
				had := len(b)
				var err error
				b, err = readHeader(ctx, open, b, f.Size, &total, touch)
				return len(b) >= had+firstPart/16, err
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

// readHeader continues b until it is the first 8+n bytes of a file whose first 8 bytes are n. It adds the bytes it keeps to
// total. After a retryable error it returns the bytes received so far.
func readHeader(ctx context.Context, open transfer.Range, b []byte, size int64, total *atomic.Int64,
	touch func(int)) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("a file of %d bytes is not a safetensors file: %w", size, fault.ErrCorrupt)
	}
	b, err := transfer.ReadPart(ctx, open, b, 0, min(size, firstPart), size, touch)
	if err != nil {
		return b, err
	}
	n := binary.LittleEndian.Uint64(b)
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("a header of %d bytes exceeds the limit of %d: %w", n, maxHeader, fault.ErrCorrupt)
	case int64(n) > size-8:
		return nil, fmt.Errorf("a header of %d bytes does not fit a file of %d: %w", n, size, fault.ErrCorrupt)
	}
	end := 8 + int64(n)
	if total.Add(end) > maxHeaders {
		return nil, fmt.Errorf("the headers exceed %d bytes in total: %w", maxHeaders, fault.ErrUnsupported)
	}
	if b, err = transfer.ReadPart(ctx, open, b, 0, end, size, touch); err != nil {
		total.Add(-end)
		return b, err
	}
	return slices.Clone(b[:end]), nil
}

// fromFile opens ranges of a file on disk.
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
