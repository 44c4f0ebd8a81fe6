// Package blob is what a shared store needs of the service that holds its bytes: blobs under their SHA-256, which never change, and
// small texts under names, which do. [Dir] keeps them in a directory; publish/s3 in a bucket, publish/oci in a registry.
package blob

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// Store keeps blobs and texts. All methods are safe for concurrent use, also by several machines. What is absent is
// fs.ErrNotExist, and bytes that are not those of their digest are fault.ErrCorrupt.
type Store interface {
	// String is the reference of the store, without secrets.
	String() string
	// Range opens a blob; the caller compares the bytes with the digest.
	Range(b transfer.Blob) transfer.Range
	// Has reports whether the store has a blob of this digest and size. It reads no content.
	Has(ctx context.Context, b transfer.Blob) (bool, error)
	// Put stores a blob, also where one of that digest exists, which may be damaged. Other content is refused and leaves nothing.
	Put(ctx context.Context, b transfer.Blob, content io.ReaderAt) error
	// Text returns the text of a name, of at most limit bytes.
	Text(ctx context.Context, name string, limit int64) ([]byte, error)
	// SetText replaces the text of a name in one step. The blobs that it is about exist; the store keeps them as long as the text.
	SetText(ctx context.Context, name string, text []byte, about []transfer.Blob) error
	// RemoveText removes the text of a name; one that is absent is no error.
	RemoveText(ctx context.Context, name string) error
	// Texts lists the names, in any order, with the times at which they were set.
	Texts(ctx context.Context) ([]Info, error)
}

// Sweeper is a [Store] in which blobs stay until they are removed. Others remove blobs that no text is about themselves.
type Sweeper interface {
	Store
	// Blobs lists the blobs, in any order.
	Blobs(ctx context.Context) ([]Info, error)
	// RemoveBlob removes the blob of a SHA-256 in hex; one that is absent is no error.
	RemoveBlob(ctx context.Context, sum string) error
	// Tidy removes what was left by writers that were killed, if they began before a time.
	Tidy(ctx context.Context, before time.Time) error
}

// Info describes a text or a blob.
type Info struct {
	// Name of a text, or SHA-256 of a blob in hex.
	Name string
	Size int64 // bytes; of blobs
	// Time at which it was set or stored, by the clock of the store.
	Time time.Time
}

// maxName bounds a name, as registries bound tags.
const maxName = 120

// CheckSum rejects what is not a SHA-256 in lower-case hex.
func CheckSum(sum string) error {
	if !digest.IsHex(sum) {
		return fmt.Errorf("%.80q is not a SHA-256: %w", sum, fault.ErrCorrupt)
	}
	return nil
}

// CheckName rejects names that some store cannot have. Names are lower-case letters, digits, and hyphens and dots between them, so
// that they lead out of no directory, prefix or repository.
func CheckName(name string) error {
	good := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	other := strings.IndexFunc(name, func(r rune) bool { return !good(r) && r != '-' && r != '.' })
	ends := name != "" && good(rune(name[0])) && good(rune(name[len(name)-1]))
	if !ends || other >= 0 || len(name) > maxName || strings.Contains(name, "..") {
		return fmt.Errorf("%.130q is not a name of the shared store: %w", name, fault.ErrCorrupt)
	}
	return nil
}
