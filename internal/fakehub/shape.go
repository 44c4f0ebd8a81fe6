package fakehub

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shape applies a rule to the response header before it is sent.
func (w *response) shape(status int) {
	head := w.Header()
	f := w.fault
	if f == nil || status >= 300 && f.Fault != Changed {
		return
	}
	length, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64)
	w.start = 0
	if from, ok := strings.CutPrefix(head.Get("Content-Range"), "bytes "); ok {
		from, _, _ = strings.Cut(from, "-")
		w.start, _ = strconv.ParseInt(from, 10, 64)
	}
	n := max(f.Bytes, 1)
	switch f.Fault {
	case Changed:
		for _, key := range []string{"ETag", "X-Linked-Etag"} {
			if v := strings.Trim(head.Get(key), `"`); v != "" {
				head.Set(key, `"`+other(v)+`"`)
			}
		}
	case Long:
		if err == nil {
			head.Set("Content-Length", strconv.FormatInt(length+n, 10))
		}
	case Short:
		if err == nil {
			w.left = max(0, length-n)
			head.Set("Content-Length", strconv.FormatInt(w.left, 10))
		}
	case Endless:
		head.Del("Content-Length")
	case WrongRange:
		if v, ok := strings.CutPrefix(head.Get("Content-Range"), "bytes "); ok {
			from, rest, _ := strings.Cut(v, "-")
			start, _ := strconv.ParseInt(from, 10, 64)
			head.Set("Content-Range", fmt.Sprintf("bytes %d-%s", start+1, rest))
		}
	}
}

// body writes bytes of the body, changed by the rule.
func (w *response) body(b []byte) (int, error) {
	f := w.fault
	total := len(b)
	switch f.Fault {
	case Cut, Reset, Stall:
		if room := f.After - w.sent; int64(len(b)) >= room {
			_, _ = w.send(b[:max(0, room)])
			if f.Fault == Stall {
				w.flush()
				w.wait(0)
			}
			w.drop(f.Fault == Reset)
			return 0, errDropped
		}
	case Slow:
		for len(b) > 0 {
			n := int(min(int64(len(b)), max(1, f.Rate/20)))
			if _, err := w.send(b[:n]); err != nil {
				return total - len(b), err
			}
			w.flush()
			b = b[n:]
			if !w.wait(time.Duration(float64(n) / float64(f.Rate) * float64(time.Second))) {
				return total - len(b), errDropped
			}
		}
		return total, nil
	case Flip:
		if at := f.After - w.start - w.sent; at >= 0 && at < int64(len(b)) {
			b = slices.Clone(b)
			b[at] ^= 1
		}
	case Changed:
		b = slices.Clone(b)
		for i := range b {
			b[i] ^= 0x5a
		}
	case Short:
		if room := w.left - w.sent; int64(len(b)) > room {
			_, err := w.send(b[:max(0, room)])
			return total, err
		}
	}
	return w.send(b)
}

// finish is called after the handler returns.
func (w *response) finish(r *http.Request) {
	switch f := w.fault; {
	case f == nil || w.dropped:
	case f.Fault == Lost:
		w.drop(false)
	case f.Fault == Endless && w.status/100 == 2 && r.Method != http.MethodHead:
		zeros := make([]byte, 64<<10)
		for {
			if _, err := w.send(zeros); err != nil {
				return
			}
		}
	}
}
