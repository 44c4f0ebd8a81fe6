package transfer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// secretForms are what a server may make of a secret.
func secretForms(s string) []string {
	quoted, _ := json.Marshal(s)
	return []string{s, url.QueryEscape(s), url.PathEscape(s), string(quoted[1 : len(quoted)-1]), hex.EncodeToString([]byte(s)),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte("Bearer " + s)),
		base64.URLEncoding.EncodeToString([]byte("user:" + s)), base64.StdEncoding.EncodeToString([]byte(`{"token":"` + s + `"}`))}
}

// wantHidden demands that no form of a secret is in a text.
func wantHidden(t *testing.T, what, text string, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		for _, f := range secretForms(s) {
			// What base64 has at the ends may be that of the neighbours.
			if core := f[min(3, len(f)/4) : len(f)-min(3, len(f)/4)]; strings.Contains(text, core) {
				t.Errorf("%s: %.400q shows %q of %q", what, text, core, s)
			}
		}
	}
}

// TestEchoes: a server repeats what it was sent wherever a response has room; nothing of it reaches a caller but in Location,
// which has to be followed.
func TestEchoes(t *testing.T) {
	t.Parallel()
	const token, password, key, session, sig = "hf_AbCdEf+/0123456789&<x>", "s3sam", "AKIAIOSFODNN7EXAMPLE", "FwoGZXIvYXdzEXAMPLEsession==",
		"0a1b2c3d4e5f60718293a4b5c6d7e8f9"
	requests := map[string]http.Header{
		"bearer": {"Authorization": {"Bearer " + token}},
		"bare":   {"Authorization": {token}},
		"basic":  {"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+password+"word-of-mine"))}},
		"cookie": {"Cookie": {"m_session_id=" + session}},
		"header": {"X-Amz-Security-Token": {session}},
		"s3":     {"Authorization": {"AWS4-HMAC-SHA256 Credential=" + key + "/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=" + sig}},
		"query":  {},
		"short":  {"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+password))}},
	}
	secrets := map[string][]string{"bearer": {token}, "bare": {token}, "basic": {password + "word-of-mine"}, "cookie": {session}, "header": {session},
		"s3": {key, sig}, "query": {sig, key}, "short": {password}}
	for name, header := range requests {
		for _, status := range []int{200, 206, 302, 307, 401, 403, 404, 416, 429, 500} {
			if name == "short" && status < 300 {
				continue // it may be a word of the response
			}
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				t.Parallel()
				var echo []string
				for _, s := range secrets[name] {
					echo = append(echo, secretForms(s)...)
				}
				home, _ := url.Parse(echoServer(t, status, strings.Join(echo, " ")))
				u := home.JoinPath("x")
				if name == "query" {
					u.RawQuery = url.Values{"X-Amz-Signature": {sig}, "X-Amz-Credential": {key + "/20260101"}}.Encode()
				}
				c := &Client{Home: home}
				resp, err := c.Do(t.Context(), http.MethodGet, u, header, nil)
				if err != nil {
					wantHidden(t, "error", err.Error(), secrets[name]...)
					return
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Error(err)
				}
				if int64(len(body)) != resp.ContentLength {
					t.Errorf("%d bytes, %d are announced", len(body), resp.ContentLength)
				}
				resp.Header.Del("Location")
				wantHidden(t, "response", fmt.Sprint(resp.Status, resp.Header, string(body), StatusOf(resp)), secrets[name]...)
			})
		}
	}
}

// echoServer answers every request with a text in the status line, in headers and in the body; a redirect leads to a host of that
// name.
func echoServer(t *testing.T, status int, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\nConnection: close\r\n", status, text, len(text))
		for _, name := range []string{"X-Error-Message", "X-Error-Code", "X-Request-Id", "ETag", "WWW-Authenticate", "Link", "Content-Range",
			"Docker-Content-Digest"} {
			fmt.Fprintf(buf, "%s: %s\r\n", name, text)
		}
		fmt.Fprintf(buf, "Location: http://%s/\r\n\r\n%s", strings.Fields(text)[0], text)
		_ = buf.Flush()
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// TestEchoInErrors: what breaks a response off may quote it.
func TestEchoInErrors(t *testing.T) {
	t.Parallel()
	const token = "hf-0123456789abcdef"
	for name, raw := range map[string]string{
		"no status":  token + "\r\n\r\n",
		"bad header": "HTTP/1.1 200 OK\r\n" + token + "\r\n\r\n",
		"bad length": "HTTP/1.1 200 OK\r\nContent-Length: " + token + "\r\n\r\n",
		"trailer":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + token + "\r\n\r\n",
		"scheme":     "HTTP/1.1 302 OK\r\nLocation: " + token + "://x/\r\nContent-Length: 0\r\n\r\n",
		"host":       "HTTP/1.1 302 OK\r\nLocation: http://" + token + ".localhost:1/\r\nContent-Length: 0\r\n\r\n",
		"userinfo":   "HTTP/1.1 302 OK\r\nLocation: http://me:" + token + "@127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"address":    "HTTP/1.1 302 OK\r\nLocation: http://127.0.0.1:1/?x=" + token + "\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = io.WriteString(conn, raw)
					conn.Close()
				}
			}()
			home, _ := url.Parse("http://" + l.Addr().String())
			c := &Client{Home: home, Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }}
			resp, err := c.Get(t.Context(), home, nil)
			if err == nil {
				_, err = ReadAll(resp, 100, nil)
			}
			if err == nil {
				t.Fatal("no error")
			}
			wantHidden(t, "error", err.Error(), token)
		})
	}
}

