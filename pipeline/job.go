// Package pipeline runs a job: stages in the order of one list, each of which turns artifacts into artifacts.
//
// [Execute] validates every stage before the first one runs, gives each a logger, measures it, and adds its
// name to its errors. Stages are found in pipeline/stage; this package knows none of them.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/recipes"
)

// Job is what stages share.
type Job struct {
	// Recipe says what the user asked for.
	Recipe *recipes.Recipe
	// Store keeps the artifacts of this and earlier runs.
	Store *Store
	// Artifacts is what the stages of this run have made so far.
	Artifacts Artifacts
	Limits    Limits
	// Ahead is what an early stage has begun for later ones; only they know what it is.
	Ahead any
}

// Limits bound a job and tell its progress.
type Limits struct {
	// Memory in bytes.
	Memory int64
	// Threads that compute, at least 1.
	Threads int
	// Progress is told how far a stage is; total 0 means unknown. It may be nil and is called from any goroutine.
	Progress func(stage, what string, done, total int64)
}

// Report calls Progress if there is one.
func (l *Limits) Report(stage, what string, done, total int64) {
	if l.Progress != nil {
		l.Progress(stage, what, done, total)
	}
}

// Stage is one step of a job. Stages that can say early that their options are wrong implement Validator, those that can
// say early that they will fail implement Preparer, and those that may have nothing to do implement Skipper.
type Stage interface {
	String() string
	Run(ctx context.Context, job *Job) error
}

// Validator is implemented by stages that check their options before any stage runs.
type Validator interface {
	Validate(job *Job) error
}

// Preparer is implemented by stages that can tell, before any stage runs, that the machine or a place cannot do what they
// are to do: too little memory, a full disk, a directory that is in use. It changes nothing.
type Preparer interface {
	Prepare(ctx context.Context, job *Job) error
}

// Skipper is implemented by stages that may be left out; the reason is logged.
type Skipper interface {
	Skip(job *Job) (reason string, skip bool)
}

// Timing is how long a stage took.
type Timing struct {
	Stage   string
	Seconds float64
}

// named adds the name of a stage to its error, unless that names its section of the recipe already.
func named(s Stage, err error) error {
	var positioned *recipes.Error
	if errors.As(err, &positioned) {
		return err
	}
	return fmt.Errorf("%s: %w", s, err)
}

// ErrAgain is wrapped by the error of a stage that has removed the wrong bytes which earlier stages began with.
var ErrAgain = errors.New("it is done again")

// Execute runs stages in order, and once more from the first one after an [ErrAgain]. The context that they get ends with
// it.
func Execute(ctx context.Context, job *Job, stages []Stage) ([]Timing, error) {
	before := len(job.Artifacts)
	timings, err := execute(ctx, job, stages)
	if errors.Is(err, ErrAgain) && ctx.Err() == nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the run begins again")
		job.Artifacts = job.Artifacts[:before]
		timings, err = execute(ctx, job, stages)
	}
	return timings, err
}

func execute(ctx context.Context, job *Job, stages []Stage) ([]Timing, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range stages {
		if v, ok := s.(Validator); ok {
			if err := v.Validate(job); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range stages {
		if p, ok := s.(Preparer); ok {
			if err := p.Prepare(ctx, job); err != nil {
				return nil, named(s, err)
			}
		}
	}
	log := zerolog.Ctx(ctx)
	var timings []Timing
	for _, s := range stages {
		if err := ctx.Err(); err != nil {
			return timings, context.Cause(ctx)
		}
		l := log.With().Str("stage", s.String()).Logger()
		if sk, ok := s.(Skipper); ok {
			if reason, skip := sk.Skip(job); skip {
				l.Info().Msg("skipped: " + reason)
				continue
			}
		}
		l.Debug().Msg("began")
		start := time.Now()
		if err := s.Run(l.WithContext(ctx), job); err != nil {
			return timings, named(s, err)
		}
		d := time.Since(start)
		timings = append(timings, Timing{Stage: s.String(), Seconds: d.Seconds()})
		l.Info().Dur("dur", d).Msg("done")
	}
	return timings, nil
}
