package transfer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// ReadAll reads the body of an answer, which has at most limit bytes, and closes it. What breaks off is [Retryable].
func ReadAll(resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s answers with more than %d bytes: %w", resp.Request.URL.Host, limit, tensor.ErrCorrupt)
	case err != nil:
		return nil, &Retryable{Err: Redact(err)}
	}
	return b, nil
}

// StatusOf makes an error of an answer that is no success: [Retryable] where another try may go well.
func StatusOf(resp *http.Response) error {
	err := fmt.Errorf("%s answers %s", resp.Request.URL.Host, resp.Status)
	if Transient(resp.StatusCode) {
		return &Retryable{Err: err, After: RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return err
}

// Transient reports whether a status may be another one at the next try.
func Transient(status int) bool {
	return status == 408 || status == 425 || status == 429 || status >= 500 && status != 501
}

// RetryAfter reads the header of that name, seconds or a date; 0 if it says nothing.
func RetryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// Redact takes addresses out of an error: those of storage are signed and work for anyone.
func Redact(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		host := "the server"
		if p, perr := url.Parse(u.URL); perr == nil && p.Host != "" {
			host = p.Host
		}
		return fmt.Errorf("%s: %w", host, u.Err)
	}
	return err
}
