package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"go.temporal.io/api/serviceerror"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/status"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// endedError is a release that ended without all of its packages; kind is the type of its error.
type endedError struct{ text, kind string }

func (e *endedError) Error() string { return e.text }

// report prints an error once and returns the exit code.
func report(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "llmexport-worker: interrupted")
		return exit.Interrupted
	}
	fmt.Fprintf(w, "llmexport-worker: %s\n", sheet.Escape(err.Error()))
	if h := hintFor(err); h != "" {
		fmt.Fprintf(w, "hint: %s\n", h)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var (
		recipe *recipes.Error
		usage  *exit.UsageError
		ref    *place.RefError
		ended  *endedError
	)
	switch {
	case errors.As(err, &ended):
		codes := map[string]int{flow.Verdict: exit.Unverified, flow.Mistake: exit.Usage, flow.Unsupported: exit.Unsupported}
		return cmp.Or(codes[ended.kind], exit.Failed)
	case errors.As(err, &recipe), errors.As(err, &usage), errors.As(err, &ref):
		return exit.Usage
	case errors.Is(err, tensor.ErrUnsupported):
		return exit.Unsupported
	}
	return exit.Failed
}

// hintFor guesses what helps.
func hintFor(err error) string {
	switch {
	case errors.As(err, new(*endedError)):
		return "llmexport-worker release status NAME tells what failed; release start tries it again and finds what is finished"
	case errors.Is(err, status.ErrUnknown):
		return "a release is known by the name in its fleet file, in its namespace, for as long as the server keeps histories"
	case errors.As(err, new(*serviceerror.Unavailable)), errors.Is(err, context.DeadlineExceeded):
		return "--address names the Temporal server; temporal server start-dev runs one"
	}
	return ""
}
