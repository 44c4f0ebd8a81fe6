// Package transfer moves files between this machine and servers. Requests send credentials only to their own service, failed
// requests are retried while that helps, and downloads resume where an earlier one stopped and are compared with a digest before
// they count.
//
// The unit of transfer is a [Blob]: content of a known size and digest. [Fetch] turns it into a file by a [Range], which any
// protocol can provide; [Client] and [Client.Range] provide that of HTTP.
package transfer

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
)

// ErrNoRanges is the error of a [Range] that can return a blob only as a whole.
var ErrNoRanges = fmt.Errorf("the server does not give parts of a file: %w", fault.ErrUnsupported)

// Blob describes content before it is downloaded. One of the digests must be set.
type Blob struct {
	Size int64 // bytes
	// SHA256 is the digest of the content, in lower-case hex.
	SHA256 string
	// GitSHA1 is git's hash of the content, in lower-case hex: SHA-1 of a header and the content.
	GitSHA1 string
}

// Digest returns the digest that is set.
func (b Blob) Digest() string {
	if b.SHA256 != "" {
		return b.SHA256
	}
	return b.GitSHA1
}

// check rejects a blob that no server should list.
func (b Blob) check() error {
	if b.Size < 0 {
		return fmt.Errorf("a size of %d bytes: %w", b.Size, fault.ErrCorrupt)
	}
	if want, err := hex.DecodeString(b.Digest()); err != nil || len(want) != b.Hash().Size() {
		return fmt.Errorf("%.100q is not a digest: %w", b.Digest(), fault.ErrCorrupt)
	}
	return nil
}

// Hash starts the digest of the blob: SHA-256 if that is set, or else git's.
func (b Blob) Hash() hash.Hash {
	if b.SHA256 != "" {
		return digest.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", b.Size)
	return h
}

// A Range opens n bytes of one blob from offset off; the reader may return fewer, and more is an error of the server. It is
// called by several goroutines, and its reader ends when ctx does. An error after which another try may succeed is [Retryable];
// after [ErrNoRanges] it is called for all bytes from 0.
type Range func(ctx context.Context, off, n int64) (io.ReadCloser, error)

// Options control the patience of a transfer. The zero value of each field is useful.
type Options struct {
	// Connections is the number of simultaneous range requests for a blob; 0 is 4.
	Connections int
	// Stall is how long a connection may deliver nothing before the request is sent again; 0 is one minute.
	Stall time.Duration
	// MinSpeed is the least number of bytes a second that a connection must deliver over a minute before the request is sent again;
	// 0 is 1000.
	MinSpeed int64
	// Pause is the wait before the second try, and twice that before the third; 0 is one second.
	Pause time.Duration
	// Reach is the number of tries in a row after which a server that cannot be connected to or does not respond is given up, for
	// callers that can do without it. 0 is as many as for other errors.
	Reach int
	// Progress is called with the number of bytes of a blob that have been downloaded, from its start to its end; the number drops
	// if some turn out to be wrong. Calls do not overlap.
	Progress func(done int64)
}
