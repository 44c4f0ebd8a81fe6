package publish

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/hubs"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/oci"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/publish/s3"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// patience is that of the clients that meet the fault. Where nothing stalls on purpose, a busy machine may be slow.
func (r *faultRun) patience() transfer.Options {
	o := placetest.Quick
	if r.faulty.fault.name == "stall" {
		o.Stall = faultStall
	}
	return o
}

// faultStall is how long clients wait where servers stall.
const faultStall = 200 * time.Millisecond

// column is a column of the table.
type column struct {
	name  string
	write bool
	run   func(r *faultRun) error
}

var columns = []column{
	{"fetch", false, func(r *faultRun) error { return r.fetch("") }},
	{"pull, hub", false, func(r *faultRun) error { return r.pull(r.hub(true)) }},
	{"pull, modelscope", false, func(r *faultRun) error { return r.pull(r.modelScope(true)) }},
	{"pull, oci", false, func(r *faultRun) error { return r.pull(r.oci(true)) }},
	{"pull, s3", false, func(r *faultRun) error { return r.pull(r.s3(true)) }},
	{"publish, hub", true, func(r *faultRun) error { return r.publish(r.hub(false)) }},
	{"publish, modelscope", true, func(r *faultRun) error { return r.publish(r.modelScope(false)) }},
	{"publish, oci", true, func(r *faultRun) error { return r.publish(r.oci(false)) }},
	{"publish, s3", true, func(r *faultRun) error { return r.publish(r.s3(false)) }},
}

// operations are the columns, and what else asks servers.
var operations = append([]column{
	{"plan", false, func(r *faultRun) error { return r.ask(false) }},
	{"watch", false, func(r *faultRun) error { return r.ask(true) }},
	{"access", false, accessFaulty},
	{"fetch, modelscope", false, func(r *faultRun) error { return r.fetch(hub.ModelScope) }},
}, columns...)

// possible reports whether a fault can happen to an operation.
func (o column) possible(f fault) bool {
	if o.write {
		return f.write
	}
	return f.read || f.list
}

// faultRun is one run of one cell.
type faultRun struct {
	ctx    context.Context
	dir    string // of its own
	p      place.Package
	faulty *faulty
	close  []func()
	said   []string // what a user may see
}

// serve serves h until the run ends.
func (r *faultRun) serve(h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	r.close = append(r.close, s.CloseClientConnections, s.Close)
	return s.URL
}

// faultPlace is where a package is pulled from or published to.
type faultPlace struct {
	store  func(patience transfer.Options) place.Store
	origin func(ctx context.Context, patience transfer.Options) (place.Origin, error)
}

// newHub is a hub whose storage, or whose lists, are faulty.
func (r *faultRun) newHub(list func(r *http.Request) bool) (*fakehub.Hub, hub.Options) {
	h := fakehub.New(fakehub.Options{LFSFrom: 4096, PartSize: placetest.PartSize, Direct: true})
	method := http.MethodGet
	if r.faulty.fault.write && !r.faulty.fault.read {
		method = http.MethodPut
	}
	at := map[bool]string{}
	for _, storage := range []bool{false, true} {
		handler := h.Handler()
		if storage {
			handler = h.Storage()
		}
		at[storage] = r.serve(r.faulty.wrap(handler, func(q *http.Request) bool {
			if r.faulty.fault.list {
				return q.Method == http.MethodGet && list(q)
			}
			return storage && (q.Method == method || q.Method == http.MethodPut)
		}))
	}
	h.SetURLs(at[false], at[true])
	return h, hub.Options{Endpoint: at[false], Token: fakehub.Token, CacheDir: filepath.Join(r.dir, "cache"), Stall: r.patience().Stall, Pause: time.Millisecond}
}

func isManifest(q *http.Request) bool {
	return strings.Contains(q.URL.Path+q.URL.RawQuery, manifest.FileName)
}

func (r *faultRun) hub(filled bool) (faultPlace, error) {
	_, o := r.newHub(isManifest)
	return r.fill(faultPlace{
		func(patience transfer.Options) place.Store {
			o.Stall = patience.Stall
			return hubs.HuggingFace{Repo: placetest.Repo, Options: &o, Transfer: patience}
		},
		func(ctx context.Context, patience transfer.Options) (place.Origin, error) {
			o.Stall = patience.Stall
			return hubs.OpenHuggingFaceAt(ctx, placetest.Repo, o, place.OpenOptions{Transfer: patience})
		},
	}, filled)
}

