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
	at := filepath.Clean(dir)
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	if n := free(at); n >= 0 && n < need {
		return &FullError{Dir: dir, Need: need, Free: n}
	}
	return nil
}
