// Package fault holds the two errors that cross packages, for those below runtime/tensor, which exports them.
package fault

import "errors"

var (
	// ErrCorrupt: bytes are wrong: truncated, inconsistent, or not what they claim to be.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnsupported: the bytes are fine, and this program cannot use them.
	ErrUnsupported = errors.New("not supported")
)
