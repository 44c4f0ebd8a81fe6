package fakehub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Fault is a way in which a request goes wrong.
type Fault string

const (
	// Cut closes the connection after Rule.After bytes of the answer's body.
	Cut Fault = "cut"
	// Reset does so by a TCP reset.
	Reset Fault = "reset"
	// CutRequest closes the connection after Rule.After bytes of the request's body were read.
	CutRequest Fault = "cut-request"
	// Lost does what is asked and closes the connection in place of the answer.
	Lost Fault = "lost"
	// Stall sends nothing more after Rule.After bytes of the body, and leaves the connection open.
	Stall Fault = "stall"
	// Slow sends Rule.Rate bytes per second.
	Slow Fault = "slow"
	// Status answers with Rule.Status, and Retry-After if Rule.RetryAfter is not empty. For an answer 429 without
	// Rule.RetryAfter there is a RateLimit header only, as the hub has it.
	Status Fault = "status"
	// Redirect redirects to Rule.Location, in which {path} stands for the path and query that were asked for.
	Redirect Fault = "redirect"
	// RedirectLoop redirects to the same address, for ever.
	RedirectLoop Fault = "redirect-loop"
	// Expired answers that a signed address has expired: 403 with the body that S3 gives.
	Expired Fault = "expired"

	// Flip changes one bit of the file's byte Rule.After.
	Flip Fault = "flip"
	// Long declares a body longer by Rule.Bytes (at least 1) than what is sent.
	Long Fault = "long"
	// Short declares a body shorter by Rule.Bytes (at least 1) and sends as much as it declares.
	Short Fault = "short"
	// Changed serves another content of the same size, under another ETag. With Rule.Server "hub" it also changes the
	// ETag that a redirect to the content has.
	Changed Fault = "changed"
	// IgnoreRange answers with the whole file to a request for a range.
	IgnoreRange Fault = "ignore-range"
	// WrongRange sends the range that is asked for, and says in Content-Range that it begins one byte later.
	WrongRange Fault = "wrong-range"
	// Endless sends the file, and then zeros until the client has enough. No length is declared.
	Endless Fault = "endless"

	// ListNames adds the names Rule.Names, or those of HostileNames, to listings.
	ListNames Fault = "list-names"
	// ListDigest lists wrong digests, of the files whose names match Rule.Files.
	ListDigest Fault = "list-digest"
	// ListSize lists sizes that are Rule.Bytes (may be negative; 0 is 1) more than they are.
	ListSize Fault = "list-size"
)

// HostileNames are names of files that no client may write to.
var HostileNames = []string{"../outside.json", "/etc/passwd", "a/../../outside.json", "a//b.json", "./config.json", "C:\\Windows\\x.json",
	"..\\outside.json", "NUL", "con.json", "aux/x.json", "x.json:stream", "nul\x00byte.json", "line\nbreak.json", ".git/config", "trailing.", "trailing ",
	"\u202egnp.json", strings.Repeat("long", 100) + ".json", "model.safetensors/x", ""}

// Rule says which requests go wrong, and how. The first rule that fits is the only one that a request meets. Faults of
// a body fit no HEAD, unless Method says so, and no redirect: with the name of a file as the path, the redirect to its
// content passes and the content goes wrong.
type Rule struct {
	// Fault is what happens.
	Fault Fault `json:"fault"`
	// Path is compared with the request's path, and with the name of the file it asks for, such as
	// "org/name/model.safetensors". A * stands for any characters. Empty fits all.
	Path string `json:"path,omitempty"`
	// Server is "hub" or "storage". Empty fits both.
	Server string `json:"server,omitempty"`
	// Method is a method, such as "GET". Empty fits all.
	Method string `json:"method,omitempty"`
	// Skip is how many requests that fit pass before the first that goes wrong.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests go wrong. 0 means all.
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
	// Location is where a redirect leads.
	Location string `json:"location,omitempty"`
	// Names are names of files.
	Names []string `json:"names,omitempty"`
	// Files is a pattern of names of files in a listing, as Path. Empty fits all.
	Files string `json:"files,omitempty"`
}

func (f Fault) listing() bool { return f == ListNames || f == ListDigest || f == ListSize }

// content reports whether the fault is one of a file's content.
func (f Fault) content() bool {
	return slices.Contains([]Fault{Flip, Long, Short, Changed, IgnoreRange, WrongRange, Endless}, f)
}

// bodily reports whether the fault is in the body of the answer, so that one without a body cannot meet it.
func (r *Rule) bodily() bool {
	return r.Fault.content() || r.Fault == Slow || r.After > 0 && (r.Fault == Cut || r.Fault == Reset || r.Fault == Stall)
}

func (r *Rule) check() error {
	known := []Fault{Cut, Reset, CutRequest, Lost, Stall, Slow, Status, Redirect, RedirectLoop, Expired}
	switch {
	case !r.Fault.content() && !r.Fault.listing() && !slices.Contains(known, r.Fault):
		return fmt.Errorf("no fault %q", r.Fault)
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

// faultOf gives the rule that the request meets, or nil.
func faultOf(r *http.Request) *Rule {
	f, _ := r.Context().Value(faultKey{}).(*Rule)
	return f
}

// withFault lets the handler know the rule.
func withFault(r *http.Request, f *Rule) *http.Request {
	if f == nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), faultKey{}, f))
}

// instead answers in place of the handler, if the rule is one that does; true if it has.
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
