package disk

import (
	"errors"
	"io/fs"
)

// IgnoreAbsent returns err, or nil if it means that something does not exist.
func IgnoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
