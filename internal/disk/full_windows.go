package disk

import (
	"errors"

	"golang.org/x/sys/windows"
)

// Full reports whether err means that a disk is full or a quota exceeded.
func Full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
