// Package exit has the exit codes that the programs of this project share, and the error for mistakes of their users.
package exit

import "fmt"

// Exit codes; 0 is success.
const (
	Failed      = 1
	Usage       = 2
	Unverified  = 3
	Unsupported = 4
	Interrupted = 130
)

// UsageError is a mistake of the command line, which ends a program with [Usage].
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }
