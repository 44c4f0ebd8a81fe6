//go:build !windows

package disk

import (
	"errors"
	"syscall"
)

// Full reports whether err means that a disk is full or a quota exceeded.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
