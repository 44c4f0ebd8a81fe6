package hub

import (
	"errors"

	"github.com/llmexport/llmexport/internal/transfer"
)

// Connect returns a client for one repository, for callers that do more than download a checkpoint: it sends o's token only to
// the hub, and its Judge explains rejections by the hub. It asks no mirrors. Nothing is sent yet.
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

// CheckRevision rejects strings that cannot name a branch, tag or commit.
func CheckRevision(s string) error { return checkRevision(s) }

// CheckRepo rejects strings that are not of the form ORG/NAME.
func CheckRepo(s string) error { return checkRepo(s) }