func (r *faultRun) modelScope(filled bool) (faultPlace, error) {
	_, o := r.newHub(isManifest)
	return r.fill(faultPlace{
		func(patience transfer.Options) place.Store {
			o.Stall = patience.Stall
			return hubs.ModelScope{Repo: placetest.Repo, Options: &o, Transfer: patience}
		},
		func(ctx context.Context, patience transfer.Options) (place.Origin, error) {
			o.Stall = patience.Stall
			return hubs.OpenModelScopeAt(ctx, placetest.Repo, o, patience)
		},
	}, filled)
}

func (r *faultRun) oci(filled bool) (faultPlace, error) {
	url := r.registry(r.faulty.wrap(authorized(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))), func(q *http.Request) bool {
		if r.faulty.fault.list {
			return q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/manifests/")
		}
		return strings.Contains(q.URL.Path, "/blobs/") && q.Method != http.MethodHead
	}))
	ref := strings.TrimPrefix(url, "http://") + "/org/tiny:v1"
	return r.fill(faultPlace{
		func(patience transfer.Options) place.Store { return oci.Place{Ref: ref, Transfer: patience} },
		func(ctx context.Context, patience transfer.Options) (place.Origin, error) {
			return oci.Open(ctx, ref, place.OpenOptions{Transfer: patience})
		},
	}, filled)
}

func (r *faultRun) s3(filled bool) (faultPlace, error) {
	url := r.serve(r.faulty.wrap(fakes3.New(), func(q *http.Request) bool {
		switch {
		case r.faulty.fault.list:
			return q.Method == http.MethodGet && isManifest(q)
		case strings.Contains(q.URL.Path, "llm.mnn.weight"):
			return q.Method == http.MethodPut || q.Method == http.MethodGet
		}
		return false
	}))
	const path = fakes3.Bucket + "/tiny"
	return r.fill(faultPlace{
		func(patience transfer.Options) place.Store {
			return s3.Place{Ref: "s3://" + path, Endpoint: url, Region: "us-east-1", Transfer: patience, Part: placetest.PartSize}
		},
		func(ctx context.Context, patience transfer.Options) (place.Origin, error) {
			return s3.Open(ctx, path+"?endpoint="+url+"&region=us-east-1", place.OpenOptions{Transfer: patience})
		},
	}, filled)
}

// fill puts the package there, if it is to be there before anything goes wrong.
func (r *faultRun) fill(p faultPlace, filled bool) (faultPlace, error) {
	if !filled {
		return p, nil
	}
	r.faulty.pause(true)
	defer r.faulty.pause(false)
	_, err := place.To(r.ctx, p.store(placetest.Quick), r.p)
	return p, err
}

// wrongFile is what must never happen.
type wrongFile struct{ what string }

func (w *wrongFile) Error() string { return "WRONG: " + w.what }

// pull pulls the package.
func (r *faultRun) pull(p faultPlace, err error) error {
	if err != nil {
		return &wrongFile{"the place could not be made: " + err.Error()}
	}
	target := filepath.Join(r.dir, "out")
	from, err := p.origin(r.ctx, r.patience())
	if err == nil {
		_, _, err = dir.Pull(r.ctx, from, target, dir.PullOptions{Transfer: r.patience()})
	}
	if err != nil {
		if left, rerr := os.ReadDir(r.dir); rerr != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool {
			return !strings.HasPrefix(e.Name(), "out.pull-") && e.Name() != "cache"
		}) {
			return &wrongFile{fmt.Sprintf("%v left after %v", left, err)}
		}
		return err
	}
	if from, err = dir.Open(r.ctx, target, place.OpenOptions{}); err != nil {
		return err
	}
	return r.same(from)
}

// publish publishes the package, and looks at what a reader sees then.
func (r *faultRun) publish(p faultPlace, err error) error {
	if err != nil {
		return &wrongFile{"the place could not be made: " + err.Error()}
	}
	_, err = place.To(r.ctx, p.store(r.patience()), r.p)
	r.faulty.clear()
	from, operr := p.origin(r.ctx, placetest.Quick)
	if operr == nil {
		var text []byte
		if text, operr = from.Read(r.ctx, manifest.FileName, manifest.MaxSize); operr == nil && text != nil {
			operr = r.same(from)
		}
	}
	switch {
	case err == nil:
		return operr
	case operr == nil || errors.Is(operr, fs.ErrNotExist):
		return err // all of it or nothing
	}
	return &wrongFile{fmt.Sprintf("readers find %v after %v", operr, err)}
}

