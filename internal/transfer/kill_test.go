package transfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	killSize = 16*pieceSize + 1000
	// inFlight is what may be between the server and a process that dies, for each connection, in bytes: the buffers of both
	// ends, which the tests make small, and what the process has read and not written.
	inFlight = 1 << 20
)

const killChild = "LLMEXPORT_KILL_CHILD"

// TestMain is also the process that TestKills kills.
func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(killChild)); len(args) == 3 {
		if err := fetchOnce(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fetchOnce fetches from an address to a path what has a digest.
func fetchOnce(address, path, digest string) error {
	home, err := url.Parse(address)
	if err != nil {
		return err
	}
	tr := newTransport()
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}
	c := &Client{Home: home, HTTP: &http.Client{Transport: tr}, Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }}
	if err := Fetch(context.Background(), path+".part", Blob{Size: killSize, SHA256: digest}, c.Range(home, killSize), quick); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// TestKills kills a process that fetches, at random places, and starts it again until the file is there; then from the
// beginning. LLMEXPORT_KILLS is how often; the default is 8.
func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	kills := 8
	if s := os.Getenv("LLMEXPORT_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		kills = n
	}
	if testing.Short() {
		kills = 3
	}
	s := newServer(t, killSize, func(storage *http.Server) {
		storage.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
			return ctx
		}
	})
	var victim atomic.Pointer[os.Process]
	var deadline atomic.Int64 // of s.served
	s.setAnswer(func(w http.ResponseWriter, r *http.Request, _ int32) bool {
		w.Header().Set("ETag", s.etag)
		first, last := span(r, killSize)
		w.Header().Set("Content-Range", "bytes "+strconv.Itoa(first)+"-"+strconv.Itoa(last)+"/"+strconv.Itoa(killSize))
		w.Header().Set("Content-Length", strconv.Itoa(last-first+1))
		w.WriteHeader(http.StatusPartialContent)
		for b := s.content[first : last+1]; len(b) > 0; {
			n, err := w.Write(b[:min(len(b), 64<<10)])
			if err != nil {
				break
			}
			b = b[n:]
			if p := victim.Load(); p != nil && s.served.Load() > deadline.Load() {
				time.Sleep(rand.N(2 * time.Millisecond))
				_ = p.Kill()
			}
		}
		return true
	})
	path := filepath.Join(t.TempDir(), "file")
	total, again := kills, int64(0)
	for n := 0; kills > 0; {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killChild+"="+s.hub.URL+" "+path+" "+s.blob().SHA256)
		deadline.Store(s.served.Load() + rand.N[int64](killSize))
		victim.Store(nil)
		must(t, cmd.Start())
		victim.Store(cmd.Process)
		if kills%4 == 0 { // a moment that no byte marks: the start, the digest, the end
			p := cmd.Process
			timer := time.AfterFunc(rand.N(300*time.Millisecond), func() { _ = p.Kill() })
			defer timer.Stop()
		}
		err := cmd.Wait()
		victim.Store(nil)
		if cmd.ProcessState.ExitCode() == 1 {
			t.Fatalf("the process failed: %v", err)
		}
		if err != nil {
			kills--
			n++
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		checkFile(t, path, s.content)
		must(t, os.Remove(path))
		if most := killSize + int64(n)*4*(pieceSize+inFlight); s.served.Load() > most {
			t.Errorf("%d bytes served after %d kills, at most %d make sense", s.served.Load(), n, most)
		}
		again += s.served.Load() - killSize
		s.served.Store(0)
		n = 0
	}
	t.Logf("kills: %d, corrupt: 0, lost: 0, again per kill: %.3f MiB, limit: %.3f MiB", total, float64(again)/float64(total)/(1<<20),
		4*float64(pieceSize+inFlight)/(1<<20))
}
