package transfer

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var retryNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	now := retryNow
	for _, c := range []struct {
		after, limit string // lines of RateLimit
		want         time.Duration
	}{
		{"", "", 0},
		{"7", "", 7 * time.Second},
		{"-1", "", 0},
		{"x", "", 0},
		{"99999999999999", "", 0},
		{now.Add(time.Minute).Format(http.TimeFormat), "", time.Minute},
		{now.Add(-time.Minute).Format(http.TimeFormat), "", 0},
		// The form that huggingface_hub reads.
		{"", `"api";r=0;t=55`, 55 * time.Second},
		{"", `"api" ; r = 0 ; t = 55`, 55 * time.Second},
		{"", `"api";t=55;r=0`, 55 * time.Second},
		{"", `"api";r=12;t=55`, 0}, // another reason than the limit
		{"", `"api";r=0`, 0},
		{"", `"api";r=0;t=-1`, 0},
		{"", `"api";r=0;t=99999999999999`, 0},
		{"", `"api";r=0;t=5, "resolvers";r=0;t=9, "pages";r=1;t=99`, 9 * time.Second},
		{"", "\"api\";r=0;t=5\n\"pages\";r=0;t=6", 6 * time.Second},
		{"3", `"api";r=0;t=55`, 3 * time.Second},
		{"0", `"api";r=0;t=55`, 0},
		{"x", `"api";r=0;t=55`, 55 * time.Second},
	} {
		h := http.Header{"Retry-After": {c.after}, "Ratelimit": strings.Split(c.limit, "\n")}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%q, %q: %v, want %v", c.after, c.limit, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("7", `"api";r=0;t=55`)
	f.Add("Fri, 02 Jan 2026 03:05:05 GMT", `"a";r=0;t=1, "b";r=0;t=2`)
	f.Fuzz(func(t *testing.T, after, limit string) {
		if got := RetryAfter(http.Header{"Retry-After": {after}, "Ratelimit": {limit}}, retryNow); got < 0 {
			t.Errorf("%q, %q: %v", after, limit, got)
		}
	})
}