// same demands that a place gives exactly the package.
func (r *faultRun) same(from place.Origin) error {
	text, err := from.Read(r.ctx, manifest.FileName, manifest.MaxSize)
	if err != nil {
		return err
	}
	if m, err := manifest.Parse(text); err != nil || len(m.Files) != len(r.p.Manifest.Files) {
		return &wrongFile{fmt.Sprintf("manifest of another package, %v", err)}
	}
	for _, f := range r.p.Manifest.Files {
		want, err := os.ReadFile(filepath.Join(r.p.Dir, filepath.FromSlash(f.Name)))
		if err != nil {
			return err
		}
		if f.Size == 0 {
			continue
		}
		b, err := from.Range(f)(r.ctx, 0, f.Size)
		if err != nil {
			return &wrongFile{f.Name + ": " + err.Error()}
		}
		got, err := io.ReadAll(io.LimitReader(b, f.Size+1))
		b.Close()
		if err != nil || !bytes.Equal(got, want) {
			return &wrongFile{fmt.Sprintf("%s differs, %v", f.Name, err)}
		}
	}
	return nil
}

// slots are registries with fixed addresses, for which there are credentials.
type slot struct {
	server  *httptest.Server
	handler atomic.Value // of http.HandlerFunc
}

var slots = make(chan *slot, faultsAtOnce)

const (
	faultsAtOnce  = 16
	ociPassword   = "registry-password-of-mine"
	ociToken      = "registry-token-0123456789"
	refusedByTest = "no run is here"
)

// openSlots starts the registries and notes their credentials where docker does.
func openSlots(t *testing.T) {
	auths := map[string]any{}
	for range faultsAtOnce {
		s := &slot{}
		s.handler.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, refusedByTest, http.StatusServiceUnavailable)
		}))
		s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.handler.Load().(http.HandlerFunc)(w, r)
		}))
		s.server.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.server.Start()
		t.Cleanup(s.server.Close)
		auth := base64.StdEncoding.EncodeToString([]byte("me:" + ociPassword))
		auths[strings.TrimPrefix(s.server.URL, "http://")] = map[string]string{"auth": auth}
		slots <- s
	}
	t.Cleanup(func() {
		for range faultsAtOnce {
			<-slots
		}
	})
	b, err := json.Marshal(map[string]any{"auths": auths})
	dir := t.TempDir()
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
}

// registry serves h at the address of a slot until the run ends.
func (r *faultRun) registry(h http.Handler) string {
	s := <-slots
	was := s.handler.Load()
	s.handler.Store(http.HandlerFunc(h.ServeHTTP))
	r.close = append(r.close, func() { s.handler.Store(was); slots <- s }, s.server.CloseClientConnections)
	return s.server.URL
}

// authorized is a registry that wants tokens, and the service that gives them for a password.
func authorized(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch _, password, _ := r.BasicAuth(); {
		case r.URL.Path == "/token" && password == ociPassword:
			fmt.Fprintf(w, `{"token":%q}`, ociToken)
		case r.URL.Path == "/token":
			http.Error(w, "who are you?", http.StatusUnauthorized)
		case r.Header.Get("Authorization") != "Bearer "+ociToken:
			const challenge = `Bearer realm="http://%s/token",service="test",scope="repository:org/tiny:pull,push"`
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(challenge, r.Host))
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// checkpoint is a hub with one.
func (r *faultRun) checkpoint(source string) (o hub.Options, want map[string][]byte, err error) {
	h, o := r.newHub(func(q *http.Request) bool { return strings.HasPrefix(q.URL.Path, "/api/models/") })
	o.Source = source
	weights, err := os.ReadFile(filepath.Join(r.p.Dir, "llm.mnn.weight"))
	want = map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights, "README.md": []byte("# tiny\n")}
	h.Repo(placetest.Repo).Commit("main", want)
	return o, want, err
}

