package hubs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

const publishTo = "PUBLISH_TEST_HUB"

// children are the processes that tests kill.
var children = map[string]func(value string) error{publishTo: func(endpoint string) error {
	o, patient := &hub.Options{Endpoint: endpoint, Token: fakehub.Token}, transfer.Options{Pause: time.Millisecond}
	if os.Getenv(publishTo+"_KIND") == "modelscope" {
		return placetest.PublishChild(ModelScope{Repo: placetest.Repo, Options: o, Transfer: patient})
	}
	return placetest.PublishChild(HuggingFace{Repo: placetest.Repo, Options: o, Transfer: patient})
}}

// TestHubKilled kills publishers at random instants. Readers always find one of the two packages whole, and what was
// interrupted is finished by the next run. On Hugging Face that makes one commit; on ModelScope, where a commit does not
// name what it is made on, a second and equal one is possible.
func TestHubKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Run("hub", func(t *testing.T) { killPublishers(t, "hub", placetest.HubPackage) })
	t.Run("modelscope", func(t *testing.T) { killPublishers(t, "modelscope", placetest.ModelScopePackage) })
}

func killPublishers(t *testing.T, kind string, newPackage func(testing.TB, uint64) place.Package) {
	kills := placetest.Kills(5)
	h := placetest.NewHub(t)
	h.Fault(fakehub.Rule{Fault: fakehub.Slow, Server: "hub", Rate: 200_000}) // so that there is time to be killed in
	child := func(ctx context.Context, p place.Package) error {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), publishTo+"="+h.URL, publishTo+"_KIND="+kind, placetest.PackageEnv+"="+p.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	sealed := func(seed uint64) place.Package {
		p := newPackage(t, seed)
		placetest.Seal(t, p)
		return p
	}
	now := sealed(0)
	start := time.Now()
	if err := child(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	sent := func() (n int64) {
		for _, r := range h.Requests("PUT", "*") {
			if r.Server == "storage" {
				n += r.Received
			}
		}
		return n
	}
	large := sent()
	killed, shown, repo, again := 0, 0, h.Repo(placetest.Repo), int64(0)
	for i := 0; killed < kills; i++ {
		next := sealed(uint64(i%250) + 1)
		before, commits, was := repo.Head("main"), len(repo.History("main")), sent()
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(whole*3/2))
		err := child(ctx, next)
		cancel()
		if err != nil {
			killed++
		}
		// The hub may still be at what the killed process asked last; a commit that is looked at does not change.
		if head := repo.Head("main"); head == before {
			h.Want(t, head, now)
		} else {
			h.Want(t, head, next)
			if err != nil {
				shown++
			}
		}
		if err := child(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		h.Want(t, "main", next)
		if n := len(repo.History("main")) - commits; n != 1 && (kind == "hub" || n != 2) {
			t.Fatalf("%d commits", n)
		}
		again += max(0, sent()-was-large)
		now = next
	}
	t.Logf("%d of %d runs were killed after the commit", shown, killed)
	placetest.LogKills(t, killed, again, large) // files that go in one piece go again
}
func TestMain(m *testing.M) { placetest.Main(m, children) }
