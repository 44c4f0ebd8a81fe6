package disk

import (
	"io/fs"
	"path/filepath"
	"time"
)

// Usage sums up the regular files below dir: their size in bytes, and when the last of them was changed. Files that cannot be
// read count as none.
func Usage(dir string) (bytes int64, changed time.Time) {
	_ = filepath.Walk(dir, func(_ string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
			if info.ModTime().After(changed) {
				changed = info.ModTime()
			}
		}
		return nil
	})
	return bytes, changed
}
