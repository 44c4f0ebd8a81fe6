package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
)

// proxies reports the settings for proxies, without passwords.
func (x *examination) proxies(getenv func(string) string) {
	var set, bad []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		value := cmp.Or(getenv(name), getenv(strings.ToLower(name)))
		if value == "" {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			if u, err = url.Parse("http://" + value); err != nil { // HOST:PORT is accepted, too
				bad = append(bad, name)
				continue
			}
		}
		set = append(set, name+"="+u.Scheme+"://"+u.Host)
	}
	if v := cmp.Or(getenv("NO_PROXY"), getenv("no_proxy")); v != "" {
		set = append(set, "NO_PROXY="+v)
	}
	switch {
	case len(bad) > 0:
		x.add(finding{Check: "proxy", State: problem, Detail: strings.Join(bad, ", ") + " cannot be read", Hint: "write http://HOST:PORT"})
	case len(set) == 0:
		x.add(finding{Check: "proxy", State: fine, Detail: "none"})
	default:
		x.add(finding{Check: "proxy", State: fine, Detail: strings.Join(set, ", ")})
	}
}

// network asks the hubs, and the sources and places of recipes, side by side.
func (x *examination) network(ctx context.Context, tasks []*stage.Run) {
	var asks []func() []finding
	needed := slices.ContainsFunc(tasks, func(r *stage.Run) bool {
		return r.Recipe.Model.Path == "" && r.Fetch.Source != hub.ModelScope && r.Fetch.Endpoint == "" && !cached(ctx, r)
	})
	asks = append(asks, func() []finding {
		o, err := hub.OptionsFromEnv()
		return probe(ctx, "hub", o, err, needed)
	})
	if o, err := hub.ModelScopeFromEnv(); o.Token != "" || err != nil {
		asks = append(asks, func() []finding { return probe(ctx, "modelscope", o, err, false) })
	}
	asks = append(asks, func() []finding {
		return []finding{credentials("s3", awsCredentials()), credentials("registry", dockerCredentials())}
	})
	asked := map[string]bool{}
	for _, r := range tasks {
		for _, ask := range asksOf(ctx, r, asked) {
			asks = append(asks, func() []finding { return []finding{ask()} })
		}
	}
	found := make([][]finding, len(asks))
	var wait sync.WaitGroup
	for i, ask := range asks {
		wait.Go(func() { found[i] = ask() })
	}
	wait.Wait()
	for _, f := range slices.Concat(found...) {
		x.add(f)
	}
}

// asksOf returns what is asked of the servers of a recipe; asked has what other recipes ask already.
func asksOf(ctx context.Context, r *stage.Run, asked map[string]bool) (asks []func() finding) {
	once := func(what string, ask func() finding) {
		if !asked[what] {
			asked[what] = true
			asks = append(asks, ask)
		}
	}
	ref, o, err := r.Fetch.Ref(r)
	if err != nil {
		return []func() finding{func() finding { return finding{Check: "source", State: problem, Detail: err.Error()} }}
	}
	once("source "+ref.String(), func() finding { return lookUp(ctx, ref, o) })
	for _, m := range o.Mirrors {
		once("mirror "+m, func() finding { return mirror(ctx, m) })
	}
	places, could, err := r.Publish.Open(ctx, r)
	if err != nil {
		return append(asks, func() finding { return finding{Check: "places", State: problem, Detail: err.Error()} })
	}
	for _, p := range places {
		once("place "+p.String(), func() finding { return ready(ctx, p, could) })
	}
	return asks
}

// cached reports whether the checkpoint of a recipe is in the hub cache.
func cached(ctx context.Context, r *stage.Run) bool {
	ref, o, err := r.Fetch.Ref(r)
	if err != nil {
		return false
	}
	o.Offline = true
	_, err = hub.Resolve(ctx, ref, o)
	return err == nil
}

// probe asks a hub and returns findings about reach, token and clock. needed reports whether a recipe cannot do without the hub.
func probe(ctx context.Context, name string, o hub.Options, err error, needed bool) []finding {
	reach := finding{Check: name, State: fine, Detail: cmp.Or(o.Endpoint, name)}
	token := finding{Check: name + " token", State: fine, Detail: "none, so only public repositories can be read"}
	if o.Token != "" {
		token.Detail = "present"
	}
	if err != nil {
		reach.State, reach.Detail = problem, err.Error()
		return []finding{reach}
	}
	clock := finding{Check: "clock", State: skipped, Detail: "not compared, no server was reached"}
	if o.Offline {
		reach.State, reach.Detail = skipped, "not asked, because HF_HUB_OFFLINE is set"
		if needed {
			reach.State, reach.Hint = problem, "the recipe's checkpoint is not in the cache: unset HF_HUB_OFFLINE, or fetch it once while online"
		}
		return []finding{reach, token, clock}
	}
	var found hub.Contact
	err = bounded(ctx, func(ctx context.Context) error {
		found, err = hub.Probe(ctx, o)
		return err
	})
	if err != nil {
		reach.State, reach.Detail = warning, err.Error()
		reach.Hint = "check the network and proxies; set HF_ENDPOINT or fetch.mirrors to use another server; checkpoints in the cache and on disk work without"
		if needed {
			reach.State = problem
		}
		return []finding{reach, token, clock}
	}
	switch {
	case found.Rejected:
		token.State, token.Detail = problem, "present, rejected by the hub"
		token.Hint = "the token is invalid, expired or revoked: set another HF_TOKEN, or run hf auth login"
	case o.Token != "":
		token.Detail = "present, accepted"
	}
	if !found.Clock.IsZero() {
		clock = clockFinding(time.Since(found.Clock))
	}
	return []finding{reach, token, clock}
}