// TestHandsOut: a token service gives again the token that it gave before; where it refuses it does not.
func TestHandsOut(t *testing.T) {
	t.Parallel()
	const token = "a-registry-token"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, `{"token":%q}`, token)
	}))
	defer server.Close()
	home, _ := url.Parse(server.URL)
	c := &Client{Home: home, Secrets: &Secrets{}, HandsOut: func(r *http.Request) bool { return r.URL.Path != "/plain" }}
	c.Secrets.Add(token)
	for path, shown := range map[string]bool{"token": true, "refused": false, "plain": false} {
		resp, err := c.Get(t.Context(), home.JoinPath(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := ReadAll(resp, 100, nil); err != nil || strings.Contains(string(b), token) != shown {
			t.Errorf("%s: %s, %v", path, b, err)
		}
	}
}

// TestProxyPassword: what is sent to a proxy is hidden, too.
func TestProxyPassword(t *testing.T) {
	t.Parallel()
	const password = "proxy-password"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Proxy-Authorization"), "Basic "))
		w.Header().Set("X-Error-Message", string(b))
		w.WriteHeader(http.StatusProxyAuthRequired)
		fmt.Fprint(w, r.Header, string(b))
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	at.User = url.UserPassword("me", password)
	home, _ := url.Parse("http://hub.example")
	c := &Client{Home: home, HTTP: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}}
	resp, err := c.Get(t.Context(), home, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadAll(resp, 1<<16, nil)
	if err != nil || !strings.Contains(string(b), "***") {
		t.Errorf("%s, %v", b, err)
	}
	wantHidden(t, "response", fmt.Sprint(resp.Header, string(b)), password, "me:"+password)
}

func TestSecretsAreFew(t *testing.T) {
	t.Parallel()
	var s Secrets
	for i := range 10 * maxSecrets {
		s.Add(fmt.Sprintf("secret-number-%04d", i))
	}
	if len(s.known) != maxSecrets || s.Hide("secret-number-0319") != "..." || s.Hide("secret-number-0001") == "..." {
		t.Errorf("%d are known", len(s.known))
	}
}

// TestLongBodies: content that is too long to be shown is not searched, so that downloads cost what they cost.
func TestLongBodies(t *testing.T) {
	t.Parallel()
	const token = "hf_0123456789abcdef"
	for _, long := range []bool{false, true} {
		body := append([]byte(token), make([]byte, 100)...)
		n := int64(len(body))
		if long {
			n = maxScrubbed + 1
		}
		var s Secrets
		s.Add(token)
		rt := s.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: n, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		}), nil)
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://x/", nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(b), token) != long {
			t.Errorf("long %t: %s, %v", long, b, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzScrubbed: however a body arrives, it keeps its length, what is no secret stays, and no form of a secret is left.
func FuzzScrubbed(f *testing.F) {
	f.Add([]byte("a hf_token1 b"), "hf_token1", uint8(1))
	f.Add([]byte("hf_tokhf_token1hf_t"), "hf_token1", uint8(3))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("user:a+b/c&<d>"))), "a+b/c&<d>", uint8(7))
	f.Fuzz(func(t *testing.T, body []byte, secret string, step uint8) {
		var s Secrets
		s.Add(secret)
		m := s.everything(0)
		want := bytes.Clone(body)
		m.mask(want)
		broken := errors.New("cut after " + secret)
		r := &scrubbed{Closer: io.NopCloser(nil), m: m, all: m, body: io.MultiReader(
			struct{ io.Reader }{&stepReader{bytes.NewReader(body), int(step)%16 + 1}}, iotest.ErrReader(broken))}
		got, err := io.ReadAll(r)
		if !errors.Is(err, broken) || !bytes.Equal(got, want) {
			t.Errorf("%q of %q, want %q, %v", got, body, want, err)
		}
		if _, _, ok := m.next(got); ok || len(secret) >= minSecret && strings.Contains(err.Error(), secret) {
			t.Errorf("%q in %q or %v", secret, got, err)
		}
	})
}

type stepReader struct {
	io.Reader
	n int
}

func (s *stepReader) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.n)]) }
