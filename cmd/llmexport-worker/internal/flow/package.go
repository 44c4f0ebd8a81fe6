package flow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/llmexport/llmexport/internal/digest"
)

// PackageInput is the input of the workflow of a package.
type PackageInput struct {
	Frame
	Repository string   `json:"repository"`
	Recipe     Recipe   `json:"recipe"`
	Set        []string `json:"set,omitempty"`
	Package    string   `json:"package"`
	// After is the record of what the packages of the repository share, which names the commit.
	After digest.Digest `json:"after,omitempty"`
}

// Packaged is a package that is published.
type Packaged struct {
	State    PackageState `json:"state"`
	Channels []Channel    `json:"channels,omitempty"`
}

// restarts bounds how often a package begins again because the shared store has lost what its earlier stages made.
const restarts = 3

// RunPackage makes a package of what its repository shares, verifies and publishes it.
func RunPackage(ctx workflow.Context, in PackageInput) (Packaged, error) {
	for n := 1; ; n++ {
		out, err := in.make(ctx)
		if KindOf(err) != Absent || n == restarts {
			return out, err
		}
		workflow.GetLogger(ctx).Warn("the package begins again", "package", in.Package, "error", err.Error())
		in.After = "" // it may be what was lost
	}
}

func (in *PackageInput) make(ctx workflow.Context) (Packaged, error) {
	out := Packaged{State: PackageState{Name: in.Package, Phase: Complete, Seconds: map[string]float64{}}}
	quantized, err := in.stage(ctx, Compute, "quantize", Task{Until: "quantize", After: in.After}, &out)
	if err != nil {
		return out, err
	}
	verified, err := in.verify(ctx, quantized, &out)
	if err != nil {
		return out, err
	}
	out.State.Digest = verified.Manifest
	published, err := in.stage(ctx, Publish, "publish", Task{From: "sign", Until: "publish", After: verified.Record}, &out)
	out.State.Places, out.Channels = published.Places, published.Channels
	return out, err
}

// verify verifies a package, on other architectures at the same time. All must make the same package, which contains the report.
func (in *PackageInput) verify(ctx workflow.Context, quantized Done, out *Packaged) (Done, error) {
	task := Task{From: "verify", Until: "verify", After: quantized.Record}
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	again := task
	again.Again = true
	others := make([]workflow.Future, len(in.VerifyOn))
	for i, arch := range in.VerifyOn {
		others[i] = in.start(ctx, Verify+"-"+arch, Verify+"-"+arch, again)
	}
	verified, err := in.stage(ctx, Verify, "verify", task, out)
	if err != nil {
		return verified, err
	}
	for i, arch := range in.VerifyOn {
		var other Done
		if err := others[i].Get(ctx, &other); err != nil {
			return verified, stageError(Verify+"-"+arch, err)
		}
		if other.Manifest != verified.Manifest {
			text := fmt.Sprintf("%s-%s: the report differs: the package is %s there, and %s on the workers of the queue %s", Verify, arch,
				other.Manifest, verified.Manifest, Verify)
			return verified, temporal.NewNonRetryableApplicationError(text, Verdict, nil)
		}
		out.State.add(other)
	}
	return verified, nil
}

// stage runs a span of stages and waits for it; role is the queue, id the name of the activity.
func (in *PackageInput) stage(ctx workflow.Context, role, id string, t Task, out *Packaged) (done Done, err error) {
	if err := in.start(ctx, role, id, t).Get(ctx, &done); err != nil {
		return done, stageError(t.Until, err)
	}
	out.State.add(done)
	return done, nil
}

func (in *PackageInput) start(ctx workflow.Context, role, id string, t Task) workflow.Future {
	t.Frame, t.Repository, t.Recipe, t.Set, t.Package = in.Frame, in.Repository, in.Recipe, in.Set, in.Package
	return in.Frame.activity(ctx, role, id, Stage, t)
}

// add counts the times of a span.
func (s *PackageState) add(d Done) {
	for _, t := range d.Timings {
		s.Seconds[t.Stage] += t.Seconds
	}
}

const (
	// longest is the time limit of one attempt: calibrating a large model takes days.
	longest = 14 * 24 * time.Hour
	// firstPause and longestPause lie between attempts.
	firstPause, longestPause = 2 * time.Second, 5 * time.Minute
)

// activity starts an activity on the queue of a role.
func (f *Frame) activity(ctx workflow.Context, role, id, name string, argument any) workflow.Future {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: f.queue(role), ActivityID: id, StartToCloseTimeout: longest, HeartbeatTimeout: f.Heartbeat,
		WaitForCancellation: true, // so that nothing works on a release that is over
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: firstPause, MaximumInterval: longestPause, MaximumAttempts: f.Attempts, NonRetryableErrorTypes: Final(),
		},
	})
	return workflow.ExecuteActivity(ctx, name, argument)
}

// stageError is the error of a workflow whose stage failed: the cause in plain words, with the type of the cause.
func stageError(stage string, err error) error {
	if temporal.IsCanceledError(err) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(stage+": "+TextOf(err), KindOf(err), nil)
}

// KindOf returns the type of an error of an activity or a workflow if it is one of [Final]; it is empty for others and nil.
func KindOf(err error) string {
	app := (*temporal.ApplicationError)(nil)
	if errors.As(err, &app) && slices.Contains(Final(), app.Type()) {
		return app.Type()
	}
	return ""
}

// TextOf returns the innermost message of an error, without those of the frames around it.
func TextOf(err error) string {
	var (
		app  *temporal.ApplicationError
		late *temporal.TimeoutError
	)
	switch {
	case errors.As(err, &app):
		return app.Message()
	case errors.As(err, &late) && errors.Unwrap(late) != nil:
		return "lost with its worker in every attempt; before that: " + TextOf(errors.Unwrap(late))
	case errors.As(err, &late):
		return "lost with its worker in every attempt"
	}
	return err.Error()
}
