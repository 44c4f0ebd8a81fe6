package disk

import (
	"fmt"
	"os"
	"path/filepath"
)

// FullError says that a file system has too little room.
type FullError struct {
	Dir        string // the directory that was to be written to
	Need, Free int64  // bytes
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s: %d bytes are free, %d are needed", e.Dir, e.Free, e.Need)
}

// CheckSpace refuses, by a [FullError], to begin what the file system of dir cannot hold. The directory need not exist
// yet: then the nearest one above it counts. Where the system does not tell, nothing is refused.
func CheckSpace(dir string, need int64) error {
	if n := free(nearest(dir)); n >= 0 && n < need {
		return &FullError{Dir: dir, Need: need, Free: n}
	}
	return nil
}

// nearest is dir, or the nearest directory above it that exists.
func nearest(dir string) string {
	at := filepath.Clean(dir)
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			return at
		}
		at = filepath.Dir(at)
	}
}

// CheckWritable returns an error if the process may not make files in dir, which need not exist: then the nearest directory
// above it counts.
func CheckWritable(dir string) error {
	at := nearest(dir)
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", at)
	}
	if err := writable(at); err != nil {
		return fmt.Errorf("%s is not writable: %w", at, err)
	}
	return nil
}
