// Package flow holds the workflows of a release. A release runs one child workflow for each repository, and that one for each
// package, so that no history grows with the size of the release. Workflows pass names, digests and the text of recipes to each
// other; the bytes of models and packages travel through the shared store.
//
//	Release ── Repository × n ── Package × m
//	              │                  └ quantize, verify, verify on other architectures, publish
//	              └ what the packages share: fetch and rewrite, calibrate, sensitivities
//	        └ channels, once everything that they name is published
//
// The activities are those of package work; workflows know them by the names in [Stage], [Move] and [Withdraw].
package flow

import (
	"fmt"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
)

// Names of the workflows.
const (
	ReleaseWorkflow    = "Release"
	RepositoryWorkflow = "Repository"
	PackageWorkflow    = "Package"
	RollbackWorkflow   = "Rollback"
)

// Names of the activities.
const (
	Stage    = "Stage"    // of a [Task], returns a [Done]
	Move     = "Move"     // of a [Channel], returns a publish.Move
	Withdraw = "Withdraw" // of a [Channel], returns a publish.Move
)

// StateQuery returns the state of a release or of a repository, ChannelsQuery the channels that a release has moved.
const (
	StateQuery    = "state"
	ChannelsQuery = "channels"
)

// Types of errors that are not worth another attempt, see stage.Final; all others are retried.
const (
	Verdict     = "verdict"     // a package failed a check
	Unsupported = "unsupported" // the model cannot be exported
	Mistake     = "recipe"      // the recipe is wrong
	Superseded  = "superseded"  // somebody else has moved the channel
	Absent      = "absent"      // the shared store lost what an earlier stage has made: the package begins again
)

// Final lists the types of errors that end a stage without another attempt.
func Final() []string { return []string{Verdict, Unsupported, Mistake, Superseded, Absent} }

// Policy says what a package that fails means for the others.
type Policy string

// Policies.
const (
	Hold Policy = "hold" // the others are made, and the channels of its part stay
	Skip Policy = "skip" // the others are made, and channels move without it
	Stop Policy = "stop" // everything that is not finished is cancelled
)

// Roles of queues. A worker serves some of them.
const (
	Disk    = "disk"    // fetch and rewrite
	Compute = "compute" // calibrate, measure, quantize
	Verify  = "verify"
	Publish = "publish" // sign, publish and channels: its workers alone have credentials
)

// Roles lists the roles in the order of the work.
func Roles() []string { return []string{Disk, Compute, Verify, Publish} }

// workflowRole is the queue of the workflows, which every worker serves.
const workflowRole = "release"

// Queue returns the name of a task queue. It contains a digest of the version of the code and of the shared store: workers of
// another version or another store have queues of their own, so they never take part in a release.
func Queue(role, code, store string) string {
	return role + "@" + digest.Of([]byte(code + "\n" + store)).Hex()[:12]
}

// WorkflowQueue is the queue of the workflows.
func WorkflowQueue(code, store string) string { return Queue(workflowRole, code, store) }

// ID is the id of the workflow of a release, a repository in it, or a package.
func ID(release string, more ...string) string {
	id := "release/" + release
	for _, m := range more {
		id += "/" + m
	}
	return id
}

// Plan is a release: the input of its workflow.
type Plan struct {
	Frame
	// OnFailure is the policy, Parallel the number of repositories that are open at the same time.
	OnFailure Policy `json:"on_failure"`
	Parallel  int    `json:"parallel"`
	// Recipes are the recipes of the repositories by the name that those have for them.
	Recipes      map[string]Recipe `json:"recipes"`
	Repositories []Repository      `json:"repositories"`
	// RollOver is the number of repositories after which the workflow begins a new history; 0 is a thousand.
	RollOver int `json:"roll_over,omitempty"`
	// Carried is what earlier histories of the release have done.
	Carried *Carried `json:"carried,omitempty"`
}

// Frame is what all workflows of a release share.
type Frame struct {
	Release string `json:"release"`
	// Code is the version of the program, see [pipeline.Code], Store the reference of the shared store.
	Code  string `json:"code"`
	Store string `json:"store"`
	// Channel replaces the channels of all places; empty leaves them.
	Channel string `json:"channel,omitempty"`
	// Queues replaces the names of queues by role.
	Queues map[string]string `json:"queues,omitempty"`
	// VerifyOn lists architectures: the queue verify-<name> of each makes the report of every package again.
	VerifyOn []string `json:"verify_on,omitempty"`
	// Heartbeat is the time after which a silent worker counts as lost.
	Heartbeat time.Duration `json:"heartbeat"`
	// Attempts bounds the attempts of a stage, also those that ended with their worker.
	Attempts int32 `json:"attempts"`
}

// Recipe is the text of a recipe.
type Recipe struct {
	// File is its absolute path, to which its own paths are relative.
	File string `json:"file"`
	Text string `json:"text"`
}

// Repository is a model and the packages to make of it.
type Repository struct {
	// ID is unique in the release.
	ID string `json:"id"`
	// Model is the repository or directory, for people.
	Model  string `json:"model"`
	Recipe string `json:"recipe"`
	// Set overrides values of the recipe.
	Set  []string `json:"set,omitempty"`
	Part string   `json:"part,omitempty"`
	// Queues replaces names of queues by role, for a model that needs other machines.
	Queues map[string]string `json:"queues,omitempty"`
	// Packages are the names of the packages.
	Packages []string `json:"packages"`
	// Shared are rounds of stages that run before the packages: what several packages need is made once.
	Shared [][]Shared `json:"shared"`
}

// Shared is a stage whose results several packages use.
type Shared struct {
	// Until is the stage, Lead the package for which it runs.
	Until string `json:"until"`
	Lead  string `json:"lead"`
	// For lists the packages that need it, Lead among them.
	For []string `json:"for"`
}

// Task is a span of stages of a package.
type Task struct {
	Frame
	Repository string   `json:"repository"`
	Recipe     Recipe   `json:"recipe"`
	Set        []string `json:"set,omitempty"`
	Package    string   `json:"package"`
	// From, empty for the first stage, and Until are the stages.
	From  string `json:"from,omitempty"`
	Until string `json:"until"`
	// After is the record of the span before, or of one that names the commit, see stage.Span.
	After digest.Digest `json:"after,omitempty"`
	// Again makes the package again on this machine, although there is one.
	Again bool `json:"again,omitempty"`
}

// Done is the result of a task.
type Done struct {
	Record digest.Digest `json:"record"`
	// Commit is that of the model's repository; empty for a directory.
	Commit string `json:"commit,omitempty"`
	// Manifest is the digest of the package; empty before it is verified.
	Manifest digest.Digest `json:"manifest,omitempty"`
	// Places are where the package was published; Channels are those that may then move.
	Places   []string  `json:"places,omitempty"`
	Channels []Channel `json:"channels,omitempty"`
	// Built, Found and Pulled count entries that were made, were on the machine, or came from the shared store.
	Built  int `json:"built,omitempty"`
	Found  int `json:"found,omitempty"`
	Pulled int `json:"pulled,omitempty"`
	// Timings are the times of the stages on Worker.
	Timings []pipeline.Timing `json:"timings,omitempty"`
	Worker  string            `json:"worker,omitempty"`
}

// Channel is a channel of a shelf and packages for it, which share the shelf.
type Channel struct {
	Shelf    string          `json:"shelf"`
	Name     string          `json:"name"`
	Packages []publish.Shown `json:"packages"`
}

func (c Channel) String() string { return fmt.Sprintf("%s@%s", c.Shelf, c.Name) }