// ask asks for headers, or for the newest commit only, which change nothing on the disk that another run would take for complete.
func (r *faultRun) ask(head bool) error {
	o, _, err := r.checkpoint("")
	if err != nil {
		return err
	}
	if head {
		tip, err := hub.Head(r.ctx, hub.Ref{Repo: placetest.Repo}, "", o)
		r.said = append(r.said, fmt.Sprintf("%+v", tip))
		return err
	}
	_, err = hub.Headers(r.ctx, hub.Ref{Repo: placetest.Repo}, o)
	return err
}

// accessFaulty asks who may read a checkpoint that another program has fetched.
func accessFaulty(r *faultRun) error {
	o, _, err := r.checkpoint("")
	if err != nil {
		return err
	}
	r.faulty.pause(true)
	s, err := hub.Resolve(r.ctx, hub.Ref{Repo: placetest.Repo}, o)
	if err != nil {
		return &wrongFile{err.Error()}
	}
	record := filepath.Join(s.Dir, "..", "..", ".llmexport", s.Revision+".json")
	b, err := os.ReadFile(record)
	if err == nil {
		err = os.WriteFile(record, bytes.ReplaceAll(b, []byte(`"listed": true`), []byte(`"listed": false`)), 0o666)
	}
	if err != nil {
		return &wrongFile{err.Error()}
	}
	r.faulty.pause(false)
	_, err = hub.Resolve(r.ctx, hub.Ref{Repo: placetest.Repo, Revision: s.Revision}, o)
	return err
}

// fetch fetches a checkpoint into a cache.
func (r *faultRun) fetch(source string) error {
	o, want, err := r.checkpoint(source)
	if err != nil {
		return err
	}
	s, err := hub.Resolve(r.ctx, hub.Ref{Repo: placetest.Repo}, o)
	if err == nil {
		for _, f := range s.Files { // a file that is not listed is not missed here
			if got, err := os.ReadFile(filepath.Join(s.Dir, f.Name)); err != nil || !bytes.Equal(got, want[f.Name]) {
				return &wrongFile{fmt.Sprintf("%s differs, %v", f.Name, err)}
			}
		}
		if len(s.Files) < len(want)-1 {
			return &wrongFile{fmt.Sprintf("only %d files", len(s.Files))}
		}
	}
	// Whatever became of it, what has a name in the cache is what the name says, and nothing is next to the cache.
	werr := filepath.WalkDir(r.dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.dir, path)
		if err != nil || e.IsDir() || !strings.Contains(rel, "snapshots") {
			if err == nil && !strings.HasPrefix(rel, "cache") && rel != "." {
				err = &wrongFile{rel + " is outside of the cache"}
			}
			return err
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want[e.Name()]) {
			return &wrongFile{fmt.Sprintf("%s differs, %v", rel, err)}
		}
		return nil
	})
	return cmp.Or(asWrong(werr), err)
}

