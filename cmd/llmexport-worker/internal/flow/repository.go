package flow

import (
	"cmp"
	"slices"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/llmexport/llmexport/internal/digest"
)

// RepositoryInput is the input of the workflow of a repository.
type RepositoryInput struct {
	Frame
	Repository Repository `json:"repository"`
	Recipe     Recipe     `json:"recipe"`
}

// RepositoryResult is how a repository ended.
type RepositoryResult struct {
	State    RepositoryState `json:"state"`
	Channels []Channel       `json:"channels,omitempty"`
}

// repositoryRun is a repository at work.
type repositoryRun struct {
	*RepositoryInput
	state    RepositoryState
	channels []Channel
	record   digest.Digest // of the checkpoint: a branch may move while the packages are made
}

// RunRepository makes what the packages of a repository share, once, and then the packages. A package that fails does not stop the
// others; the result tells. An error is returned only if the repository was cancelled.
func RunRepository(ctx workflow.Context, in RepositoryInput) (RepositoryResult, error) {
	r := &repositoryRun{RepositoryInput: &in, state: in.Repository.newState()}
	r.state.Phase = Running
	if err := workflow.SetQueryHandler(ctx, StateQuery, func() (RepositoryState, error) { return r.state, nil }); err != nil {
		return RepositoryResult{}, err
	}
	for _, round := range in.Repository.Shared {
		r.share(ctx, round)
		if ctx.Err() != nil {
			break
		}
	}
	r.packages(ctx)
	if ctx.Err() != nil {
		r.state.packages(Cancelled, "", "", "")
	}
	r.state.settle()
	return RepositoryResult{r.state, r.channels}, ctx.Err()
}

// share runs a round of stages that packages share. Packages that need one that fails fail with it.
func (r *repositoryRun) share(ctx workflow.Context, round []Shared) {
	wg := workflow.NewWaitGroup(ctx)
	for _, s := range round {
		if r.over(s.Lead) {
			continue
		}
		r.state.Stage = s.Until
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			role := Compute
			if s.Until == "rewrite" {
				role = Disk
			}
			t := Task{
				Frame: r.Frame, Repository: r.Repository.ID, Recipe: r.Recipe, Set: r.Repository.Set, Package: s.Lead, Until: s.Until,
				After: r.record,
			}
			var done Done
			err := r.Frame.activity(ctx, role, s.Until+" "+s.Lead, Stage, t).Get(ctx, &done)
			switch {
			case err == nil:
				r.state.Commit, r.record = done.Commit, cmp.Or(r.record, done.Record)
			case !temporal.IsCanceledError(err):
				r.fail(s, err)
			}
		})
	}
	wg.Wait(ctx)
}

// over reports whether a package has failed.
func (r *repositoryRun) over(name string) bool {
	return slices.ContainsFunc(r.state.Packages, func(p PackageState) bool { return p.Name == name && p.Phase == Failed })
}

// fail marks the packages that need a shared stage.
func (r *repositoryRun) fail(s Shared, err error) {
	for i := range r.state.Packages {
		if p := &r.state.Packages[i]; slices.Contains(s.For, p.Name) {
			p.Phase, p.Stage, p.Error, p.Kind = Failed, s.Until, s.Until+": "+TextOf(err), KindOf(err)
		}
	}
}

// packages runs the workflows of the packages.
func (r *repositoryRun) packages(ctx workflow.Context) {
	r.state.Stage = ""
	wg := workflow.NewWaitGroup(ctx)
	for i := range r.state.Packages {
		p := &r.state.Packages[i]
		if p.Phase == Failed || ctx.Err() != nil {
			continue
		}
		p.Phase = Running
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			in := PackageInput{
				Frame: r.Frame, Repository: r.Repository.ID, Recipe: r.Recipe, Set: r.Repository.Set, Package: p.Name, After: r.record,
			}
			var out Packaged
			err := child(ctx, ID(r.Release, r.Repository.ID, p.Name), PackageWorkflow, in).Get(ctx, &out)
			switch {
			case err == nil:
				*p = out.State
				r.channels = append(r.channels, out.Channels...)
			case temporal.IsCanceledError(err):
				p.Phase = Cancelled
			default:
				p.Phase, p.Error, p.Kind = Failed, TextOf(err), KindOf(err)
			}
		})
	}
	wg.Wait(ctx)
}

// child starts a workflow that ends with its parent.
func child(ctx workflow.Context, id, name string, input any) workflow.ChildWorkflowFuture {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, WaitForCancellation: true, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	})
	return workflow.ExecuteChildWorkflow(ctx, name, input)
}
