package transfer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ReadAll reads the body of a response, which has at most limit bytes, and closes it. A truncated body is [Retryable]. For long
// responses, touch is called as data arrives; it may be nil.
func ReadAll(resp *http.Response, limit int64, touch func(int)) ([]byte, error) {
	defer resp.Body.Close()
	r := io.Reader(resp.Body)
	if touch != nil {
		r = Watch(r, touch)
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case int64(len(b)) > limit:
		return nil, tooLong(resp, limit)
	case err != nil:
		return nil, &Retryable{Err: Redact(err)}
	}
	return b, nil
}

// StatusOf turns an unsuccessful response into an error: [Retryable] if another try may succeed.
func StatusOf(resp *http.Response) error {
	err := &StatusError{Status: resp.StatusCode, Who: resp.Request.URL.Host}
	if Transient(resp.StatusCode) {
		return &Retryable{Err: err, After: RetryAfter(resp.Header, time.Now())}
	}
	return err
}

// Transient reports whether the next try may get another status.
func Transient(status int) bool {
	return status == 408 || status == 425 || status == 429 || status >= 500 && status != 501
}

// RetryAfter is how long the header of a response asks to wait, 0 if it does not: by Retry-After, seconds or a date, or else by
// RateLimit, where each exhausted limit names the seconds until it is reset. The Hugging Face hub sends the latter.
// Source: https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-09.html, sections 4 and 6.3.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	s := h.Get("Retry-After")
	if n, ok := seconds(s); ok {
		return n
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	var wait time.Duration
	for limit := range strings.SplitSeq(strings.Join(h.Values("RateLimit"), ","), ",") {
		_, params, _ := strings.Cut(limit, ";")
		var left, reset string
		for p := range strings.SplitSeq(params, ";") {
			switch key, value, _ := strings.Cut(p, "="); strings.TrimSpace(key) {
			case "r":
				left = strings.TrimSpace(value)
			case "t":
				reset = strings.TrimSpace(value)
			}
		}
		if n, ok := seconds(reset); ok && left == "0" {
			wait = max(wait, n)
		}
	}
	return wait
}

// seconds parses a number of seconds.
func seconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return time.Duration(n) * time.Second, err == nil
}

// Redact reduces addresses in an error to their hosts: storage addresses are signed and work for anyone.
func Redact(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		host := "the server"
		if p, perr := url.Parse(u.URL); perr == nil && p.Host != "" {
			host = p.Host
		}
		err = fmt.Errorf("%s: %w", host, u.Err)
	}
	if err != nil {
		if text := hideAddresses(err.Error()); text != err.Error() {
			return &redacted{text, err}
		}
	}
	return err
}
