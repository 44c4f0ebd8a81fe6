package transfer

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// minSecret is the shortest text that is hidden, in bytes.
	minSecret = 4
	// minPlain is the shortest text that is hidden in successful responses, in bytes: a short password may be a word that the
	// response needs.
	minPlain = 12
	// maxSecrets is the number of secrets that are remembered. Registries issue a token for every scope.
	maxSecrets = 32
	// maxScrubbed bounds the successful bodies that are searched, in bytes. Longer bodies are content, which is never shown.
	maxScrubbed = 16 << 20
)

// Secrets are the credentials that requests carry. [Secrets.Transport] records them when they are sent and removes them from the
// responses, so that no caller can show a token that a server repeats. The zero value is ready for use.
type Secrets struct {
	mu     sync.Mutex
	known  []string // newest last
	recent []string // those of single requests, such as signatures
}

// Add records secrets before a request carries them.
func (s *Secrets) Add(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = remember(s.known, secrets)
}

// remember adds texts to a list of the newest.
func remember(list, texts []string) []string {
	for _, text := range texts {
		if len(text) >= minSecret && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return slices.Clone(list[max(0, len(list)-maxSecrets):])
}

// matcher matches all forms of the known secrets and of more; least is the length of the shortest secret that counts.
func (s *Secrets) matcher(least int, more ...string) *matcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return newMatcher(least, slices.Concat(s.known, more))
}

// everything matches all remembered secrets.
func (s *Secrets) everything(least int) *matcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return newMatcher(least, slices.Concat(s.known, s.recent))
}

// Hide replaces the secrets in a text, plain or encoded, by dots.
func (s *Secrets) Hide(text string) string { return s.everything(minSecret).hide(text) }

// HideError returns err without the secrets in its text.
func (s *Secrets) HideError(err error) error {
	if err == nil {
		return nil
	}
	return s.everything(minSecret).hideError(err)
}

// Mask returns a copy of a response with each byte of the secrets replaced by an asterisk.
func (s *Secrets) Mask(b []byte) []byte {
	b = slices.Clone(b)
	s.matcher(minPlain).mask(b)
	return b
}

// CheckHost rejects an address whose host contains a secret, because messages name hosts.
func (s *Secrets) CheckHost(u *url.URL) error {
	if s.everything(minPlain).hide(u.Host) != u.Host {
		return errors.New("an address that holds a secret of the request")
	}
	return nil
}

// Transport sends requests by base, records the credentials that they carry, and hides these in the errors, statuses, headers
// and bodies of the responses. Location stays as it is, because it has to be followed. handsOut, which may be nil, reports
// whether the response to a request may hold credentials that the caller needs, as that of a token service does: the body of a
// successful one then stays as it is.
func (s *Secrets) Transport(base http.RoundTripper, handsOut func(*http.Request) bool) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &secretive{s, base, handsOut}
}

type secretive struct {
	secrets  *Secrets
	base     http.RoundTripper
	handsOut func(*http.Request) bool
}

func (t *secretive) RoundTrip(req *http.Request) (*http.Response, error) {
	lasting, once := carried(req)
	if h, ok := t.base.(*http.Transport); ok && h.Proxy != nil {
		if proxy, err := h.Proxy(req); err == nil && proxy != nil {
			lasting = append(lasting, userSecrets(proxy.User)...)
		}
	}
	t.secrets.Add(lasting...)
	t.secrets.mu.Lock()
	t.secrets.recent = remember(t.secrets.recent, once)
	t.secrets.mu.Unlock()
	resp, err := t.base.RoundTrip(req)
	all := t.secrets.matcher(minSecret, once...)
	if err != nil {
		return nil, all.hideError(err)
	}
	m := all
	if resp.StatusCode/100 == 2 {
		m = t.secrets.matcher(minPlain, once...)
	}
	resp.Status = m.hide(resp.Status)
	for name, values := range resp.Header {
		for i, v := range values {
			if name != "Location" {
				values[i] = m.hide(v)
			}
		}
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		return resp, nil
	}
	if resp.StatusCode/100 == 2 && (resp.ContentLength > maxScrubbed || t.handsOut != nil && t.handsOut(req)) {
		m = nil
	}
	resp.Body = &scrubbed{Closer: resp.Body, body: resp.Body, m: m, all: all}
	return resp, nil
}

