package hub

import (
	"errors"

	"github.com/llmexport/llmexport/internal/transfer"
)

// Connect gives a client that asks the hub about one repository, for who does more than fetch a checkpoint: it
// sends o's token to the hub only, and its Judge explains what the hub refuses. Mirrors are not asked. Nothing is sent yet.
func Connect(o Options, repo string) (*transfer.Client, error) {
	if o.Offline {
		return nil, errors.New("no request is allowed: HF_HUB_OFFLINE is set")
	}
	if err := checkRepo(repo); err != nil {
		return nil, err
	}
	c, err := newClient(o, repo)
	if err != nil {
		return nil, err
	}
	return c.hosts[0].Client, nil
}

// CheckRevision refuses what no branch, tag or commit is called.
func CheckRevision(s string) error { return checkRevision(s) }

// CheckRepo refuses what is no "org/name".
func CheckRepo(s string) error { return checkRepo(s) }
