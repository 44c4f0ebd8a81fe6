package fakehub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Fault is a kind of failure of a request.
type Fault string

const (
	// Cut closes the connection after Rule.After bytes of the response body.
	Cut Fault = "cut"
	// Reset is like Cut, with a TCP reset.
	Reset Fault = "reset"
	// CutRequest closes the connection after Rule.After bytes of the request body.
	CutRequest Fault = "cut-request"
	// Lost handles the request and closes the connection instead of responding.
	Lost Fault = "lost"
	// Stall sends nothing after Rule.After bytes of the body, and leaves the connection open.
	Stall Fault = "stall"
	// Slow sends Rule.Rate bytes per second.
	Slow Fault = "slow"
	// Status responds with Rule.Status, and Retry-After if Rule.RetryAfter is not empty. A response 429 without
	// Rule.RetryAfter has only a RateLimit header, as on the hub.
	Status Fault = "status"
	// Redirect redirects to Rule.Location, in which {path} stands for the requested path and query.
	Redirect Fault = "redirect"
	// RedirectLoop redirects to the same address forever.
	RedirectLoop Fault = "redirect-loop"
	// Expired responds that a signed address has expired: 403 with the body of S3.
	Expired Fault = "expired"

	// Flip changes one bit of byte Rule.After of the file.
	Flip Fault = "flip"
	// Long declares a body longer by Rule.Bytes (at least 1) than the one sent.
	Long Fault = "long"
	// Short declares a body shorter by Rule.Bytes (at least 1) and sends as much as it declares.
	Short Fault = "short"
	// Changed serves other content of the same size, with another ETag. With Rule.Server "hub" it also changes the ETag
	// of the redirect to the content.
	Changed Fault = "changed"
	// IgnoreRange responds with the whole file to a request for a range.
	IgnoreRange Fault = "ignore-range"
	// WrongRange sends the requested range, with a Content-Range that begins one byte later.
	WrongRange Fault = "wrong-range"
	// Endless sends the file, and then zeros until the client closes the connection. No length is declared.
	Endless Fault = "endless"

	// ListNames adds the names Rule.Names, or those of HostileNames, to listings.
	ListNames Fault = "list-names"
	// ListDigest lists wrong digests, of the files whose names match Rule.Files.
	ListDigest Fault = "list-digest"
	// ListSize lists sizes that are too large by Rule.Bytes (may be negative; 0 is 1).
	ListSize Fault = "list-size"
)

// HostileNames are file names that no client may write to.
var HostileNames = []string{"../outside.json", "/etc/passwd", "a/../../outside.json", "a//b.json", "./config.json", "C:\\Windows\\x.json",
	"..\\outside.json", "NUL", "con.json", "aux/x.json", "x.json:stream", "nul\x00byte.json", "line\nbreak.json", ".git/config", "trailing.", "trailing ",
	"\u202egnp.json", strings.Repeat("long", 100) + ".json", "model.safetensors/x", ""}

// Rule selects the requests that fail, and how. Only the first matching rule applies to a request. Faults of a body
// match neither HEAD, unless Method is HEAD, nor redirects: with the name of a file as the path, the redirect to its
// content succeeds and the content fails.
type Rule struct {
	// Fault is the kind of failure.
	Fault Fault `json:"fault"`
	// Path is matched against the request's path, and against the name of the requested file, such as
	// "org/name/model.safetensors". A * stands for any characters. Empty matches everything.
	Path string `json:"path,omitempty"`
	// Server is "hub" or "storage". Empty matches both.
	Server string `json:"server,omitempty"`
	// Method is a method, such as "GET". Empty matches all.
	Method string `json:"method,omitempty"`
	// Skip is the number of matching requests that succeed before the first failure.
	Skip int `json:"skip,omitempty"`
	// Times is the number of failures. 0 means no limit.
	Times int `json:"times,omitempty"`
	// After is a number of bytes, see Fault.
	After int64 `json:"after,omitempty"`
	// Bytes is a number of bytes, see Fault.
	Bytes int64 `json:"bytes,omitempty"`
	// Rate is in bytes per second.
	Rate int64 `json:"rate,omitempty"`
	// Status is an HTTP status.
	Status int `json:"status,omitempty"`
	// Code is a header X-Error-Code.
	Code string `json:"code,omitempty"`
	// RetryAfter is a header Retry-After: seconds or a date.
	RetryAfter string `json:"retry_after,omitempty"`
	// Location is the target of a redirect.
	Location string `json:"location,omitempty"`
	// Names are file names.
	Names []string `json:"names,omitempty"`
	// Files is a pattern of file names in a listing, like Path. Empty matches all.
	Files string `json:"files,omitempty"`
}

func (f Fault) listing() bool { return f == ListNames || f == ListDigest || f == ListSize }

// content reports whether the fault concerns the content of a file.
func (f Fault) content() bool {
	return slices.Contains([]Fault{Flip, Long, Short, Changed, IgnoreRange, WrongRange, Endless}, f)
}

// bodily reports whether the fault concerns the response body, so that it does not apply to a response without one.
func (r *Rule) bodily() bool {
	return r.Fault.content() || r.Fault == Slow || r.After > 0 && (r.Fault == Cut || r.Fault == Reset || r.Fault == Stall)
}

func (r *Rule) check() error {
	known := []Fault{Cut, Reset, CutRequest, Lost, Stall, Slow, Status, Redirect, RedirectLoop, Expired}
	switch {
	case !r.Fault.content() && !r.Fault.listing() && !slices.Contains(known, r.Fault):
		return fmt.Errorf("unknown fault %q", r.Fault)
	case r.Fault == Slow && r.Rate <= 0:
		return fmt.Errorf("fault slow without a rate")
	case r.Fault == Status && (r.Status < 200 || r.Status > 599):
		return fmt.Errorf("fault status with status %d", r.Status)
	case r.Fault == Redirect && r.Location == "":
		return fmt.Errorf("fault redirect without a location")
	case r.Skip < 0 || r.Times < 0 || r.After < 0:
		return fmt.Errorf("a negative number")
	}
	return nil
}

type faultKey struct{}

// faultOf returns the rule that applies to the request, or nil.
func faultOf(r *http.Request) *Rule {
	f, _ := r.Context().Value(faultKey{}).(*Rule)
	return f
}

// withFault passes the rule to the handler.
func withFault(r *http.Request, f *Rule) *http.Request {
	if f == nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), faultKey{}, f))
}

// instead responds in place of the handler if the rule requires that, and reports whether it did.
func (f *Rule) instead(w *response, r *http.Request) bool {
	switch f.Fault {
	case Status:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		} else if f.Status == http.StatusTooManyRequests {
			w.Header().Set("RateLimit", `"api";r=0;t=1`)
		}
		fail(w, f.Status, f.Code, http.StatusText(f.Status))
	case Redirect:
		redirect(w, http.StatusFound, strings.ReplaceAll(f.Location, "{path}", r.URL.RequestURI()))
	case RedirectLoop:
		redirect(w, http.StatusFound, r.URL.RequestURI())
	case Expired:
		expired(w)
	case Reset, Cut:
		if f.After > 0 {
			return false
		}
		w.drop(f.Fault == Reset)
	case CutRequest:
		_, _ = io.CopyN(io.Discard, r.Body, f.After)
		w.drop(false)
	default:
		return false
	}
	return true
}
