package publish

import (
	"context"
	"errors"
	"net/http"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
)

// PullOptions say how a package is pulled. The zero value of each field is useful.
type PullOptions struct {
	// Digest, if not empty, is that of the package which is expected; another one is tensor.ErrCorrupt.
	Digest manifest.Digest
	// Replace allows another package of ours in the directory to be replaced; nothing else is ever overwritten.
	Replace bool
	// Files is the number of files on their way at once; 0 is 4.
	Files int
	// Transfer is for each of them; its Progress is not used.
	Transfer transfer.Options
	// Progress is told how many bytes of a file are here. Calls do not overlap.
	Progress func(file string, done, total int64)
	// Check judges the complete package in dir before it gets its name; when it fails, nothing is installed.
	Check func(ctx context.Context, dir string) error
	// HTTP sends requests; nil is http.DefaultClient. See transfer.Client.HTTP.
	HTTP *http.Client
	// UserAgent names the program to servers.
	UserAgent string
}

// Pulled says what a pull did.
type Pulled struct {
	Status Status `json:"status"`
	// From is the reference with the state in it that was pulled; a later pull of it gives the same bytes.
	From   string          `json:"from"`
	Dir    string          `json:"dir"`
	Digest manifest.Digest `json:"digest"`
	// Files and Bytes count manifest.json too.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Fetched counts the bytes that came from the place in this run, Reused those that were on this machine.
	Fetched int64 `json:"fetched"`
	Reused  int64 `json:"reused"`
}

// Pull brings the package that ref names to the directory dir.
func Pull(ctx context.Context, ref, dir string, o PullOptions) (Package, Pulled, error) {
	return Package{}, Pulled{}, errors.ErrUnsupported
}
