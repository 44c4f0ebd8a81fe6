// Package status collects how far a release is: from its workflows, from the heartbeats of its tasks, and from its queues.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	queuepb "go.temporal.io/api/taskqueue/v1"
	pb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/pipeline"
)

// Status is how far a release is.
type Status struct {
	flow.State
	// Server is the state of the workflow as the server has it: Running, Completed, Failed, Canceled and so on.
	Server string    `json:"server"`
	Ended  time.Time `json:"ended,omitzero"`
	// Events and HistoryBytes are the size of the workflow's history.
	Events       int64 `json:"events"`
	HistoryBytes int64 `json:"history_bytes"`
	// Tasks are at work or wait for a worker or for another attempt.
	Tasks []Task    `json:"tasks"`
	Lanes []Lane    `json:"lanes"`
	Taken time.Time `json:"taken"`
}

// Task is a task that is not finished.
type Task struct {
	Repository string `json:"repository"`
	Package    string `json:"package,omitempty"`
	Stage      string `json:"stage"`
	Attempt    int32  `json:"attempt"`
	// Worker is the worker at work, or of the last attempt.
	Worker string `json:"worker,omitempty"`
	// Running is false while the task waits.
	Running bool `json:"running"`
	// Progress is that of the last heartbeat.
	Progress *pipeline.State `json:"progress,omitempty"`
	// Error is that of the last attempt.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Lane is a queue with its workers.
type Lane struct {
	Queue   string `json:"queue"`
	Workers int    `json:"workers"`
	// Backlog is about the number of tasks that wait for a worker.
	Backlog int64 `json:"backlog"`
}

// ErrUnknown is the error for a release that the server does not have.
var ErrUnknown = errors.New("the server has no release of this name")

// parallel is the number of requests at the same time.
const parallel = 16

// Collect asks the server and the workers for the state of a release.
func Collect(ctx context.Context, c client.Client, namespace, name string) (*Status, error) {
	s := &Status{Taken: time.Now().UTC().Truncate(time.Second), Tasks: []Task{}, Lanes: []Lane{}}
	id := flow.ID(name)
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	if err != nil {
		return nil, err
	}
	info := d.GetWorkflowExecutionInfo()
	s.Server, s.Events, s.HistoryBytes = info.GetStatus().String(), info.GetHistoryLength(), info.GetHistorySizeBytes()
	if t := info.GetCloseTime(); t != nil {
		s.Ended = t.AsTime()
	}
	if err := s.state(ctx, c, id); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	tasks := make([][]Task, len(s.Repositories))
	for i := range s.Repositories {
		if r := &s.Repositories[i]; r.Phase == flow.Running && s.Ended.IsZero() {
			g.Go(func() (err error) { tasks[i], err = s.repository(gctx, c, r); return err })
		}
	}
	s.Lanes = make([]Lane, len(s.TaskQueues))
	for i, q := range s.TaskQueues {
		g.Go(func() (err error) { s.Lanes[i], err = lane(gctx, c, namespace, q); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.Tasks = append(s.Tasks, slices.Concat(tasks...)...)
	return s, nil
}

// state asks the workflow, which a worker answers for.
func (s *Status) state(ctx context.Context, c client.Client, id string) error {
	for {
		v, err := c.QueryWorkflow(ctx, id, "", flow.StateQuery, len(s.Repositories))
		if err != nil {
			return unanswered(err)
		}
		page := flow.State{}
		if err := v.Get(&page); err != nil {
			return err
		}
		page.Repositories = append(s.Repositories, page.Repositories...)
		done := len(page.Repositories) == len(s.Repositories)
		if s.State = page; done {
			return nil
		}
	}
}

// unanswered explains the error of a query if no worker serves the workflow.
func unanswered(err error) error {
	late := errors.As(err, new(*serviceerror.DeadlineExceeded)) || errors.Is(err, context.DeadlineExceeded)
	if late || errors.As(err, new(*serviceerror.FailedPrecondition)) {
		return fmt.Errorf("no worker of the release's version answers for it; start one, of any queue: %w", err)
	}
	return err
}

// repository returns the tasks of a repository at work, and brings its state up to date.
func (s *Status) repository(ctx context.Context, c client.Client, r *flow.RepositoryState) ([]Task, error) {
	id := flow.ID(s.Release, r.ID)
	v, err := c.QueryWorkflow(ctx, id, "", flow.StateQuery)
	if errors.As(err, new(*serviceerror.NotFound)) { // it is about to begin
		return nil, nil
	}
	if err == nil {
		err = v.Get(r)
	}
	if err != nil {
		return nil, unanswered(err)
	}
	tasks, err := pending(ctx, c, id, r.ID, "")
	if err != nil {
		return nil, err
	}
	for i := range r.Packages {
		p := &r.Packages[i]
		if p.Phase != flow.Running {
			continue
		}
		more, err := pending(ctx, c, flow.ID(s.Release, r.ID, p.Name), r.ID, p.Name)
		if err != nil {
			return nil, err
		}
		for _, t := range more {
			p.Stage = t.Stage
		}
		tasks = append(tasks, more...)
	}
	return tasks, nil
}

// pending returns the tasks of a workflow.
func pending(ctx context.Context, c client.Client, id, repository, name string) ([]Task, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var tasks []Task
	for _, a := range d.GetPendingActivities() {
		t := Task{
			Repository: repository, Package: name, Stage: a.GetActivityId(), Attempt: a.GetAttempt(), Worker: a.GetLastWorkerIdentity(),
			Running: a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED, Error: a.GetLastFailure().GetMessage(),
		}
		if stage, lead, ok := strings.Cut(t.Stage, " "); ok {
			t.Stage, t.Package = stage, lead
		}
		if at := a.GetLastStartedTime(); at != nil {
			t.Since = at.AsTime()
		}
		t.Progress = progress(a)
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b Task) int { return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Stage, b.Stage)) })
	return tasks, nil
}

// progress reads the last heartbeat of a task; nil if there was none that tells something.
func progress(a *pb.PendingActivityInfo) *pipeline.State {
	p := &pipeline.State{}
	list := a.GetHeartbeatDetails().GetPayloads()
	if len(list) == 0 {
		return nil
	}
	err := converter.GetDefaultDataConverter().FromPayloads(&commonpb.Payloads{Payloads: list[:1]}, p)
	if err != nil || p.Stage == "" {
		return nil
	}
	return p
}

// lane asks for the workers and the backlog of a queue.
func lane(ctx context.Context, c client.Client, namespace, queue string) (Lane, error) {
	l := Lane{Queue: queue}
	kind := enums.TASK_QUEUE_TYPE_ACTIVITY
	if strings.HasPrefix(queue, "release@") {
		kind = enums.TASK_QUEUE_TYPE_WORKFLOW
	}
	d, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: namespace, TaskQueue: &queuepb.TaskQueue{Name: queue}, TaskQueueType: kind, ReportStats: true,
	})
	if err != nil {
		return l, err
	}
	workers := map[string]bool{}
	for _, p := range d.GetPollers() {
		workers[p.GetIdentity()] = true
	}
	l.Workers, l.Backlog = len(workers), d.GetStats().GetApproximateBacklogCount()
	return l, nil
}

// Moved returns the channels that a release has moved.
func Moved(ctx context.Context, c client.Client, name string) (list []flow.Channel, err error) {
	for {
		v, err := c.QueryWorkflow(ctx, flow.ID(name), "", flow.ChannelsQuery, len(list))
		if err != nil {
			return nil, unanswered(err)
		}
		var page []flow.Channel
		if err := v.Get(&page); err != nil {
			return nil, err
		}
		if list = append(list, page...); len(page) == 0 {
			return list, nil
		}
	}
}
