package placetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Kills is how often a test kills: LLMEXPORT_KILLS, or n.
func Kills(n int) int {
	if k, err := strconv.Atoi(os.Getenv("LLMEXPORT_KILLS")); err == nil {
		return k
	}
	return n
}

// LogKills says what kills cost. That nothing is corrupt and nothing lost is what the tests demand before.
func LogKills(t *testing.T, kills int, again, most int64) {
	t.Helper()
	if most == 0 {
		t.Logf("kills: %d, corrupt: 0, lost: 0", kills)
		return
	}
	per := float64(again) / float64(max(1, kills)) / (1 << 20)
	t.Logf("kills: %d, corrupt: 0, lost: 0, again per kill: %.3f MiB, limit: %.3f MiB", kills, per, float64(most)/(1<<20))
	if again > most*int64(kills) {
		t.Errorf("%d bytes travelled again in %d kills, more than %d for each", again, kills, most)
	}
}

// Killable is a kind of place whose publishers are killed.
type Killable struct {
	// Place makes the i-th place: what its publisher finds in the environment, and the reference that readers use.
	Place func(i int) (env []string, ref string)
	Sent  func() int64 // bytes that publishers have sent so far
	Most  int64        // of them that a kill costs; 0 where nothing is counted
	// Open opens the place of a reference.
	Open func(ctx context.Context, ref string) (place.Origin, error)
}

// Kill kills publishers of p at random instants, and starts them again until the place has the package; then those
// of the next place. Readers find all of the package or nothing.
func Kill(t *testing.T, k Killable, n int, p place.Package) {
	Seal(t, p)
	want := func(ref string) {
		t.Helper()
		o, err := k.Open(t.Context(), ref)
		if err != nil {
			t.Error(err)
			return
		}
		WantOrigin(t, o, p)
	}
	run := func(env []string, within time.Duration) (killed bool) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), PackageEnv+"="+p.Dir), env...)
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if within > 0 {
			timer := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		err := cmd.Wait()
		if cmd.ProcessState.ExitCode() > 0 {
			t.Fatalf("%v: %s", err, out.String())
		}
		return err != nil
	}
	env, ref := k.Place(0)
	start := time.Now()
	run(env, 0)
	whole, size := time.Since(start), k.Sent()
	want(ref)
	killed, again := 0, int64(0)
	for i := 1; killed < n; i++ {
		env, ref := k.Place(i)
		before := k.Sent()
		for {
			within := rand.N(whole * 3 / 2)
			if killed == n {
				within = 0
			}
			if !run(env, within) {
				break
			}
			killed++
			if o, err := k.Open(t.Context(), ref); err == nil {
				WantOrigin(t, o, p)
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
		want(ref)
		again += max(0, k.Sent()-before-size)
	}
	LogKills(t, killed, again, k.Most)
}

// Fresh is a server that is a new one whenever that is wanted, and counts what it is sent.
type Fresh struct {
	now  atomic.Pointer[http.Handler]
	Sent atomic.Int64
}

// Set makes h what the server does from now on.
func (f *Fresh) Set(h http.Handler) { f.now.Store(&h) }

// ServeHTTP implements http.Handler.
func (f *Fresh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, (*meter)(&f.Sent)), r.Body}
	(*f.now.Load()).ServeHTTP(w, r)
}

// NewFresh starts one.
func NewFresh(t *testing.T) (f *Fresh, url string) {
	f = &Fresh{}
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return f, s.URL
}

// meter counts what is written.
type meter atomic.Int64

func (m *meter) Write(b []byte) (int, error) {
	(*atomic.Int64)(m).Add(int64(len(b)))
	return len(b), nil
}

// Seal writes manifest.json next to the files of a package, for a process that opens it.
func Seal(t testing.TB, p place.Package) {
	t.Helper()
	b, err := p.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	Write(t, filepath.Join(p.Dir, manifest.FileName), string(b))
}

// PackageEnv is the variable with the directory of the package that a process publishes.
const PackageEnv = "PUBLISH_TEST_KILL_PACKAGE"

// PublishChild publishes the package of the environment, in a process that a test kills.
func PublishChild(s place.Store) error {
	p, err := place.Open(os.Getenv(PackageEnv))
	if err != nil {
		return err
	}
	_, err = place.To(context.Background(), s, p)
	return err
}

// Main is for TestMain: it runs the tests, or what a test kills: the entry of children whose name the environment
// has, with the variable's value.
func Main(m *testing.M, children ...map[string]func(value string) error) {
	for _, kind := range children {
		for name, run := range kind {
			if value := os.Getenv(name); value != "" {
				if err := run(value); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				os.Exit(0)
			}
		}
	}
	os.Exit(m.Run())
}
