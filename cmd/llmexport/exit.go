package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

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

// failedChecks is the verdict on a package that failed some of these checks.
func failedChecks(checks []manifest.Check, text string) error {
	return hint(&verdictError{text}, checkHints(checks))
}

// checkHints returns the advice for those of the checks that failed: a line for each, and one for several with the same advice.
func checkHints(checks []manifest.Check) string {
	var hints []string
	names := map[string][]string{} // by hint
	for _, c := range checks {
		h := verify.Hint(c)
		if !c.Failed() || h == "" {
			continue
		}
		if names[h] == nil {
			hints = append(hints, h)
		}
		names[h] = append(names[h], c.Name)
	}
	for i, h := range hints {
		hints[i] = strings.Join(names[h], ", ") + ": " + h
	}
	return strings.Join(hints, "\n")
}

// errDiffer is the exit code 1 of diff, which has said everything.
var errDiffer = errors.New("differ")

// report prints an error once and returns the exit code.
func report(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errDiffer) || errors.Is(err, errUnwell) {
		return exit.Failed
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		fmt.Fprintln(w, "llmexport: interrupted")
		return exit.Interrupted
	}
	// What others wrote is in errors and hints: names, answers of servers, texts of templates.
	fmt.Fprintf(w, "llmexport: %s\n", sheet.Escape(err.Error()))
	if h := hintFor(err); h != "" {
		for line := range strings.Lines(h) {
			fmt.Fprintf(w, "hint: %s\n", sheet.Escape(strings.TrimSuffix(line, "\n")))
		}
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var (
		usage   *exit.UsageError
		verdict *verdictError
		topic   cli.ExitCoder // of "help NAME"
		watched *watchError
		damaged *manifest.DamagedError
	)
	switch final := stage.Final(err); {
	case errors.As(err, &watched):
		return watched.code
	case final == stage.FinalVerdict, errors.As(err, &verdict), errors.As(err, &damaged):
		return exit.Unverified
	case final == stage.FinalRecipe, errors.As(err, &usage), errors.As(err, &topic):
		return exit.Usage
	case final == stage.FinalUnsupported:
		return exit.Unsupported
	}
	return exit.Failed
}

// hintFor guesses what helps.
func hintFor(err error) string {
	var (
		hinted  *hintError
		absent  *hub.UnreachableError
		results *stage.AbsentError
		full    *disk.FullError
		failed  *stage.FailedError
		codes   *stage.ImportError
		damaged *manifest.DamagedError
		other   *source.OtherError
		text    = err.Error()
	)
	switch {
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &results):
		return fmt.Sprintf("run --until %s first, with the same recipe, options and version of the program", results.Stage)
	case errors.As(err, &absent):
		return "check the network; HF_ENDPOINT or fetch.mirrors name other servers of the hub"
	case errors.As(err, &full), disk.Full(err):
		return "free some space, or use --cache DIR for intermediate results and another place for the package"
	case errors.As(err, &failed):
		return strings.Trim(failed.Hint+"\n"+checkHints(failed.Checks), "\n")
	case errors.As(err, &codes):
		return "quantize.import: requantize rounds the weights of the checkpoint again"
	case strings.Contains(text, "set replace"):
		return "--replace replaces what this program has published there"
	case errors.As(err, &damaged):
		return "make or pull the package again; pull --replace mends one whose manifest.json is whole"
	case errors.As(err, &other):
		return "--source names the checkpoint, at the revision, that the package was made from: llmexport inspect shows it"
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
