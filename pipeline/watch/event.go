package watch

import "time"

// Kinds of events.
const (
	// Polled ends a poll of all repositories.
	Polled = "polled"
	// Problem is a repository that gives no commit. One that cannot change by itself is reported once.
	Problem = "problem"
	// Recovered is one that had a problem.
	Recovered = "recovered"
	// Skipped is a commit that was there before the watch began.
	Skipped = "skipped"
	// WouldRun stands for a run when nothing is run.
	WouldRun = "would_run"
	// Started, Done and Failed are those of a run.
	Started = "started"
	Done    = "done"
	Failed  = "failed"
)

// An Event is something that a watcher saw or did.
type Event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"event"`
	// Repo, Revision, Recipe and Commit name its subject.
	Repo     string `json:"repo,omitempty"`
	Revision string `json:"revision,omitempty"`
	Recipe   string `json:"recipe,omitempty"`
	Commit   string `json:"commit,omitempty"`
	// Resumed marks the start of a run that was begun before, by a watcher that ended or in a try that failed.
	Resumed bool `json:"resumed,omitempty"`
	// ExitCode, Error and RetryAfter say how something failed, and when it will be tried again by itself.
	ExitCode   int       `json:"exit_code,omitempty"`
	Error      string    `json:"error,omitempty"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Packages describes the packages that the run has made, for JSON.
	Packages any `json:"packages,omitempty"`
	// Asked, Unchanged and Waiting are counts of repositories of a poll: those that were asked, those of them that gave
	// no new answer, and those that want to be asked later.
	Asked     int `json:"asked,omitempty"`
	Unchanged int `json:"unchanged,omitempty"`
	Waiting   int `json:"waiting,omitempty"`

	// Err is the error of which Error is the text.
	Err error `json:"-"`
}
