// Package pipeline runs jobs: stages in the order of one list. [Execute] validates every stage before the first one runs,
// gives each a logger, measures it, and adds its name to its errors. The stages are those of pipeline/stage; this package
// knows neither them nor the run that they share.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/recipes"
)

// Job is the outer frame of a run.
type Job struct {
	// Recipe is the user's request.
	Recipe *recipes.Recipe
	// Store keeps the artifacts of this and earlier runs.
	Store  Store
	Limits Limits
}

// Limits bound a job and report its progress.
type Limits struct {
	// Memory in bytes.
	Memory int64
	// Threads that compute, at least 1.
	Threads int
	// Progress follows the job; it may be nil.
	Progress *Progress
}

// Report says that a part of a stage has done so many units of total; total 0 means unknown.
func (l *Limits) Report(stage, what string, done, total int64) {
	l.Progress.Report(stage, what, done, total)
}

// Follow returns what follows the job, or nil.
func (j *Job) Follow() *Progress { return j.Limits.Progress }

// Stage is one step of a run R. A stage whose options may be wrong implements [Validator], one that can tell early that it
// will fail [Preparer], and one that may have nothing to do [Skipper].
type Stage[R any] interface {
	String() string
	Run(ctx context.Context, run R) error
}

// Validator is a stage that checks its options before any stage runs.
type Validator[R any] interface {
	Validate(ctx context.Context, run R) error
}

// Preparer is a stage that checks before any stage runs that the machine and the places meet its needs: enough memory, space on
// the disk, a directory that is not in use. It changes nothing.
type Preparer[R any] interface {
	Prepare(ctx context.Context, run R) error
}

// Skipper is a stage that may be left out; the reason is logged.
type Skipper[R any] interface {
	Skip(run R) (reason string, skip bool)
}

// Followed is a run that can begin again, and whose progress may be followed.
type Followed interface {
	// Follow returns what follows the run, or nil.
	Follow() *Progress
	// Restart drops everything that the stages have made and opened so far. Entries of the store stay.
	Restart()
}

// Timing is how long a stage took.
type Timing struct {
	Stage   string
	Seconds float64
}

// ErrAgain is wrapped by the error of a stage that has removed damaged input of earlier stages.
var ErrAgain = errors.New("the run starts again")

// Until returns the stages up to and including the one of a name. An unknown name is an error that lists the known ones.
func Until[R any](stages []Stage[R], name string) ([]Stage[R], error) {
	var names []string
	for i, s := range stages {
		if s.String() == name {
			return stages[:i+1], nil
		}
		names = append(names, s.String())
	}
	return nil, fmt.Errorf("there is no stage %q; the stages are %s", name, strings.Join(names, ", "))
}

// Validate lets all stages check their options, and returns the mistakes of all of them.
func Validate[R any](ctx context.Context, run R, stages []Stage[R]) error {
	var errs []error
	for _, s := range stages {
		if v, ok := s.(Validator[R]); ok {
			errs = append(errs, v.Validate(ctx, run))
		}
	}
	return recipes.Join(errs...)
}

// Execute runs stages in order, and once more from the first one after an [ErrAgain]. The context that they get ends with it.
// Stages reuse what is in the store, so executing some of the stages, see [Until], and later all of them makes nothing twice.
func Execute[R Followed](ctx context.Context, run R, stages []Stage[R]) ([]Timing, error) {
	timings, err := execute(ctx, run, stages)
	if errors.Is(err, ErrAgain) && ctx.Err() == nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the run starts again")
		run.Restart()
		timings, err = execute(ctx, run, stages)
	}
	return timings, err
}

func execute[R Followed](ctx context.Context, run R, stages []Stage[R]) ([]Timing, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := Validate(ctx, run, stages); err != nil {
		return nil, err
	}
	for _, s := range stages {
		if p, ok := s.(Preparer[R]); ok {
			err := named(s.String(), func(ctx context.Context) error { return p.Prepare(ctx, run) })(ctx)
			if err != nil {
				return nil, err
			}
		}
	}
	progress := run.Follow()
	progress.Begin(working(run, stages))
	var timings []Timing
	for _, s := range stages {
		if err := ctx.Err(); err != nil {
			return timings, context.Cause(ctx)
		}
		name, act := s.String(), func(ctx context.Context) error { return s.Run(ctx, run) }
		if err := logged(name, skipped(s, run, followed(name, progress, timed(name, &timings, named(name, act)))))(ctx); err != nil {
			return timings, err
		}
	}
	return timings, nil
}

// action is a stage at work, or one of the functions below around it.
type action func(ctx context.Context) error

// logged adds the name of the stage to the log.
func logged(name string, next action) action {
	return func(ctx context.Context) error {
		log := zerolog.Ctx(ctx).With().Str("stage", name).Logger()
		return next(log.WithContext(ctx))
	}
}

// skipped leaves out a stage that has nothing to do.
func skipped[R any](s Stage[R], run R, next action) action {
	return func(ctx context.Context) error {
		if sk, ok := s.(Skipper[R]); ok {
			if reason, skip := sk.Skip(run); skip {
				zerolog.Ctx(ctx).Info().Msg("skipped: " + reason)
				return nil
			}
		}
		return next(ctx)
	}
}

// working lists the stages that are not left out.
func working[R any](run R, stages []Stage[R]) (names []string) {
	for _, s := range stages {
		if sk, ok := s.(Skipper[R]); ok {
			if _, skip := sk.Skip(run); skip {
				continue
			}
		}
		names = append(names, s.String())
	}
	return names
}

// followed shows that a stage runs, and counts its work.
func followed(name string, p *Progress, next action) action {
	return func(ctx context.Context) error {
		ctx = effort.WithTally(ctx, p.Enter(name))
		err := next(ctx)
		if err != nil {
			p.Quit()
			return err
		}
		p.Leave()
		return nil
	}
}

// timed logs the beginning and the end of a stage, and adds its time to a list.
func timed(name string, timings *[]Timing, next action) action {
	return func(ctx context.Context) error {
		zerolog.Ctx(ctx).Debug().Msg("began")
		start := time.Now()
		if err := next(ctx); err != nil {
			return err
		}
		d := time.Since(start)
		*timings = append(*timings, Timing{Stage: name, Seconds: d.Seconds()})
		zerolog.Ctx(ctx).Info().Dur("dur", d).Msg("done")
		return nil
	}
}

// named adds the name of the stage to its error, unless that is positioned in the stage's section of the recipe.
func named(name string, next action) action {
	return func(ctx context.Context) error {
		err := next(ctx)
		if positioned := (*recipes.Error)(nil); err == nil || errors.As(err, &positioned) {
			return err
		}
		return fmt.Errorf("%s: %w", name, err)
	}
}
