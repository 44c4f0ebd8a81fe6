package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Exit codes are those of llmexport.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnverified  = 3
	exitUnsupported = 4
	exitInterrupted = 130
)

// usageError is an error in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

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
		return exitInterrupted
	}
	fmt.Fprintf(w, "llmexport-sign: %s\n", plain(err.Error()))
	var (
		usage   *usageError
		verdict *verdictError
	)
	switch {
	case errors.As(err, &verdict):
		return exitUnverified
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, tensor.ErrUnsupported):
		return exitUnsupported
	}
	return exitFailed
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