// sensitive matches the names of headers and of query parameters whose values grant access.
var sensitive = regexp.MustCompile(`(?i)auth|token|secret|passw|signature|^sig$|^_state$|credential|api-?key|` +
	`key-?(pair-)?id|policy|session`)

// carried returns the secrets of a request: those that later ones carry too, and those that are valid only for this one.
func carried(req *http.Request) (lasting, once []string) {
	lasting = userSecrets(req.URL.User)
	for name, values := range req.Header {
		for _, v := range values {
			switch {
			case name == "Authorization" || name == "Proxy-Authorization":
				scheme, rest, _ := strings.Cut(v, " ")
				if key, signature, ok := signedBy(rest); ok && strings.HasPrefix(scheme, "AWS4") {
					lasting, once = append(lasting, key), append(once, signature)
					continue
				}
				rest = strings.TrimSpace(rest)
				lasting = append(lasting, rest)
				if b, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "Basic") {
					user, password, _ := strings.Cut(string(b), ":")
					lasting = append(lasting, user+":"+password, password)
				}
				if rest == "" {
					lasting = append(lasting, scheme)
				}
			case name == "Cookie":
				for _, c := range req.Cookies() {
					lasting = append(lasting, c.Value)
				}
			case sensitive.MatchString(name):
				lasting = append(lasting, v)
			}
		}
	}
	for name, values := range req.URL.Query() {
		if sensitive.MatchString(name) {
			for _, v := range values {
				key, _, _ := strings.Cut(v, "/") // X-Amz-Credential also has the date and the region
				once = append(once, v, key)
			}
		}
	}
	return lasting, once
}

// signedBy returns the key and the signature of a request to an S3 store.
func signedBy(authorization string) (key, signature string, ok bool) {
	for part := range strings.SplitSeq(authorization, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "Credential":
			key, _, _ = strings.Cut(value, "/")
		case "Signature":
			signature = value
		}
	}
	return key, signature, key != "" && signature != ""
}

// userSecrets returns the secrets in the user part of an address.
func userSecrets(u *url.Userinfo) []string {
	if u == nil {
		return nil
	}
	password, _ := u.Password()
	plain := u.Username() + ":" + password
	return []string{password, plain, base64.StdEncoding.EncodeToString([]byte(plain))}
}

// matcher finds any number of texts in bytes in one pass.
type matcher struct {
	pairs   []uint64             // a bit for every two bytes that some text begins with
	texts   map[[2]byte][]string // by these, the longest first
	longest int
}

// newMatcher returns a matcher of all forms of the secrets of at least least bytes.
func newMatcher(least int, secrets []string) *matcher {
	m := &matcher{texts: map[[2]byte][]string{}}
	for _, s := range secrets {
		if len(s) < max(least, minSecret) {
			continue
		}
		for _, f := range formsOf(s) {
			first := [2]byte{f[0], f[1]}
			if slices.Contains(m.texts[first], f) {
				continue
			}
			if m.pairs == nil {
				m.pairs = make([]uint64, 1<<16/64)
			}
			i := uint(f[0])<<8 | uint(f[1])
			m.pairs[i/64] |= 1 << (i % 64)
			m.texts[first] = append(m.texts[first], f)
			m.longest = max(m.longest, len(f))
		}
	}
	for _, list := range m.texts {
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	}
	return m
}

