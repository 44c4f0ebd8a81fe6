package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds on a state file.
const (
	stateVersion = 1
	maxState     = 64 << 20 // bytes; a run takes 400
	maxMessage   = 1000     // bytes of an error that is kept
)

// state is the content of the state file.
type state struct {
	Version int     `json:"version"`
	Entries []*seen `json:"entries"`
}

// seen is the state of an entry. Entries that leave the list are kept, so that nothing is run again if they return.
type seen struct {
	Entry
	// Commit is the newest one, ETag the name of the answer that told it.
	Commit string `json:"commit,omitempty"`
	ETag   string `json:"etag,omitempty"`
	// Problem is the reported reason for which there will be no answer until something changes.
	Problem string `json:"problem,omitempty"`
	// PollAfter is when the hub wants to be asked again.
	PollAfter time.Time `json:"poll_after,omitzero"`
	// Runs are in the order in which they began, each of another commit.
	Runs []*run `json:"runs"`
}

// Outcomes of a run.
const (
	running = "running" // or its process has ended without a word
	done    = "done"
	failed  = "failed"
	skipped = "skipped" // the commit that was there before the watch began
)

// run is one revision and its outcome.
type run struct {
	Commit  string `json:"commit"`
	Outcome string `json:"outcome"`
	// Recipe is the digest of the recipe's text, sha256:<hex>; empty if it could not be read.
	Recipe string `json:"recipe,omitempty"`
	// PID is the process that runs it.
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode and Error say how it failed.
	ExitCode int    `json:"exit_code,omitempty"`
	Error    string `json:"error,omitempty"`
	// Failures counts, in a row, those that the network or the hub was to blame for; RetryAfter is when to try again.
	Failures   int       `json:"failures,omitempty"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
}

// find returns the state of an entry, made if it is new.
func (s *state) find(e Entry) *seen {
	for _, x := range s.Entries {
		if x.same(e) {
			x.Entry = e
			return x
		}
	}
	x := &seen{Entry: e, Runs: []*run{}}
	s.Entries = append(s.Entries, x)
	return x
}

// run returns that of a commit, or nil.
func (s *seen) run(commit string) *run {
	if i := slices.IndexFunc(s.Runs, func(r *run) bool { return r.Commit == commit }); i >= 0 {
		return s.Runs[i]
	}
	return nil
}

// loadState reads a state file; one that does not exist is an empty state.
func loadState(path string) (*state, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{Version: stateVersion}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	s, err := parseState(b)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w: %w", path, err, tensor.ErrCorrupt)
	}
	return s, nil
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

func parseState(b []byte) (*state, error) {
	if len(b) > maxState {
		return nil, fmt.Errorf("has more than %d bytes", maxState)
	}
	s := &state{}
	if err := jsondoc.DecodeStrict(b, s); err != nil {
		return nil, err
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("has version %d, this program reads %d", s.Version, stateVersion)
	}
	for i, x := range s.Entries {
		if err := x.check(); err != nil {
			return nil, fmt.Errorf("entries[%d]: %w", i, err)
		}
		if slices.ContainsFunc(s.Entries[:i], func(o *seen) bool { return o.same(x.Entry) }) {
			return nil, fmt.Errorf("entries[%d]: %s is a duplicate", i, x.Entry)
		}
	}
	return s, nil
}

func (s *seen) check() error {
	switch {
	case s == nil:
		return errors.New("is empty")
	case s.Commit == "" && s.ETag != "":
		return errors.New("has an ETag and no commit")
	case s.Commit != "" && !commitPattern.MatchString(s.Commit):
		return fmt.Errorf("%.60q is not a commit", s.Commit)
	}
	known := map[string]bool{}
	for _, r := range s.Runs {
		switch {
		case r == nil:
			return errors.New("has an empty run")
		case !commitPattern.MatchString(r.Commit):
			return fmt.Errorf("%.60q is not a commit", r.Commit)
		case known[r.Commit]:
			return fmt.Errorf("commit %s has two runs", r.Commit)
		case !slices.Contains([]string{running, done, failed, skipped}, r.Outcome):
			return fmt.Errorf("commit %s: %.60q is not an outcome", r.Commit, r.Outcome)
		}
		known[r.Commit] = true
	}
	return nil
}

// save replaces the state file. It is on the disk when save returns, under its name.
func (s *state) save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err = pipeline.WriteFile(path, append(b, '\n')); err == nil {
		err = disk.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

// digest is that of the text of the entry's recipe; empty if it cannot be read, which the run will say.
func (e Entry) digest() string {
	var (
		b   []byte
		err error
	)
	if e.file != "" {
		b, err = os.ReadFile(e.file)
	} else {
		b, err = recipes.ReadShipped(e.Recipe)
	}
	if err != nil {
		return ""
	}
	return string(digest.Of(b))
}
