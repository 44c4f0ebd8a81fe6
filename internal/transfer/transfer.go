// Package transfer moves files between this machine and servers: requests that keep credentials to
// themselves, tries that are repeated while they help, and downloads that continue where an earlier one
// ended and are compared with a digest before they count.
//
// What travels is a [Blob]: content of a known size and digest. [Fetch] makes a file of it from a [Range],
// which any protocol can offer; [Client] and [Client.Range] are that of HTTP.
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

// ErrNoRanges is the error of a [Range] that cannot give parts of a blob, only all of it at once.
var ErrNoRanges = fmt.Errorf("the server does not give parts of a file: %w", fault.ErrUnsupported)

// Blob is content that is known before it is here. One of the digests is set when it is fetched.
type Blob struct {
	Size int64 // bytes
	// SHA256 is the digest of the content, in lower-case hex.
	SHA256 string
	// GitSHA1 is git's name of the content, in lower-case hex: SHA-1 of a header and the content.
	GitSHA1 string
}

// Digest is the one that is set.
func (b Blob) Digest() string {
	if b.SHA256 != "" {
		return b.SHA256
	}
	return b.GitSHA1
}

// check refuses what no server should have listed.
func (b Blob) check() error {
	if b.Size < 0 {
		return fmt.Errorf("a size of %d bytes: %w", b.Size, fault.ErrCorrupt)
	}
	if want, err := hex.DecodeString(b.Digest()); err != nil || len(want) != b.Hash().Size() {
		return fmt.Errorf("%.100q is no digest: %w", b.Digest(), fault.ErrCorrupt)
	}
	return nil
}

// Hash begins the digest of the blob: SHA-256 if that is set, or else git's name.
func (b Blob) Hash() hash.Hash {
	if b.SHA256 != "" {
		return digest.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", b.Size)
	return h
}

// A Range opens n bytes of one blob from offset off on; the reader may give fewer, and more is an error of the
// server. It is called by several goroutines, and its reader ends when ctx does. An error after which another try
// may go well is [Retryable]; after [ErrNoRanges] it is asked for all bytes from 0 on.
type Range func(ctx context.Context, off, n int64) (io.ReadCloser, error)

// Options say how patient a transfer is. The zero value of each field is useful.
type Options struct {
	// Connections is the number of ranges of a blob on their way at once; 0 is 4.
	Connections int
	// Stall is how long a connection may give nothing before it is tried anew; 0 is one minute.
	Stall time.Duration
	// MinSpeed is the number of bytes a second that a connection has to bring over a minute before it is tried anew; 0 is 1000.
	MinSpeed int64
	// Pause is waited before the second try, and twice that before the third; 0 is one second.
	Pause time.Duration
	// Reach is the number of tries in a row after which a server that cannot be connected to, or says nothing, is given
	// up: for a caller that can do without it. 0 is as many as for other errors.
	Reach int
	// Progress is told how many bytes of a blob are here, from its start to its end; fewer than before when some
	// turn out to be wrong. Calls do not overlap.
	Progress func(done int64)
}
