package hub

import (
	"context"
	"errors"
)

// Header is the beginning of a .safetensors file.
type Header struct {
	// Size is that of the whole file, in bytes.
	Size int64
	// Header holds the first 8+n bytes: the length n and n bytes of JSON.
	Header []byte
}

// Skeleton is a checkpoint without its weights: Dir holds the small files, and Headers the begin of each
// .safetensors file that Files lists.
type Skeleton struct {
	Snapshot
	// Headers is by name; empty if Dir holds the weights too.
	Headers map[string]Header
}

// Headers is [Resolve] without the weights: of each shard only the header is read, by range requests. A
// snapshot that is complete in the cache, or a local directory, is given without headers, since its files
// can be opened.
func Headers(ctx context.Context, ref Ref, o Options) (*Skeleton, error) {
	return nil, errors.ErrUnsupported
}
