//go:build !unix && !windows

package tensor

import (
	"errors"
	"os"
)

// MapFile always fails: this system has no memory maps.
func MapFile(*os.File, int) (b []byte, unmap func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
