package publish

import (
	"fmt"

	"github.com/llmexport/llmexport/internal/disk"
)

// freeSpace is replaced by tests.
var freeSpace = disk.Free

// hasRoom refuses to begin what the disk cannot hold.
func hasRoom(dir string, need int64) error {
	if free := freeSpace(dir); free >= 0 && free < need {
		return fmt.Errorf("%s: %d bytes are free, %d are needed", dir, free, need)
	}
	return nil
}
