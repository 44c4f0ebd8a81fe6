package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// twoHosts is a service and another server; both answer by what, and tell what they saw.
func twoHosts(t *testing.T, what func(w http.ResponseWriter, r *http.Request, other *url.URL)) (*Client, *httptest.Server) {
	t.Helper()
	var home, away *httptest.Server
	handler := func(o **httptest.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u, _ := url.Parse((*o).URL)
			what(w, r, u)
		})
	}
	home, away = httptest.NewServer(handler(&away)), httptest.NewServer(handler(&home))
	t.Cleanup(home.Close)
	t.Cleanup(away.Close)
	u, err := url.Parse(home.URL)
	must(t, err)
	return &Client{Home: u, UserAgent: "test", Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }}, away
}

// TestDo is about methods, bodies and credentials on their way through redirects.
func TestDo(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         string // method, body and credentials of the last request
		err          string
	}{
		{"GET", "/here", "GET  Bearer secret", ""},
		{"PUT", "/here", "PUT content Bearer secret", ""},
		{"GET", "/to/302", "GET  ", ""},
		{"HEAD", "/to/303", "", ""},
		{"PUT", "/to/307", "PUT content ", ""},
		{"POST", "/to/308", "POST content ", ""},
		{"POST", "/to/303", "GET  ", ""},
		{"PUT", "/to/302", "", "does not say what to send"},
		{"GET", "/round", "", "more than 8 times"},
		{"GET", "/scheme", "", "redirects from http to"},
		{"GET", "/nowhere", "", "to nowhere"},
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			client, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request, other *url.URL) {
				switch code, moved := strings.CutPrefix(r.URL.Path, "/to/"); {
				case moved:
					n := 0
					_, _ = fmt.Sscan(code, &n)
					http.Redirect(w, r, other.String()+"/here", n)
				case r.URL.Path == "/round":
					http.Redirect(w, r, "/round", http.StatusFound)
				case r.URL.Path == "/scheme":
					http.Redirect(w, r, "ftp://127.0.0.1/", http.StatusFound)
				case r.URL.Path == "/nowhere":
					w.WriteHeader(http.StatusFound)
				default:
					b, _ := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%s %s %s", r.Method, b, r.Header.Get("Authorization"))
				}
			})
			var body Body
			if c.method == "PUT" || c.method == "POST" {
				body = func() (io.Reader, int64, error) { return strings.NewReader("content"), 7, nil }
			}
			resp, err := client.Do(t.Context(), c.method, client.Home.JoinPath(c.path), http.Header{"X-Other": {"x"}}, body)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v", err)
				}
				return
			}
			must(t, err)
			b, err := ReadAll(resp, 1000, nil)
			if string(b) != c.want || err != nil {
				t.Errorf("%q, %v, want %q", b, err, c.want)
			}
		})
	}
}

// TestHeaderCredentials is about those that a caller puts into the header itself.
func TestHeaderCredentials(t *testing.T) {
	client, away := twoHosts(t, func(w http.ResponseWriter, r *http.Request, other *url.URL) {
		if r.URL.Path == "/to" {
			http.Redirect(w, r, other.String()+"/here", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, r.Header.Get("Authorization")+r.Header.Get("Cookie"))
	})
	client.Authorize = nil
	there, err := url.Parse(away.URL)
	must(t, err)
	header := http.Header{"Authorization": {"Basic abc"}, "Cookie": {"a=b"}}
	for u, want := range map[*url.URL]string{there.JoinPath("here"): "Basic abca=b", there.JoinPath("to"): "", client.Home.JoinPath("to"): ""} {
		resp, err := client.Get(t.Context(), u, header)
		must(t, err)
		if b, err := ReadAll(resp, 100, nil); string(b) != want || err != nil {
			t.Errorf("%s: %q, %v", u.Path, b, err)
		}
	}
	if header.Get("Authorization") == "" {
		t.Error("the caller's header has changed")
	}
}

// TestCredentialsWithLineBreak demands that nothing is sent and that the error does not tell.
func TestCredentialsWithLineBreak(t *testing.T) {
	for _, token := range []string{"hf_secret\n", "hf_secret\r\nX-Other: y", "hf_secret\x00", "hf_secret\x7f"} {
		client, _ := twoHosts(t, func(http.ResponseWriter, *http.Request, *url.URL) { t.Error("a request was sent") })
		client.Authorize = func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + token} }
		_, err := client.Get(t.Context(), client.Home, nil)
		if again := (*Retryable)(nil); err == nil || strings.Contains(err.Error(), "secret") || errors.As(err, &again) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestRetryOfMethods demands that only what may be sent twice is.
func TestRetryOfMethods(t *testing.T) {
	for method, want := range map[string]int32{"GET": maxTries, "PUT": maxTries, "DELETE": maxTries, "POST": 1, "PATCH": 1} {
		var n atomic.Int32
		client, _ := twoHosts(t, func(http.ResponseWriter, *http.Request, *url.URL) {
			n.Add(1)
			panic(http.ErrAbortHandler)
		})
		client.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // the transport repeats what it sent through an old connection
		err := Retry(t.Context(), "test", quick, func(ctx context.Context, touch func(int)) (bool, error) {
			resp, err := client.Do(ctx, method, client.Home, nil, func() (io.Reader, int64, error) { return bytes.NewReader([]byte("x")), 1, nil })
			if err == nil {
				resp.Body.Close()
			}
			return false, err
		})
		if err == nil || n.Load() != want {
			t.Errorf("%s: %d requests, %v", method, n.Load(), err)
		}
	}
	// A POST that did not leave can be repeated.
	gone, away := twoHosts(t, nil)
	away.Close()
	u, err := url.Parse(away.URL)
	must(t, err)
	_, err = gone.Do(t.Context(), "POST", u, nil, nil)
	if again := (*Retryable)(nil); !errors.As(err, &again) {
		t.Errorf("got %v", err)
	}
}

func TestReadAll(t *testing.T) {
	client, _ := twoHosts(t, func(w http.ResponseWriter, r *http.Request, _ *url.URL) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	})
	resp, err := client.Get(t.Context(), client.Home, nil)
	must(t, err)
	if b, err := ReadAll(resp, 10_000, func(int) {}); err == nil || b != nil || !strings.Contains(err.Error(), "more than 10000 bytes") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://hub.co/x", "https://HUB.co:443/y", true}, {"http://hub.co", "http://hub.co:80", true},
		{"https://hub.co", "http://hub.co", false}, {"https://hub.co", "https://hub.co:444", false},
		{"https://hub.co", "https://a.hub.co", false}, {"http://hub.co:443", "https://hub.co", false},
	} {
		a, _ := url.Parse(c.a)
		b, _ := url.Parse(c.b)
		if sameOrigin(a, b) != c.same {
			t.Errorf("%s and %s", c.a, c.b)
		}
	}
}

