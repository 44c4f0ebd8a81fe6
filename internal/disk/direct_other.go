//go:build !linux

package disk

import (
	"errors"
	"os"
)

// OpenDirect opens a file for reading and writing past the system's memory; here there is no such thing.
func OpenDirect(*os.Root, string) (*os.File, error) { return nil, errors.ErrUnsupported }
