package publish

import (
	"bytes"
	"errors"
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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/llmexport/llmexport/internal/fakes3"
)

// killsOr is how often a test kills: LLMEXPORT_KILLS, or n.
func killsOr(n int) int {
	if k, err := strconv.Atoi(os.Getenv("LLMEXPORT_KILLS")); err == nil {
		return k
	}
	return n
}

// logKills says what kills cost. That nothing is corrupt and nothing lost is what the tests demand before.
func logKills(t *testing.T, kills int, again, most int64) {
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

// killable is a kind of place whose publishers are killed.
type killable struct {
	// place makes the i-th place: what its publisher finds in the environment, and the reference that readers use.
	place func(i int) (env []string, ref string)
	sent  func() int64 // bytes that publishers have sent so far
	most  int64        // of them that a kill costs; 0 where nothing is counted
}

// killPlaces kills publishers of p at random instants, and starts them again until the place has the package; then those
// of the next place. Readers find all of the package or nothing.
func killPlaces(t *testing.T, k killable, n int, p Package) {
	staged := filepath.Join(t.TempDir(), "package")
	mustPublish(t, Dir{Path: staged}, p)
	run := func(env []string, within time.Duration) (killed bool) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), killPackage+"="+staged), env...)
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
	env, ref := k.place(0)
	start := time.Now()
	run(env, 0)
	whole, size := time.Since(start), k.sent()
	wantAt(t, ref, p)
	killed, again := 0, int64(0)
	for i := 1; killed < n; i++ {
		env, ref := k.place(i)
		before := k.sent()
		for {
			within := rand.N(whole * 3 / 2)
			if killed == n {
				within = 0
			}
			if !run(env, within) {
				break
			}
			killed++
			if o, err := OpenOrigin(t.Context(), ref, OpenOptions{Transfer: quick}); err == nil {
				wantOrigin(t, o, p)
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
		wantAt(t, ref, p)
		again += max(0, k.sent()-before-size)
	}
	logKills(t, killed, again, k.most)
}

// fresh is a server that is a new one whenever that is wanted, and counts what it is sent.
type fresh struct {
	now  atomic.Pointer[http.Handler]
	sent atomic.Int64
}

func (f *fresh) set(h http.Handler) { f.now.Store(&h) }

func (f *fresh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, writerFunc(func(b []byte) (int, error) { f.sent.Add(int64(len(b))); return len(b), nil })), r.Body}
	(*f.now.Load()).ServeHTTP(w, r)
}

func newFresh(t *testing.T) (f *fresh, url string) {
	f = &fresh{}
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return f, s.URL
}

func TestS3Killed(t *testing.T) {
	newFakeS3(t) // for the account
	f, url := newFresh(t)
	s := S3{Ref: "s3://" + fakes3.Bucket + "/killed", Endpoint: url, Region: "us-east-1", Transfer: quick, Part: fakePart}
	killPlaces(t, killable{
		place: func(int) ([]string, string) {
			f.set(fakes3.New())
			return []string{s3Child + "=" + s.Ref, s3Child + "_ENDPOINT=" + url, s3Child + "_PART=" + strconv.Itoa(fakePart)}, s.ref(t)
		},
		sent: f.sent.Load,
		most: (s3Sends + 1) * fakePart, // the parts on their way, and all that is small
	}, killsOr(6), bigPackage(t, 6*fakePart+1))
}

func TestOCIKilled(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	f, url := newFresh(t)
	ref := strings.TrimPrefix(url, "http://") + "/org/tiny:v1"
	p := bigPackage(t, 2*ociChunk+1)
	killPlaces(t, killable{
		place: func(int) ([]string, string) {
			f.set(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
			return []string{ociChild + "=" + ref}, "oci://" + ref
		},
		sent: f.sent.Load,
		most: p.Manifest.Bytes() + 1<<20, // a blob that was not complete is begun anew
	}, killsOr(6), p)
}

const dirChild = "PUBLISH_TEST_DIR"

func TestDirKilled(t *testing.T) {
	base := t.TempDir()
	killPlaces(t, killable{
		place: func(i int) ([]string, string) {
			dir := filepath.Join(base, strconv.Itoa(i%2)) // every second time over what a kill has left
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			return []string{dirChild + "=" + dir}, dir
		},
		sent: func() int64 { return 0 }, // a directory is copied anew
	}, killsOr(6), bigPackage(t, 6<<20))
	left, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.Contains(e.Name(), tmpMark) || strings.Contains(e.Name(), oldMark) {
			t.Errorf("%s is left", e.Name())
		}
	}
}