func asWrong(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// outcome is the word for how a run ended.
func outcome(err error) string {
	switch {
	case err == nil:
		return "right"
	case errors.As(err, new(*wrongFile)):
		return "WRONG"
	case errors.Is(err, tensor.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, tensor.ErrUnsupported):
		return "not supported"
	case errors.Is(err, fs.ErrPermission):
		return "refused"
	case errors.Is(err, fs.ErrNotExist):
		return "not found"
	}
	return "failed"
}

// TestFaultTable lets every fault happen to every operation, at random places: a run ends with the right files or with an
// error, and never with a wrong file under its name. LLMEXPORT_FAULTS is the number of runs of a cell, half of them with
// one fault and the others with nothing but faults; with -update they become docs/internals/faults.md.
func TestFaultTable(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	runs := 1
	if n, err := strconv.Atoi(os.Getenv("LLMEXPORT_FAULTS")); err == nil {
		runs = n
	}
	t.Setenv("AWS_ACCESS_KEY_ID", fakes3.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", fakes3.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	openSlots(t)
	small, large := placetest.ModelScopePackage(t, 1), placetest.Big(t, 9<<20)
	cells := map[[3]int]map[string]int{} // by row, column and whether all requests go wrong
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(faultsAtOnce)
	for i, f := range faults {
		for j, o := range columns {
			for k := range runs {
				if !o.possible(f) {
					continue
				}
				if runs == 1 {
					k = (i + j) % 2
				}
				p := small
				if k%10 == 8 && !f.list {
					p = large
				}
				dir := t.TempDir()
				g.Go(func() error {
					err := runFault(t, f, o, "", p, dir, k)
					mu.Lock()
					defer mu.Unlock()
					at := [3]int{i, j, k % 2}
					if cells[at] == nil {
						cells[at] = map[string]int{}
					}
					word := outcome(err)
					cells[at][word]++
					if word == "WRONG" {
						t.Errorf("%s, %s, seed %d: %v", f.name, o.name, k, err)
					}
					if testing.Verbose() {
						t.Logf("%s, %s, %d: %s: %v", o.name, f.name, k, word, err)
					}
					return nil
				})
			}
		}
	}
	_ = g.Wait()
	rows := requestRows(t, small)
	requests := map[[3]int]map[string]int{}
	for i, row := range rows {
		for j, f := range requestFaults {
			for k := range runs {
				if runs == 1 {
					// In a plain test every request meets one fault that repeats its credentials, and every fourth another one.
					others := len(requestFaults) - len(echoes)
					if j >= others && j-others != i%len(echoes) || j < others && (i%4 > 0 || j != i/4%others) {
						continue
					}
					k = (i/4 + j) % 2
				}
				dir := t.TempDir()
				g.Go(func() error {
					err := runFault(t, f, row.column, row.request, small, dir, k)
					mu.Lock()
					defer mu.Unlock()
					at := [3]int{i, j, k % 2}
					if requests[at] == nil {
						requests[at] = map[string]int{}
					}
					word := outcome(err)
					requests[at][word]++
					if word == "WRONG" {
						t.Errorf("%s, %s, %s, seed %d: %v", f.name, row.name, row.request, k, err)
					}
					return nil
				})
			}
		}
	}
	_ = g.Wait()
	text := faultTable(cells, rows, requests)
	path := filepath.Join("..", "docs", "internals", "faults.md")
	if t.Failed() {
		return // and docs/internals/faults.md stays as it is
	}
	if *update {
		placetest.Write(t, path, text)
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// How often a cell ended how depends on the number of runs; what can happen does not.
	if now, then := firstCells(text), firstCells(string(doc)); !slices.Equal(now, then) {
		t.Errorf("docs/internals/faults.md has the rows %q, there are %q: run make faults-doc", then, now)
	}
}

// runFault makes one run and looks for secrets in its error.
func runFault(t *testing.T, f fault, o column, request string, p place.Package, dir string, seed int) error {
	var said syncBuffer
	ctx := zerolog.New(&said).Level(zerolog.DebugLevel).WithContext(t.Context())
	dice := rand.New(rand.NewPCG(uint64(seed), uint64(len(f.name))))
	r := &faultRun{ctx: ctx, dir: dir, p: p, faulty: &faulty{fault: &f, request: request, always: seed%2 == 1, rand: dice}}
	defer func() {
		for _, c := range slices.Backward(r.close) {
			c()
		}
	}()
	for _, x := range p.Manifest.Files {
		if x.Name == "llm.mnn.weight" {
			r.faulty.sum = x.SHA256
		}
	}
	if !r.faulty.always && o.write && request == "" {
		r.faulty.skip = r.faulty.n(3) // of the parts
	}
	r.faulty.other = r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		for _, h := range []string{"Authorization", "Cookie"} {
			if strings.Contains(q.Header.Get(h), fakehub.Token) {
				t.Errorf("%s, %s: the other host sees the token", o.name, f.name)
			}
		}
		if n, _ := io.Copy(io.Discard, q.Body); n > 0 {
			t.Logf("%s, %s: %d bytes to another host", o.name, f.name, n)
		}
		fmt.Fprint(w, "<html>Welcome</html>")
	}))
	err := o.run(r)
	shown := fmt.Sprint(err, r.said) + said.String()
	werr := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "blobs") {
			return err
		}
		b, err := os.ReadFile(path)
		shown += path + string(b)
		return err
	})
	if werr != nil && !errors.Is(werr, fs.ErrNotExist) {
		t.Error(werr)
	}
	if signature.MatchString(shown) {
		t.Errorf("%s, %s %s: a signature is in %q", o.name, f.name, request, signature.FindString(shown))
	}
	for _, secret := range slices.Concat([]string{fakehub.Token, fakes3.SecretKey, ociPassword, ociToken}, r.faulty.echoed) {
		for _, form := range formsOf(secret) {
			if i := strings.Index(shown, form); i >= 0 && secret != "" {
				around := shown[max(0, i-300):min(len(shown), i+len(form)+100)]
				t.Errorf("%s, %s %s: %q is in %q", o.name, f.name, request, form, around)
			}
		}
	}
	return err
}

