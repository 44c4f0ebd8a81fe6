//go:build !linux

package disk

import (
	"errors"
	"os"
)

// OpenDirect always fails: this system has no direct access.
func OpenDirect(*os.Root, string) (*os.File, error) { return nil, errors.ErrUnsupported }
