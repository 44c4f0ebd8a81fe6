package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnverified  = 3
	exitUnsupported = 4
	exitInterrupted = 130
)

// usageError is a mistake of the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// hintError adds what the user can do.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

func hint(err error, text string) error { return &hintError{err, text} }

// verdictError ends a command that did its work and found a package wanting.
type verdictError struct{ text string }

func (e *verdictError) Error() string { return e.text }

// errDiffer is the exit code 1 of diff, which has said everything.
var errDiffer = errors.New("differ")

// report prints an error once and returns the exit code.
func report(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errDiffer) {
		return exitFailed
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		fmt.Fprintln(w, "llmexport: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(w, "llmexport: %v\n", err)
	if h := hintFor(err); h != "" {
		fmt.Fprintf(w, "hint: %s\n", h)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var (
		recipe  *recipes.Error
		usage   *usageError
		ref     *place.RefError
		failed  *stage.FailedError
		verdict *verdictError
		topic   cli.ExitCoder // of "help NAME"
		watched *watchError
		memory  *stage.MemoryError
	)
	switch {
	case errors.As(err, &watched):
		return watched.code
	case errors.As(err, &memory):
		return exitUsage
	case errors.As(err, &failed), errors.As(err, &verdict):
		return exitUnverified
	case errors.As(err, &recipe), errors.As(err, &usage), errors.As(err, &ref), errors.As(err, &topic):
		return exitUsage
	case errors.Is(err, tensor.ErrUnsupported):
		return exitUnsupported
	}
	return exitFailed
}

// hintFor guesses what helps.
func hintFor(err error) string {
	var (
		hinted *hintError
		failed *stage.FailedError
		codes  *stage.ImportError
		text   = err.Error()
	)
	switch {
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &failed):
		return "more bits or smaller blocks come closer to the source; limits are in the verify section of the recipe"
	case errors.As(err, &codes):
		return "quantize.import: requantize rounds the weights of the checkpoint anew"
	case strings.Contains(text, "set replace"):
		return "--replace replaces what this program has published there"
	case !errors.Is(err, tensor.ErrUnsupported):
		return ""
	case strings.Contains(text, "do not divide into blocks"):
		return "quantize.block=auto takes blocks of 64 where they fit, and smaller ones elsewhere"
	case strings.Contains(text, "config.json: model_type:"):
		return "a model of another family needs code of its own; a newer release may have it"
	case strings.Contains(text, "config.json: architectures:"):
		return ""
	case strings.Contains(text, "config.json: "):
		return "a key that is known not to change results can be listed in model.ignore_config of the recipe"
	}
	return ""
}
