package hub

import (
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
)

// Is makes a StatusError match fs.ErrPermission and fs.ErrNotExist.
func (e *StatusError) Is(target error) bool {
	switch e.Status {
	case 401, 403, 451:
		return target == fs.ErrPermission
	case 404, 410:
		return target == fs.ErrNotExist
	}
	return false
}

// statusError explains an answer; one that may be better next time is retryable.
func (c *client) statusError(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode, Code: word(resp.Header.Get("X-Error-Code"))}
	page := c.url(c.repo).String()
	token := c.o.Token != ""
	away := resp.Request != nil && !c.http.At(resp.Request.URL)
	switch {
	case away && (e.Status == 401 || e.Status == 403):
		// A signed address ran out; asking the hub again gives a new one.
		return &transfer.Retryable{Err: fmt.Errorf("%s answers %d", resp.Request.URL.Host, e.Status)}
	case transfer.Transient(e.Status):
		return &transfer.Retryable{Err: e, After: transfer.RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	case e.Code == "GatedRepo" && token:
		e.Hint = "the repository is gated and the token's account has no access: accept its terms at " + page
	case e.Code == "GatedRepo":
		e.Hint = "the repository is gated: accept its terms at " + page + " and set HF_TOKEN"
	case e.Status == 401 && token:
		e.Hint = "the token is not valid, or there is no such repository"
	case e.Status == 401:
		e.Hint = "there is no such repository, or it is private: check the name, or set HF_TOKEN"
	case e.Status == 403:
		e.Hint = "access is refused: the token needs the right to read this repository"
	case e.Code == "RevisionNotFound":
		e.Hint = "there is no such branch, tag or commit"
	case e.Code == "EntryNotFound":
		e.Hint = "there is no such file"
	case e.Status == 404 && token:
		e.Hint = "there is no such repository or revision"
	case e.Status == 404:
		e.Hint = "there is no such repository or revision, or it is private: check the name, or set HF_TOKEN"
	}
	return e
}

// word keeps a header short and printable.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > 'z' {
			return -1
		}
		return r
	}, s[:min(len(s), 40)])
}