// signature is one that is not hidden.
var signature = regexp.MustCompile(`(?i)signature=[^*. ]`)

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// requestRow is a kind of request of an operation.
type requestRow struct {
	column
	request string
}

// requestRows runs every operation without a fault and gives the requests that it makes.
func requestRows(t *testing.T, p place.Package) (rows []requestRow) {
	for _, o := range operations {
		none := fault{name: "none", read: true, write: true}
		none.do = func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }
		r := &faultRun{ctx: t.Context(), dir: t.TempDir(), p: p}
		r.faulty = &faulty{fault: &none, always: true, rand: rand.New(rand.NewPCG(1, 1)), seen: map[string]bool{}}
		err := o.run(r)
		for _, c := range slices.Backward(r.close) {
			c()
		}
		if err != nil || len(r.faulty.seen) == 0 {
			t.Errorf("%s without a fault: %v", o.name, err)
		}
		for _, name := range slices.Sorted(maps.Keys(r.faulty.seen)) {
			rows = append(rows, requestRow{o, name})
		}
	}
	return rows
}

// pause lets requests pass for a while.
func (f *faulty) pause(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = on
}

// firstCells are the first cells of the rows of a table.
func firstCells(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		if cell, ok := strings.CutPrefix(line, "| "); ok {
			cell, _, _ = strings.Cut(cell, " |")
			list = append(list, cell)
		}
	}
	return list
}

// faultTable is the document.
func faultTable(cells map[[3]int]map[string]int, rows []requestRow, requests map[[3]int]map[string]int) string {
	var b strings.Builder
	total := 0
	count := func(n map[string]int) string {
		var words []string
		for _, w := range slices.Sorted(maps.Keys(n)) {
			total += n[w]
			words = append(words, fmt.Sprintf("%s %d", w, n[w]))
		}
		return strings.Join(words, ", ")
	}
	b.WriteString("| what goes wrong |")
	for _, o := range columns {
		fmt.Fprintf(&b, " %s |", o.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
	for i, f := range faults {
		fmt.Fprintf(&b, "| %s |", f.name)
		for j := range columns {
			once, always := cells[[3]int{i, j, 0}], cells[[3]int{i, j, 1}]
			if once == nil && always == nil {
				b.WriteString(" - |")
				continue
			}
			fmt.Fprintf(&b, " %s; %s |", count(once), count(always))
		}
		b.WriteString("\n")
	}
	first := b.String()
	b.Reset()
	b.WriteString("| request |")
	for _, f := range requestFaults {
		fmt.Fprintf(&b, " %s |", f.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(requestFaults)) + "\n")
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s: `%s` |", row.name, row.request)
		for j := range requestFaults {
			fmt.Fprintf(&b, " %s; %s |", count(requests[[3]int{i, j, 0}]), count(requests[[3]int{i, j, 1}]))
		}
		b.WriteString("\n")
	}
	return fmt.Sprintf(`# Faults

What becomes of a file when a server or the network goes wrong, in %d runs,
	with the fault at a random place of a random request. In each cell the first half is of runs in which it happens once,
		the other half of runs in which it happens at every request. `+"`make faults-doc`"+` measures it again.

* right: the operation succeeds, and every file has its content
* corrupt, not supported, refused, not found, failed: it ends with one error of that class (failed: the tries are used up),
	and there is no file under its name, or with publishing a reader finds all of the package or nothing
* a wrong file under its name: 0 runs, which the test demands
* -: the operation does not meet the fault

Content with a wrong digest is fetched again once; content of a wrong size is not. The servers are those of the tests: the fake hub,
	the registry of go-containerregistry, a small S3 store. That another host is sent no token,
		and that no error shows one or a signed address, holds for all runs. `+"`make kills`"+` is the same for processes that are killed at random instants.

%s
## Every request

The same for each kind of request that an operation makes,
	the small ones of the hubs and registries included. A server that repeats credentials does so in the status line,
		in headers and in the body, plain, URL-escaped and in base64; no error,
			log or file shows them. A hub that does not say who may read a checkpoint that is in the cache (access) is no error.

%s`, total, first, b.String())
}
