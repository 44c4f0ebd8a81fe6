package disk

import (
	"fmt"
	"os"
	"path/filepath"
)

// FullError is the error for a file system with too little free space.
type FullError struct {
	Dir        string // the directory to write to
	Need, Free int64  // bytes
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s: the disk has %s free, %s are needed", e.Dir, inUnits(e.Free), inUnits(e.Need))
}

// inUnits formats a number of bytes with two digits after the point.
func inUnits(n int64) string {
	units := []string{"KB", "MB", "GB", "TB"}
	v, unit := float64(n), "bytes"
	for _, u := range units {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

// CheckSpace returns a [FullError] if the file system of dir has less than the needed space. If the directory does not
// exist, its nearest existing parent counts. If the free space is unknown, there is no error.
func CheckSpace(dir string, need int64) error {
	if n := Free(dir); n >= 0 && n < need {
		return &FullError{Dir: dir, Need: need, Free: n}
	}
	return nil
}

// Free returns the free space of the file system of dir in bytes, or -1 if it is unknown. If dir does not exist, its nearest
// existing parent counts.
func Free(dir string) int64 { return free(nearest(dir)) }

// nearest returns dir or its nearest existing parent.
func nearest(dir string) string {
	at := filepath.Clean(dir)
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			return at
		}
		at = filepath.Dir(at)
	}
}

// CheckWritable returns an error if the process may not create files in dir. If dir does not exist, its nearest
// existing parent counts.
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