// formsOf returns a secret and its forms in addresses, in JSON, in HTML and XML, in base64 at any alignment, and in hex. No form
// is shorter than four bytes.
func formsOf(s string) []string {
	forms := []string{s, url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s)}
	quoted := strconv.Quote(s)
	forms = append(forms, quoted[1:len(quoted)-1])
	for _, safe := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(safe)
		if e.Encode(s) == nil {
			forms = append(forms, strings.Trim(strings.TrimSpace(b.String()), `"`))
		}
	}
	var percent strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&percent, "%%%02X", s[i])
	}
	digits := hex.EncodeToString([]byte(s))
	forms = append(forms, percent.String(), strings.ToLower(percent.String()), digits, strings.ToUpper(digits))
	for before := range 3 {
		text := make([]byte, before, before+len(s))
		text = append(text, s...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			// Digits that also hold bits of a neighbouring byte are left out.
			f := enc.EncodeToString(text)
			f = f[(before*8+5)/6:]
			if len(text)%3 > 0 {
				f = f[:len(f)-1]
			}
			forms = append(forms, f)
		}
	}
	return slices.DeleteFunc(forms, func(f string) bool { return len(f) < minSecret })
}

// next finds the first text in b.
func (m *matcher) next(b []byte) (at, n int, ok bool) {
	if m.pairs == nil {
		return 0, 0, false
	}
	for i := 0; i+1 < len(b); i++ {
		p := uint(b[i])<<8 | uint(b[i+1])
		if m.pairs[p/64]&(1<<(p%64)) == 0 {
			continue
		}
		for _, f := range m.texts[[2]byte{b[i], b[i+1]}] {
			if len(b)-i >= len(f) && string(b[i:i+len(f)]) == f {
				return i, len(f), true
			}
		}
	}
	return 0, 0, false
}

// begun returns where in b a text may begin whose rest has not arrived; len(b) if nowhere.
func (m *matcher) begun(b []byte) int {
	for i := max(0, len(b)-m.longest+1); i+1 < len(b); i++ {
		p := uint(b[i])<<8 | uint(b[i+1])
		if m.pairs[p/64]&(1<<(p%64)) == 0 {
			continue
		}
		for _, f := range m.texts[[2]byte{b[i], b[i+1]}] {
			if len(b)-i < len(f) && f[:len(b)-i] == string(b[i:]) {
				return i
			}
		}
	}
	for first := range m.texts {
		if len(b) > 0 && first[0] == b[len(b)-1] {
			return len(b) - 1
		}
	}
	return len(b)
}

func (m *matcher) hide(text string) string {
	at, n, ok := m.next([]byte(text))
	if !ok {
		return text
	}
	return text[:at] + "..." + m.hide(text[at+n:])
}

func (m *matcher) hideError(err error) error {
	if text := m.hide(err.Error()); text != err.Error() {
		return &redacted{text, err}
	}
	return err
}

func (m *matcher) mask(b []byte) {
	for {
		at, n, ok := m.next(b)
		if !ok {
			return
		}
		for i := range n {
			b[at+i] = '*'
		}
		b = b[at+n:]
	}
}

// scrubbed is a body without secrets, of the same length.
type scrubbed struct {
	io.Closer
	body io.Reader
	m    *matcher // matches the secrets to replace; nil for none
	all  *matcher // matches the secrets to remove from errors

	buf  []byte // bytes received and not yet returned
	safe int    // bytes of it that may be returned
	err  error
}

func (s *scrubbed) Read(p []byte) (int, error) {
	if s.m == nil || s.m.pairs == nil {
		n, err := s.body.Read(p)
		if err != nil && err != io.EOF {
			err = s.all.hideError(err)
		}
		return n, err
	}
	for s.safe == 0 && s.err == nil && len(p) > 0 {
		had := len(s.buf)
		s.buf = slices.Grow(s.buf, max(len(p), 4096))
		n, err := s.body.Read(s.buf[had:cap(s.buf)])
		s.buf = s.buf[:had+n]
		s.m.mask(s.buf)
		if s.safe = len(s.buf); err == nil {
			s.safe = s.m.begun(s.buf)
		} else if s.err = err; err != io.EOF {
			s.err = s.all.hideError(err)
		}
	}
	if s.safe == 0 && len(p) > 0 {
		return 0, s.err
	}
	n := copy(p, s.buf[:s.safe])
	s.buf, s.safe = s.buf[:copy(s.buf, s.buf[n:])], s.safe-n
	return n, nil
}
