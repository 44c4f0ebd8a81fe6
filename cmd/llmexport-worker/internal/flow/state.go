package flow

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish"
)

// Phase is how far a package, a repository or a release is.
type Phase string

// Phases.
const (
	Waiting   Phase = "waiting"
	Running   Phase = "running"
	Complete  Phase = "complete"
	Failed    Phase = "failed"
	Cancelled Phase = "cancelled"
)

// State is what the workflow of a release knows of it.
type State struct {
	Frame
	Began time.Time `json:"began"`
	Phase Phase     `json:"phase"`
	// Repositories are in the order of the fleet.
	Repositories []RepositoryState `json:"repositories"`
	Parts        []PartState       `json:"parts"`
	// TaskQueues are those that the release needs workers on.
	TaskQueues []string `json:"task_queues"`
}

// RepositoryState is how far a repository is.
type RepositoryState struct {
	ID    string `json:"id"`
	Model string `json:"model"`
	Part  string `json:"part,omitempty"`
	Phase Phase  `json:"phase"`
	// Commit is empty until it is known, and for directories.
	Commit string `json:"commit,omitempty"`
	// Stage is what the packages share and is being made.
	Stage    string         `json:"stage,omitempty"`
	Packages []PackageState `json:"packages"`
}

// PackageState is how far a package is.
type PackageState struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Stage is the stage at work, or the one that failed.
	Stage  string        `json:"stage,omitempty"`
	Digest digest.Digest `json:"digest,omitempty"`
	// Places are where it is published.
	Places []string `json:"places,omitempty"`
	Error  string   `json:"error,omitempty"`
	// Kind is the type of the error if another attempt cannot help.
	Kind string `json:"kind,omitempty"`
	// Seconds of work by stage.
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// PartState is how far the channels of a part are.
type PartState struct {
	Part  string `json:"part,omitempty"`
	Phase Phase  `json:"phase"`
	// Channels are those that moved, Error why others did not.
	Channels []publish.Move `json:"channels,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// Count returns the number of packages in a phase.
func (s *State) Count(p Phase) (n int) {
	for _, r := range s.Repositories {
		for _, x := range r.Packages {
			if x.Phase == p {
				n++
			}
		}
	}
	return n
}

// packages sets the phase of all packages of a repository that are not finished.
func (r *RepositoryState) packages(p Phase, stage, text, kind string) {
	for i := range r.Packages {
		if x := &r.Packages[i]; x.Phase != Complete && x.Phase != Failed {
			x.Phase, x.Stage, x.Error, x.Kind = p, stage, text, kind
		}
	}
}

// settle derives the phase of a repository from its packages.
func (r *RepositoryState) settle() {
	r.Stage, r.Phase = "", Complete
	for _, x := range r.Packages {
		switch {
		case x.Phase == Failed, x.Phase == Cancelled && r.Phase != Failed:
			r.Phase = x.Phase
		}
	}
}

// newState is the state of a release that has not begun.
func (p *Plan) newState(now time.Time) *State {
	s := &State{Frame: p.Frame, Began: now, Phase: Running}
	for _, r := range p.Repositories {
		s.Repositories = append(s.Repositories, r.newState())
		if !slices.ContainsFunc(s.Parts, func(x PartState) bool { return x.Part == r.Part }) {
			s.Parts = append(s.Parts, PartState{Part: r.Part, Phase: Waiting})
		}
	}
	s.TaskQueues = p.TaskQueues()
	return s
}

func (r *Repository) newState() RepositoryState {
	s := RepositoryState{ID: r.ID, Model: r.Model, Part: r.Part, Phase: Waiting}
	for _, name := range r.Packages {
		s.Packages = append(s.Packages, PackageState{Name: name, Phase: Waiting})
	}
	return s
}

// TaskQueues lists the task queues that a release needs workers on, sorted.
func (p *Plan) TaskQueues() []string {
	list := []string{WorkflowQueue(p.Code, p.Store)}
	for _, r := range p.Repositories {
		f := p.of(&r)
		for _, role := range Roles() {
			list = append(list, f.queue(role))
		}
		for _, arch := range f.VerifyOn {
			list = append(list, f.queue(Verify+"-"+arch))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// of is the frame of a repository.
func (p *Plan) of(r *Repository) Frame {
	f := p.Frame
	f.Queues = map[string]string{}
	for _, m := range []map[string]string{p.Queues, r.Queues} {
		for role, name := range m {
			f.Queues[role] = name
		}
	}
	return f
}

// queue is the task queue of a role.
func (f *Frame) queue(role string) string {
	if name := f.Queues[role]; name != "" {
		role = name
	}
	return Queue(role, f.Code, f.Store)
}

// Carried is the progress of a release that its next history begins with.
type Carried struct {
	// Packed is a compressed [progress]: a payload of the server has two megabytes.
	Packed []byte `json:"packed"`
}

// progress is what a release has done.
type progress struct {
	State State
	// Channels are those that packages wait for, by part.
	Channels map[string][]Channel
	// Moved are channels that have moved.
	Moved []Channel
}

// pack is deterministic: maps of JSON are sorted, and the header of the stream has no time.
func (p *progress) pack() (*Carried, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &Carried{buf.Bytes()}, nil
}

func (c *Carried) unpack() (*progress, error) {
	r, err := gzip.NewReader(bytes.NewReader(c.Packed))
	if err != nil {
		return nil, fmt.Errorf("the progress of the release: %w", err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("the progress of the release: %w", err)
	}
	p := &progress{}
	return p, json.Unmarshal(b, p)
}
