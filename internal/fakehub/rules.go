package fakehub

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// faults are the active rules.
type faults struct {
	mu    sync.Mutex
	rules []*active
}

type active struct {
	Rule
	met int // matching requests
}

// Fault adds a rule. It panics if the rule is invalid.
func (h *Hub) Fault(rules ...Rule) {
	if err := h.TryFault(rules...); err != nil {
		panic("internal error: fakehub: " + err.Error())
	}
}

// TryFault is Fault for untrusted rules: it returns an error instead of panicking.
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

// ClearFaults removes all rules.
func (h *Hub) ClearFaults() {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	h.faults.rules = nil
}

// Met returns the number of failures caused by each rule, in the order in which the rules were added.
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

// pick returns the rule that applies to a request, or nil.
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

// glob matches s against a pattern in which * stands for any characters.
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

// serveFaults lets scripts control the faults: POST adds a rule or a list of them, GET returns them with their counts,
// DELETE removes them all.
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
