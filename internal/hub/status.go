package hub

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
)

// StatusError is an unsuccessful response of the hub. It is fs.ErrPermission if access was denied and fs.ErrNotExist if nothing
// was found.
type StatusError = transfer.StatusError

// statusError explains a response; one that may succeed later is retryable.
func (h *host) statusError(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode, Who: "the hub", Code: word(resp.Header.Get("X-Error-Code")),
		Message: transfer.Said(resp.Header.Get("X-Error-Message"))}
	if resp.Request != nil && !h.At(resp.Request.URL) && (e.Status == 401 || e.Status == 403) {
		// A signed address has expired; asking the hub again returns a new one.
		return &transfer.Retryable{Err: fmt.Errorf("%s answers %d", resp.Request.URL.Host, e.Status)}
	}
	e.Hint = h.hint(e)
	if transfer.Transient(e.Status) {
		return &transfer.Retryable{Err: e, After: transfer.RetryAfter(resp.Header, time.Now())}
	}
	return e
}

// hint distinguishes the cases that a user can do something about. The hub also responds 401 for repositories that do not exist,
// so that strangers cannot learn which private repositories there are.
func (h *host) hint(e *StatusError) string {
	invalid := strings.Contains(e.Message, "Invalid credentials")
	switch {
	case h.mirror && (e.Status == 401 || e.Status == 403):
		return "a mirror is sent no token, so it gives public files only"
	case e.Status == 429:
		if h.Authorize != nil {
			return "too many requests: wait some minutes"
		}
		return "too many requests: wait some minutes, or set a token, which has a higher limit"
	case e.Status >= 500:
		return "the hub has a problem: try later, or name a mirror"
	case e.Code == "GatedRepo" && h.Authorize != nil:
		return "the repository is gated and the token's account has no access: accept its terms at " + h.page
	case e.Code == "GatedRepo":
		return "the repository is gated: accept its terms at " + h.page + " and set " + h.tokenName
	case e.Message == "Access to this resource is disabled.":
		return "the hub has closed this repository"
	case e.Status == 401 && invalid:
		return "the token is not valid: it may have expired or been withdrawn; set another " + h.tokenName
	case e.Status == 401 && h.Authorize != nil:
		return "the token is not valid, or there is no such repository"
	case e.Status == 401:
		return "there is no such repository, or it is private: check the name, or set " + h.tokenName
	case e.Status == 403:
		return "access is refused: the token needs the right to read this repository"
	case e.Status == 451:
		return "the repository may not be shown here, for legal reasons"
	case e.Code == "RevisionNotFound":
		return "there is no such branch, tag or commit"
	case e.Code == "EntryNotFound":
		return "there is no such file"
	case e.Code == "RepoNotFound" && h.Authorize != nil:
		return "there is no such repository, or the token's account may not see it"
	case e.Status == 404 && h.Authorize != nil:
		return "there is no such repository or revision, or the token's account may not see it"
	case e.Status == 404:
		return "there is no such repository or revision, or it is private: check the name, or set " + h.tokenName
	}
	return ""
}

// word shortens a header and keeps it printable.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > 'z' {
			return -1
		}
		return r
	}, s[:min(len(s), 40)])
}
