package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// verdictError reports an invalid package or signature.
type verdictError struct{ err error }

func (e *verdictError) Error() string { return e.err.Error() }
func (e *verdictError) Unwrap() error { return e.err }

// verdict turns errors about invalid bytes into a verdict; a file that cannot be read is not one.
func verdict(err error) error {
	if errors.Is(err, tensor.ErrCorrupt) {
		return &verdictError{err}
	}
	return err
}

// maxMessage bounds an error message, which may contain the response of a server, in characters.
const maxMessage = 2000

// report prints an error once and returns the exit code.
func report(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "llmexport-sign: interrupted")
		return exit.Interrupted
	}
	fmt.Fprintf(w, "llmexport-sign: %s\n", plain(err.Error()))
	var (
		usage   *exit.UsageError
		verdict *verdictError
	)
	switch {
	case errors.As(err, &verdict):
		return exit.Unverified
	case errors.As(err, &usage):
		return exit.Usage
	case errors.Is(err, tensor.ErrUnsupported):
		return exit.Unsupported
	}
	return exit.Failed
}

// plain removes control characters other than newlines.
func plain(s string) string {
	r := []rune(strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s))
	if len(r) > maxMessage {
		return string(r[:maxMessage]) + "..."
	}
	return string(r)
}
