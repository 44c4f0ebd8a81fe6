//go:build !windows

package disk

import (
	"errors"
	"syscall"
)

// Full reports whether err says that a disk or a quota has no room.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
