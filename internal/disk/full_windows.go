package disk

import (
	"errors"

	"golang.org/x/sys/windows"
)

// Full reports whether err says that a disk or a quota has no room.
func Full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