func TestRedact(t *testing.T) {
	client := &Client{Home: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	_, err := client.Get(t.Context(), &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/f", RawQuery: "signature=secret"}, nil)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// BenchmarkFetch is a download over loopback; `make bench-hub` compares it with other programs.
func BenchmarkFetch(b *testing.B) {
	const size = 64 << 20
	s := newServer(b, size)
	blob := s.blob()
	b.SetBytes(size)
	for b.Loop() {
		if err := Fetch(b.Context(), b.TempDir()+"/file", blob, s.open(), quick); err != nil {
			b.Fatal(err)
		}
	}
}

// TestProxies holds that ALL_PROXY stands in for the proxies of both schemes.
func TestProxies(t *testing.T) {
	for _, c := range []struct{ env, to, want string }{
		{"", "https://a.example", ""},
		{"ALL_PROXY=http://all:1", "https://a.example", "http://all:1"},
		{"all_proxy=socks5://all:1", "http://a.example", "socks5://all:1"},
		{"ALL_PROXY=http://all:1 HTTPS_PROXY=http://one:2", "https://a.example", "http://one:2"},
		{"ALL_PROXY=http://all:1 https_proxy=http://one:2", "http://a.example", "http://all:1"},
		{"ALL_PROXY=http://all:1 NO_PROXY=.example", "https://a.example", ""},
		{"ALL_PROXY=http://all:1", "http://localhost:8080", ""},
		{"HTTP_PROXY=http://one:2 REQUEST_METHOD=GET", "https://a.example", ""},
	} {
		env := map[string]string{}
		for _, kv := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		r, err := http.NewRequest(http.MethodGet, c.to, nil)
		must(t, err)
		u, err := proxyFrom(func(k string) string { return env[k] })(r)
		must(t, err)
		if got := fmt.Sprint(u); u != nil && got != c.want || u == nil && c.want != "" {
			t.Errorf("%s, to %s: %s, want %q", c.env, c.to, got, c.want)
		}
	}
}

// TestFinal holds which failures of a connection are not tried again: a name that does not exist and a certificate that is
// not trusted, as long as no server has answered.
func TestFinal(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(srv.Config.Handler)
	defer plain.Close()
	absent := &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "127.0.0.1") {
			return net.Dial("tcp", addr)
		}
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	}}}
	for _, c := range []struct {
		name, to string
		client   *http.Client
		before   bool // another server has answered
		want     int
	}{
		{"certificate", srv.URL, nil, false, 1},
		{"certificate of storage", srv.URL, nil, true, maxTries},
		{"name", "http://none.invalid", absent, false, 1},
		{"name of storage", "http://none.invalid", absent, true, maxTries},
	} {
		u, err := url.Parse(c.to)
		must(t, err)
		home, err := url.Parse(plain.URL)
		must(t, err)
		cl := &Client{Home: home, HTTP: c.client}
		if c.before {
			resp, err := cl.Get(t.Context(), home, nil)
			must(t, err)
			resp.Body.Close()
		}
		n := 0
		err = Retry(t.Context(), "test", Options{Pause: time.Nanosecond}, func(ctx context.Context, _ func(int)) (bool, error) {
			n++
			_, err := cl.Get(ctx, u, nil)
			return false, err
		})
		if n != c.want || err == nil {
			t.Errorf("%s: %d tries, %v", c.name, n, err)
		}
	}
}
