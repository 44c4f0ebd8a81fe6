package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
)

// Lane is a queue that a worker serves.
type Lane struct {
	Name string
	// Parallel is the number of its tasks at the same time on this machine.
	Parallel int
	// Rate bounds the tasks a second of all workers of the queue; 0 does not.
	Rate float64
}

const (
	// stopTime is for tasks to end once the worker is told to stop.
	stopTime = 30 * time.Second
	// beat bounds the time between two heartbeats that are sent.
	beat = 10 * time.Second
)

// Serve works on lanes, and on the workflows of releases, until ctx ends.
func Serve(ctx context.Context, c client.Client, h *Host, lanes []Lane) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	fatal := func(err error) { fail(fmt.Errorf("the worker cannot go on: %w", err)) }
	var workers []worker.Worker
	for _, l := range lanes {
		tuner, err := slots(l.Parallel, &h.gate)
		if err != nil {
			return err
		}
		w := worker.New(c, flow.Queue(l.Name, h.Code, h.Store), worker.Options{
			Tuner: tuner, TaskQueueActivitiesPerSecond: l.Rate, DisableWorkflowWorker: true,
			WorkerStopTimeout: stopTime, MaxHeartbeatThrottleInterval: beat, DefaultHeartbeatThrottleInterval: beat, OnFatalError: fatal,
		})
		for name, f := range map[string]any{flow.Stage: h.Stage, flow.Move: h.Move, flow.Withdraw: h.Withdraw} {
			w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
		}
		workers = append(workers, w)
	}
	w := worker.New(c, flow.WorkflowQueue(h.Code, h.Store), worker.Options{LocalActivityWorkerOnly: true, OnFatalError: fatal})
	Register(w)
	workers = append(workers, w)
	defer func() {
		for _, w := range workers {
			w.Stop()
		}
	}()
	for i, w := range workers {
		if err := w.Start(); err != nil {
			workers = workers[:i]
			return err
		}
	}
	zerolog.Ctx(ctx).Info().Str("worker", h.Name).Str("version", h.Code).Str("store", h.Store).Int("queues", len(lanes)).
		Msg("worker started")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Register registers the workflows.
func Register(r worker.WorkflowRegistry) {
	for name, f := range map[string]any{
		flow.ReleaseWorkflow: flow.RunRelease, flow.RepositoryWorkflow: flow.RunRepository,
		flow.PackageWorkflow: flow.RunPackage, flow.RollbackWorkflow: flow.RunRollback,
	} {
		r.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
}