// Differences of clocks. Servers send whole seconds. S3 rejects signatures that differ by 15 minutes, and certificates of sigstore
// are valid for ten.
const (
	clockNoticed  = time.Minute
	clockRejected = 10 * time.Minute
)

// clockFinding judges a clock that is ahead of that of a server.
func clockFinding(ahead time.Duration) finding {
	f := finding{Check: "clock", State: fine, Detail: "right to the minute"}
	direction := "ahead of"
	if ahead < 0 {
		ahead, direction = -ahead, "behind"
	}
	if ahead >= clockNoticed {
		f.State, f.Detail = warning, fmt.Sprintf("%v %s the hub's", ahead.Round(time.Second), direction)
		f.Hint = "set the clock, for example by NTP: servers reject signatures and certificates of another time"
	}
	if ahead >= clockRejected {
		f.State = problem
	}
	return f
}

// lookUp looks up the checkpoint of a recipe.
func lookUp(ctx context.Context, ref hub.Ref, o hub.Options) finding {
	f := finding{Check: "source", State: fine, Detail: ref.String()}
	local := o
	local.Offline = true
	s, err := hub.Resolve(ctx, ref, local)
	switch {
	case err == nil:
		for _, file := range s.Files {
			f.Bytes += file.Size
		}
		if s.Revision != "" {
			f.Detail += ", cached at " + s.Revision
		}
		f.Detail += fmt.Sprintf(", %d files, %s", len(s.Files), sheet.Rounded(f.Bytes))
		return f
	case ref.Path != "", o.Offline:
		f.State, f.Detail = problem, err.Error()
		return f
	}
	err = bounded(ctx, func(ctx context.Context) error {
		if o.Source == hub.ModelScope {
			_, err := hub.Probe(ctx, o)
			return err
		}
		tip, err := hub.Head(ctx, ref, "", o)
		f.Detail += ", at " + tip.Commit
		return err
	})
	if err != nil {
		f.State, f.Detail = problem, err.Error()
		if _, passes := hub.Transient(err); passes {
			f.Hint = "the checkpoint is not in the cache; check the network, or set fetch.mirrors"
		}
	}
	return f
}

// mirror asks a server that stands in for the hub. Others may serve, so that a missing one is a warning.
func mirror(ctx context.Context, address string) finding {
	f := finding{Check: "mirror", State: fine, Detail: address}
	err := bounded(ctx, func(ctx context.Context) error {
		_, err := hub.Probe(ctx, hub.Options{Endpoint: address})
		return err
	})
	if err != nil {
		f.State, f.Detail, f.Hint = warning, fmt.Sprintf("%s: %v", address, err), "fetch.mirrors names this server"
	}
	return f
}

// ready asks a place whether it could accept the package.
func ready(ctx context.Context, p publish.Place, could func(*manifest.Manifest) bool) finding {
	f := finding{Check: "place", State: fine, Detail: p.String()}
	err := bounded(ctx, func(ctx context.Context) error {
		return p.Ready(ctx, could)
	})
	if err == nil {
		return f
	}
	f.State, f.Detail = problem, fmt.Sprintf("%s: %v", p, err)
	if again := (*transfer.Retryable)(nil); errors.As(err, &again) {
		f.Hint = "the server cannot be reached now; check the address, the network and proxies"
	}
	return f
}

// credentials reports where credentials come from; nothing of them is shown.
func credentials(check, from string) finding {
	return finding{Check: check + " credentials", State: fine, Detail: cmp.Or(from, "none")}
}

func awsCredentials() string {
	if os.Getenv("AWS_ACCESS_KEY_ID") != "" {
		return "from the environment"
	}
	path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if home, err := os.UserHomeDir(); path == "" && err == nil {
		path = filepath.Join(home, ".aws", "credentials")
	}
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return ""
	}
	if profile := os.Getenv("AWS_PROFILE"); profile != "" {
		return "from " + path + ", profile " + profile
	}
	return "from " + path
}

// maxDockerConfig bounds the configuration of Docker in bytes.
const maxDockerConfig = 1 << 20

// dockerCredentials names the registries with a login, or a helper for it.
func dockerCredentials() string {
	dir := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".docker")
	}
	b, err := disk.ReadFile(filepath.Join(dir, "config.json"), maxDockerConfig)
	if err != nil {
		return ""
	}
	var config struct {
		Auths       map[string]struct{} `json:"auths"`
		CredHelpers map[string]string   `json:"credHelpers"`
		CredsStore  string              `json:"credsStore"`
	}
	if json.Unmarshal(b, &config) != nil {
		return filepath.Join(dir, "config.json") + " is not valid JSON"
	}
	hosts := slices.Sorted(maps.Keys(config.Auths))
	for _, h := range slices.Sorted(maps.Keys(config.CredHelpers)) {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	if config.CredsStore != "" && len(hosts) == 0 {
		return "from docker-credential-" + config.CredsStore
	}
	if len(hosts) == 0 {
		return ""
	}
	return "for " + strings.Join(hosts, ", ")
}
