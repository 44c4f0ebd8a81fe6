package stage

import (
	"fmt"

	"github.com/llmexport/llmexport/internal/disk"
)

// checkSpace refuses to begin what the disk cannot hold.
func checkSpace(dir string, need int64) error {
	if free := disk.Free(dir); free >= 0 && free < need {
		return fmt.Errorf("%s: %d bytes are free, %d are needed", dir, free, need)
	}
	return nil
}
