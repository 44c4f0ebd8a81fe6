package publish

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place"
)

// PullOptions configures Pull. The zero value of each field is useful.
type PullOptions struct {
	dir.PullOptions
	// HTTP sends the requests to hubs; nil is a shared client. See transfer.Client.HTTP.
	HTTP *http.Client
	// UserAgent identifies the program to servers.
	UserAgent string
	// Choose chooses a package where ref names a release of several.
	Choose place.Chooser
}

// Pull pulls the package that ref names to the directory to, see [dir.Pull]; if to is empty, the directory is named
// after the package, in the working directory.
func Pull(ctx context.Context, ref, to string, o PullOptions) (p place.Package, done dir.Pulled, err error) {
	at, _, _ := strings.Cut(ref, "?") // the query may contain secrets
	from, err := OpenOrigin(ctx, ref, place.OpenOptions{HTTP: o.HTTP, UserAgent: o.UserAgent, Transfer: o.Transfer, Choose: o.Choose})
	if err == nil {
		at = from.String()
		p, done, err = dir.Pull(ctx, from, to, o.PullOptions)
	}
	if err != nil {
		return place.Package{}, dir.Pulled{}, fmt.Errorf("pull %s: %w", at, err)
	}
	return p, done, nil
}
