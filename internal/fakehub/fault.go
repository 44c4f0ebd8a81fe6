package fakehub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// faults are the rules in force.
type faults struct {
	mu    sync.Mutex
	rules []*active
}

type active struct {
	Rule
	met int // requests that fitted
}

// Fault makes requests go wrong. It panics on a rule that makes no sense.
func (h *Hub) Fault(rules ...Rule) {
	if err := h.TryFault(rules...); err != nil {
		panic("internal error: fakehub: " + err.Error())
	}
}

// TryFault is Fault for rules from outside: it gives an error where Fault panics, and then adds none.
func (h *Hub) TryFault(rules ...Rule) error {
	for i := range rules {
		if err := rules[i].check(); err != nil {
			return err
		}
	}
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	for _, r := range rules {
		h.faults.rules = append(h.faults.rules, &active{Rule: r})
	}
	return nil
}

// ClearFaults ends all rules.
func (h *Hub) ClearFaults() {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	h.faults.rules = nil
}

// Met gives how many requests have gone wrong by each rule, in the order in which they were added.
func (h *Hub) Met() []int {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	var n []int
	for _, a := range h.faults.rules {
		k := max(0, a.met-a.Skip)
		if a.Times > 0 {
			k = min(k, a.Times)
		}
		n = append(n, k)
	}
	return n
}

// pick gives the rule that a request meets, or nil.
func (f *faults) pick(side int, r *http.Request, t target) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.rules {
		if a.Server != "" && a.Server != sides[side] || a.Method != "" && a.Method != r.Method ||
			a.Path != "" && !glob(a.Path, r.URL.Path) && !glob(a.Path, t.file) ||
			a.Fault.listing() && !t.listing || a.Fault.content() && !t.content ||
			a.bodily() && (r.Method == http.MethodHead && a.Method == "" || t.redirects && (a.Fault != Changed || a.Server == "")) {
			continue
		}
		a.met++
		if a.met <= a.Skip || a.Times > 0 && a.met > a.Skip+a.Times {
			continue
		}
		return &a.Rule
	}
	return nil
}

// glob compares with a pattern in which * stands for any characters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) || !strings.HasSuffix(s[len(first):], last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return true
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

// lie changes a listing.
func lie(f *Rule, list []listed) []listed {
	if f == nil || !f.Fault.listing() {
		return list
	}
	if f.Fault == ListNames {
		names := f.Names
		if names == nil {
			names = HostileNames
		}
		o, _ := memory([]byte("{}")).as(false)
		for _, n := range names {
			list = append(list, listed{n, o})
		}
		return list
	}
	for i, l := range list {
		if f.Files != "" && !glob(f.Files, l.name) {
			continue
		}
		o := *l.object
		if f.Fault == ListSize {
			o.size += f.Bytes
			if f.Bytes == 0 {
				o.size++
			}
		} else {
			o.sha256, o.blob = other(o.sha256), other(o.blob)
		}
		list[i].object = &o
	}
	return list
}

// other gives another digest of the same form.
func other(digest string) string {
	if digest == "" {
		return ""
	}
	last := "0"
	if strings.HasSuffix(digest, "0") {
		last = "1"
	}
	return digest[:len(digest)-1] + last
}

// serveFaults is the control for scripts: POST a rule or a list of them, GET them with how often each was met, DELETE
// them all.
func (h *Hub) serveFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		h.ClearFaults()
	case http.MethodPost:
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var rules []Rule
		if err == nil && strings.HasPrefix(strings.TrimSpace(string(b)), "[") {
			err = json.Unmarshal(b, &rules)
		} else if err == nil {
			rules = make([]Rule, 1)
			err = json.Unmarshal(b, &rules[0])
		}
		if err == nil {
			err = h.TryFault(rules...)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "", err.Error())
			return
		}
	default:
		fail(w, http.StatusMethodNotAllowed, "", "Method Not Allowed")
		return
	}
	type met struct {
		Rule
		Met int `json:"met"`
	}
	list := []met{}
	n := h.Met()
	h.faults.mu.Lock()
	for i, a := range h.faults.rules[:min(len(n), len(h.faults.rules))] {
		list = append(list, met{a.Rule, n[i]})
	}
	h.faults.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}
